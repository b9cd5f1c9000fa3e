#include "algorithms/hierarchy.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace pycomm {

Hierarchy::Hierarchy(const Recipe& recipe) : world_size_(recipe.goal.world_size), levels_(recipe.levels) {
  if (levels_.empty()) throw std::invalid_argument("a recipe needs at least one level");
  seats_.resize(levels_.size());
  for (int level = 0; level < depth(); ++level) {
    shapes_.push_back(&shape_named(levels_[static_cast<std::size_t>(level)].algorithm));
    seat(level);
  }
  for (int level = 0; level < depth(); ++level) assign_slots(level);
}

void Hierarchy::seat(int level) {
  const auto n = static_cast<std::size_t>(world_size_);
  Seats& seats = seats_[static_cast<std::size_t>(level)];
  seats.group.assign(n, -1);
  seats.position.assign(n, -1);
  seats.slot.assign(n, -1);
  const auto& groups = levels_[static_cast<std::size_t>(level)].groups;
  const std::string where = "level " + std::to_string(level) + ": rank ";
  int seated = 0;
  for (std::size_t g = 0; g < groups.size(); ++g)
    for (std::size_t i = 0; i < groups[g].size(); ++i, ++seated) {
      const int rank = groups[g][i];
      if (rank < 0 || rank >= world_size_)
        throw std::invalid_argument(where + std::to_string(rank) + " is not in 0.." +
                                    std::to_string(world_size_ - 1));
      if (seats.group[static_cast<std::size_t>(rank)] >= 0)
        throw std::invalid_argument(where + std::to_string(rank) + " is in two groups");
      if (level > 0 && !takes_part(level - 1, rank))
        throw std::invalid_argument(where + std::to_string(rank) + " is not at level " +
                                    std::to_string(level - 1));
      seats.group[static_cast<std::size_t>(rank)] = static_cast<int>(g);
      seats.position[static_cast<std::size_t>(rank)] = static_cast<int>(i);
    }
  if (level == 0 && seated != world_size_)
    throw std::invalid_argument("level 0 holds " + std::to_string(seated) + " of " +
                                std::to_string(world_size_) + " ranks; it must hold each once");
}

void Hierarchy::assign_slots(int level) {
  Seats& seats = seats_[static_cast<std::size_t>(level)];
  for (const auto& group : levels_[static_cast<std::size_t>(level)].groups) {
    std::vector<int> owners;
    for (int rank : group)
      if (owns(level, rank)) {
        seats.slot[static_cast<std::size_t>(rank)] = static_cast<int>(owners.size());
        owners.push_back(rank);
      }
    if (owners.empty())
      throw std::invalid_argument(
          "level " + std::to_string(level) + ": no rank of the group that begins with rank " +
          std::to_string(group.empty() ? -1 : group[0]) + " goes on to the next level");
    int turn = 0;
    for (int rank : group)
      if (!owns(level, rank))
        seats.slot[static_cast<std::size_t>(rank)] = turn++ % static_cast<int>(owners.size());
    seats.owners.push_back(std::move(owners));
  }
  if (!is_last(level))
    for (const auto& owners : seats.owners)
      if (owners.size() != seats.owners[0].size())
        throw std::invalid_argument("level " + std::to_string(level) +
                                    ": its groups have unlike numbers of ranks that go on to the next level");
}

Group Hierarchy::group(int level, int rank) const {
  const Seats& seats = at(level);
  const auto index = static_cast<std::size_t>(rank);
  return Group(levels_[static_cast<std::size_t>(level)].groups[static_cast<std::size_t>(seats.group[index])],
               seats.position[index]);
}

const std::vector<int>& Hierarchy::owners(int level, int rank) const {
  const Seats& seats = at(level);
  return seats.owners[static_cast<std::size_t>(seats.group[static_cast<std::size_t>(rank)])];
}

int Hierarchy::representative(int level, int rank) const {
  for (int l = 0; l < level; ++l) rank = owners(l, rank)[static_cast<std::size_t>(slot(l, rank))];
  return rank;
}

int Hierarchy::widest(int level) const {
  std::size_t most = 1;
  for (const auto& owners : at(level).owners) most = std::max(most, owners.size());
  return static_cast<int>(most);
}

}  // namespace pycomm
