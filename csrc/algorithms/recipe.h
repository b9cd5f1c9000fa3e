// A recipe: how a collective is to be done, as the planner decided it. From it every rank's program follows.
#pragma once

#include <string>
#include <vector>

#include "program/collective.h"
#include "program/program.h"

namespace pycomm {

// One level: a partition of the ranks that take part in it, and the algorithm used inside each group. Level 0
// holds every rank of the collective. A rank that appears at level l + 1 owns shares at level l; the j-th
// owner of each group is in the same group of level l + 1. Rail-first is two levels: nodes, then rail groups.
struct Level {
  std::vector<std::vector<int>> groups;
  std::string algorithm;  // "ring", "halving", "tree", "direct"
};

struct Recipe {
  Goal goal;
  std::vector<Level> levels;
  int channels = 1;
};

// Every rank's program, placed, fused and marked. Throws std::invalid_argument for a recipe that cannot be
// followed
// ("halving needs a power of two as a scatter leaf; the group has 6 ranks"), ProgramError for one that is
// wrong.
std::vector<Program> build(const Recipe& recipe);

// The same, before any pass: for one rank.
Program expand(const Recipe& recipe, int rank);

}  // namespace pycomm
