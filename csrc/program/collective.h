// What a collective means: which buffers it has and what each must hold at the end.
#pragma once

#include <cstdint>
#include <string>

#include "program/program.h"

namespace pycomm {

enum class Collective : std::uint8_t {
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kReduce,
  kAllToAll
};

const char* name(Collective collective);
Collective collective_named(const std::string& name);  // throws std::invalid_argument
bool reduces(Collective collective);

// A collective as its verifier and passes see it. A block is `count` elements, the unit the caller counts in:
// all_reduce, broadcast, reduce: in and out are one block; reduce_scatter: n blocks to one; all_gather: one
// to n; all_to_all: n to n.
struct Goal {
  Collective collective = Collective::kAllReduce;
  int world_size = 1;
  int root = 0;

  std::int32_t in_blocks() const;
  std::int32_t out_blocks(int rank) const;  // 0 for the ranks that `reduce` gives nothing
  std::int32_t data_blocks() const;         // blocks of the in-place buffer kData
  // Where a rank's own data lies before the first step: the block of kData that block b of `in` stands for,
  // or -1 where that rank contributes nothing (broadcast, other than the root).
  std::int32_t data_block_of_input(int rank, std::int32_t block) const;
  // The block of `out` that kData's block b ends in on this rank, or -1 if the result does not hold it.
  std::int32_t output_of_data_block(int rank, std::int32_t block) const;
};

}  // namespace pycomm
