#include "program/collective.h"

#include <array>
#include <stdexcept>

namespace pycomm {
namespace {

constexpr std::array kNames = {"all_reduce", "reduce_scatter", "all_gather",
                               "broadcast",  "reduce",         "all_to_all"};

}  // namespace

const char* name(Collective collective) { return kNames[static_cast<std::size_t>(collective)]; }

Collective collective_named(const std::string& wanted) {
  std::string known;
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (wanted == kNames[i]) return static_cast<Collective>(i);
    known += std::string(i ? ", " : "") + kNames[i];
  }
  throw std::invalid_argument("unknown collective '" + wanted + "'; known are " + known);
}

bool reduces(Collective collective) {
  return collective == Collective::kAllReduce || collective == Collective::kReduceScatter ||
         collective == Collective::kReduce;
}

std::int32_t Goal::in_blocks() const {
  const bool many = collective == Collective::kReduceScatter || collective == Collective::kAllToAll;
  return many ? world_size : 1;
}

std::int32_t Goal::out_blocks(int rank) const {
  if (collective == Collective::kReduce) return rank == root ? 1 : 0;
  const bool many = collective == Collective::kAllGather || collective == Collective::kAllToAll;
  return many ? world_size : 1;
}

std::int32_t Goal::data_blocks() const {
  switch (collective) {
    case Collective::kReduceScatter:
    case Collective::kAllGather:
      return world_size;
    case Collective::kAllToAll:
      return 0;
    default:
      return 1;
  }
}

std::int32_t Goal::data_block_of_input(int rank, std::int32_t block) const {
  switch (collective) {
    case Collective::kAllGather:
      return rank;
    case Collective::kBroadcast:
      return rank == root ? block : -1;
    case Collective::kAllToAll:
      return -1;
    default:
      return block;
  }
}

std::int32_t Goal::output_of_data_block(int rank, std::int32_t block) const {
  switch (collective) {
    case Collective::kReduceScatter:
      return block == rank ? 0 : -1;
    case Collective::kReduce:
      return rank == root ? block : -1;
    case Collective::kAllToAll:
      return -1;
    default:
      return block;
  }
}

}  // namespace pycomm
