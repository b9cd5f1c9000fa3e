// Recursive halving and doubling: partners at distances n/2, n/4 … 1. A leaf for powers of two; all_reduce
// folds the ranks beyond one. R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication
// Operations in MPICH", IJHPCA 19 (2005).
#include <bit>
#include <stdexcept>
#include <string>

#include "algorithms/algorithms.h"

namespace pycomm {
namespace {

void need_power_of_two(const Group& g) {
  if (std::has_single_bit(static_cast<unsigned>(g.size()))) return;
  throw std::invalid_argument("halving needs a power of two as a scatter leaf; the group has " +
                              std::to_string(g.size()) + " ranks: use ring or direct");
}

}  // namespace

// log2 n steps, (n-1)/n M bytes.
void halving_reduce_scatter(Program& p, const Group& g, const Shares& data) {
  need_power_of_two(g);
  int first = 0;
  for (int half = g.size() / 2; half >= 1; half /= 2) {
    const bool upper = (g.index() & half) != 0;
    const int kept = upper ? first + half : first;
    const int given = upper ? first : first + half;
    p.send(g.at(g.index() ^ half), data.range(given, given + half));
    p.recv_reduce(g.at(g.index() ^ half), data.range(kept, kept + half));
    first = kept;
  }
}

// log2 n steps, (n-1)/n M bytes.
void doubling_all_gather(Program& p, const Group& g, const Shares& data) {
  need_power_of_two(g);
  for (int have = 1; have < g.size(); have *= 2) {
    const int mine = g.index() & ~(have - 1);
    p.send(g.at(g.index() ^ have), data.range(mine, mine + have));
    p.recv(g.at(g.index() ^ have), data.range(mine ^ have, (mine ^ have) + have));
  }
}

// 2 log2 n steps, 2(n-1)/n M bytes; where n is no power of two, two steps and up to 2M bytes more for the
// folding.
void halving_all_reduce(Program& p, const Group& g, const Span& data) {
  const int core = static_cast<int>(std::bit_floor(static_cast<unsigned>(g.size())));
  const int partner = g.index() < core ? g.index() + core : g.index() - core;
  if (g.index() >= core) {
    p.send(g.at(partner), data);
    p.recv(g.at(partner), data);
    return;
  }
  const bool folds = partner < g.size();
  if (folds) p.recv_reduce(g.at(partner), data);
  const Group inner({g.ranks().begin(), g.ranks().begin() + core}, g.index());
  const Shares shares = split(data, inner);
  halving_reduce_scatter(p, inner, shares);
  doubling_all_gather(p, inner, shares);
  if (folds) p.send(g.at(partner), data);
}

}  // namespace pycomm
