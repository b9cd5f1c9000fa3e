// Hierarchical composition, to any depth: what one level leaves undone, its share owners do at the next.
#pragma once

#include <functional>

#include "algorithms/hierarchy.h"
#include "program/program.h"

namespace pycomm {

// Names the chunks that a block means in the channel at hand.
using Unit = std::function<Span(int block)>;

// All of one program for `rank`, which takes part at `level`. `root` takes part there too.
void hierarchical_all_reduce(Program& p, const Hierarchy& h, int level, const Span& data);
void hierarchical_broadcast(Program& p, const Hierarchy& h, int level, int root, const Span& data);
void hierarchical_reduce(Program& p, const Hierarchy& h, int level, int root, const Span& data);
// `blocks`: the ranks whose blocks are at stake.
void hierarchical_reduce_scatter(Program& p, const Hierarchy& h, int level, const std::vector<int>& blocks,
                                 const Unit& unit);
void hierarchical_all_gather(Program& p, const Hierarchy& h, int level, const std::vector<int>& blocks,
                             const Unit& unit);

// One message's worth of all-to-all: the block that `from` sends to `to`, on its way from `here` to `there`.
struct Move {
  int stage, here, there, from, to;
};

// The way of every block, by stage: up through the levels towards the rail of its receiver, then down to
// those that own no share. Order is by (stage, from, to).
std::vector<Move> all_to_all_moves(const Hierarchy& h);
void hierarchical_all_to_all(Program& p, const Hierarchy& h, const std::vector<Move>& moves, int chunks,
                             int chunk);

}  // namespace pycomm
