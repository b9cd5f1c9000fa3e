#include "algorithms/recipe.h"

#include <numeric>
#include <stdexcept>

#include "algorithms/hierarchical.h"
#include "program/passes.h"

namespace pycomm {
namespace {

// Chunks that one channel's part of an in-place block is cut into, so that every share of every level is
// whole chunks.
int chunks_per_channel(const Hierarchy& h, Collective collective) {
  int chunks = 1;
  for (int level = 0; !h.is_last(level); ++level) chunks *= h.shape(level).scatter_parts(h.widest(level));
  const int last = h.depth() - 1;
  const bool cuts = collective == Collective::kAllReduce;  // broadcast and reduce move whole shares there
  return cuts ? chunks * h.shape(last).all_reduce_parts(h.widest(last)) : chunks;
}

bool shares_by_block(Collective collective) {
  return collective == Collective::kReduceScatter || collective == Collective::kAllGather;
}

class Expander {
 public:
  explicit Expander(const Recipe& recipe) : recipe_(recipe), hierarchy_(checked(recipe)) {
    if (recipe.goal.collective == Collective::kAllToAll) moves_ = all_to_all_moves(hierarchy_);
  }

  Program expand(int rank) const {
    const Goal& goal = recipe_.goal;
    Program p(rank, goal.world_size);
    const bool by_block = shares_by_block(goal.collective) || goal.collective == Collective::kAllToAll;
    const int per_channel = by_block ? 1 : chunks_per_channel(hierarchy_, goal.collective);
    const int chunks = per_channel * recipe_.channels;
    p.layout(Buffer::kIn) = {goal.in_blocks(), chunks};
    p.layout(Buffer::kOut) = {goal.out_blocks(rank), chunks};
    p.layout(Buffer::kData) = {goal.data_blocks(), chunks};
    for (int c = 0; c < recipe_.channels; ++c) {
      p.channel(c);
      expand_channel(p, c, per_channel);
    }
    return p;
  }

 private:
  static const Recipe& checked(const Recipe& recipe) {
    const Goal& goal = recipe.goal;
    if (goal.world_size < 1) throw std::invalid_argument("a collective needs at least one rank");
    if (goal.root < 0 || goal.root >= goal.world_size)
      throw std::invalid_argument("root " + std::to_string(goal.root) + " is not in 0.." +
                                  std::to_string(goal.world_size - 1));
    if (recipe.channels < 1 || recipe.channels > 256)
      throw std::invalid_argument("a recipe has 1 to 256 channels, not " + std::to_string(recipe.channels));
    return recipe;
  }

  void expand_channel(Program& p, int channel, int per_channel) const {
    const Goal& goal = recipe_.goal;
    const int chunks = per_channel * recipe_.channels;
    const Span data(Buffer::kData, channel * per_channel, per_channel);
    const Unit unit = [&](int block) { return Span(Buffer::kData, block * chunks + channel, 1); };
    std::vector<int> blocks(static_cast<std::size_t>(goal.world_size));
    std::iota(blocks.begin(), blocks.end(), 0);
    switch (goal.collective) {
      case Collective::kAllReduce:
        return hierarchical_all_reduce(p, hierarchy_, 0, data);
      case Collective::kBroadcast:
        return hierarchical_broadcast(p, hierarchy_, 0, goal.root, data);
      case Collective::kReduce:
        return hierarchical_reduce(p, hierarchy_, 0, goal.root, data);
      case Collective::kReduceScatter:
        return hierarchical_reduce_scatter(p, hierarchy_, 0, blocks, unit);
      case Collective::kAllGather:
        return hierarchical_all_gather(p, hierarchy_, 0, blocks, unit);
      case Collective::kAllToAll:
        return hierarchical_all_to_all(p, hierarchy_, moves_, chunks, channel);
    }
  }

  const Recipe& recipe_;
  Hierarchy hierarchy_;
  std::vector<Move> moves_;
};

}  // namespace

Program expand(const Recipe& recipe, int rank) {
  if (rank < 0 || rank >= recipe.goal.world_size)
    throw std::invalid_argument("rank " + std::to_string(rank) + " is not in 0.." +
                                std::to_string(recipe.goal.world_size - 1));
  return Expander(recipe).expand(rank);
}

std::vector<Program> build(const Recipe& recipe) {
  const Expander expander(recipe);
  std::vector<Program> programs;
  for (int rank = 0; rank < recipe.goal.world_size; ++rank) programs.push_back(expander.expand(rank));
  lower(programs, recipe.goal);
  return programs;
}

}  // namespace pycomm
