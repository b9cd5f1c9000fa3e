// Binomial trees: the fewest steps, for data too small to be worth cutting up.
#include "algorithms/algorithms.h"

namespace pycomm {

// ceil(log2 n) steps, M bytes on each edge. Every rank's subtree is the ranks that differ in lower bits.
void tree_broadcast(Program& p, const Group& g, int root, const Span& data) {
  const int n = g.size();
  const int place = g.wrap(g.index() - root);
  int bit = 1;
  while (bit < n && !(place & bit)) bit *= 2;
  if (place > 0) p.recv(g.at(root + place - bit), data);
  for (bit /= 2; bit >= 1; bit /= 2)
    if (place + bit < n) p.send(g.at(root + place + bit), data);
}

// The mirror image.
void tree_reduce(Program& p, const Group& g, int root, const Span& data) {
  const int n = g.size();
  const int place = g.wrap(g.index() - root);
  int bit = 1;
  for (; bit < n && !(place & bit); bit *= 2)
    if (place + bit < n) p.recv_reduce(g.at(root + place + bit), data);
  if (place > 0) p.send(g.at(root + place - bit), data);
}

// 2 ceil(log2 n) steps, 2M bytes on each edge.
void tree_all_reduce(Program& p, const Group& g, const Span& data) {
  tree_reduce(p, g, 0, data);
  tree_broadcast(p, g, 0, data);
}

}  // namespace pycomm
