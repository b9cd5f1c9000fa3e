#include "algorithms/shape.h"

#include <bit>
#include <stdexcept>

namespace pycomm {
namespace {

int all(int ranks) { return ranks; }
int power_of_two(int ranks) { return static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks))); }
int one(int) { return 1; }

constexpr Shape kShapes[] = {
    {"ring", all, all, ring_reduce_scatter, ring_all_gather, ring_all_reduce, ring_broadcast, ring_reduce,
     ring_all_to_all},
    {"halving", power_of_two, power_of_two, halving_reduce_scatter, doubling_all_gather, halving_all_reduce,
     nullptr, nullptr, nullptr},
    {"tree", one, one, nullptr, nullptr, tree_all_reduce, tree_broadcast, tree_reduce, nullptr},
    {"direct", all, one, direct_reduce_scatter, direct_all_gather, direct_all_reduce, direct_broadcast,
     direct_reduce, direct_all_to_all},
};

}  // namespace

const Shape& shape_named(const std::string& name) {
  std::string known;
  for (const Shape& shape : kShapes) {
    if (name == shape.name) return shape;
    known += (known.empty() ? "" : ", ") + std::string(shape.name);
  }
  throw std::invalid_argument("unknown algorithm '" + name + "'; known are " + known);
}

}  // namespace pycomm
