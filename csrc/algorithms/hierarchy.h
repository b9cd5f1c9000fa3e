// The structure of a recipe: who is in whose group at which level, and who owns which share there.
#pragma once

#include <vector>

#include "algorithms/recipe.h"
#include "algorithms/shape.h"
#include "program/group.h"

namespace pycomm {

class Hierarchy {
 public:
  // Throws std::invalid_argument where the levels are no hierarchy.
  explicit Hierarchy(const Recipe& recipe);

  int depth() const { return static_cast<int>(levels_.size()); }
  int world_size() const { return world_size_; }
  bool is_last(int level) const { return level == depth() - 1; }
  const Shape& shape(int level) const { return *shapes_[static_cast<std::size_t>(level)]; }
  // True when the level hands all data to one rank of each group (a tree) instead of sharing it out.
  bool by_leader(int level) const { return !is_last(level) && shape(level).reduce_scatter == nullptr; }

  bool takes_part(int level, int rank) const { return at(level).group[static_cast<std::size_t>(rank)] >= 0; }
  Group group(int level, int rank) const;
  bool same_group(int level, int a, int b) const {
    return at(level).group[static_cast<std::size_t>(a)] == at(level).group[static_cast<std::size_t>(b)];
  }
  // Ranks that own shares in `rank`'s group, in order of their slots; at the last level, all of it.
  const std::vector<int>& owners(int level, int rank) const;
  bool owns(int level, int rank) const { return is_last(level) || takes_part(level + 1, rank); }
  // Which owner of its group carries a member's data onward: itself where it is one, else assigned in turn.
  int slot(int level, int rank) const { return at(level).slot[static_cast<std::size_t>(rank)]; }
  // The rank that stands for `rank` at a level: itself at level 0, above it the owner of its slot, and so on.
  int representative(int level, int rank) const;
  // The most ranks that share one span at a level, over all its groups.
  int widest(int level) const;

 private:
  struct Seats {  // of one level, by rank; -1 where the rank takes no part
    std::vector<int> group, position, slot;
    std::vector<std::vector<int>> owners;  // by group
  };

  const Seats& at(int level) const { return seats_[static_cast<std::size_t>(level)]; }
  void seat(int level);
  void assign_slots(int level);

  int world_size_;
  std::vector<Level> levels_;
  std::vector<const Shape*> shapes_;
  std::vector<Seats> seats_;
};

}  // namespace pycomm
