// The verifier: runs all ranks' programs on symbols and finds whatever keeps them from being the collective.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "program/collective.h"
#include "program/program.h"

namespace pycomm {

// Where the ranks are, so that the verifier can say what crosses a rail. Empty vectors: one node.
struct Placement {
  std::vector<int> node;  // by rank
  std::vector<int> rail;  // by rank
};

// What a proof counted. Chunks are weighed as elements of one block = 1.0 (so all_reduce moves 2(n-1)/n per
// rank).
struct Traffic {
  double local = 0;       // blocks sent between ranks of one node
  double rail = 0;        // blocks sent between nodes, along a rail
  double cross_rail = 0;  // blocks sent between nodes from one rail to another
  std::int64_t steps = 0;
  std::int64_t messages = 0;
  bool same_bits = true;  // every rank's result is the same expression, for the reductions
};

// One run stands for all: messages pair up by sender, receiver and channel, in order, channels share no
// memory that one of them writes, and a step that would overwrite what is still being sent waits, so that no
// outcome depends on timing. Programs without kData are run a second time with input and output in one
// memory.
//
// Throws ProgramError at the first fault: an unmatched send or receive, a deadlock, a contribution counted
// twice, a read of what nobody wrote, a span overwritten while it is sent (where waiting for that is a
// deadlock), racing channels, a message of another length than its receiver expects, a write to the input, a
// wrong final state, marks other than the pass `mark` sets in programs without kData, or a byte that crosses
// a rail though its (sender, receiver) pair is not among `declared`.
Traffic verify(std::span<const Program> programs, const Goal& goal, const Placement& placement = {},
               const std::set<std::pair<int, int>>& declared = {});

}  // namespace pycomm
