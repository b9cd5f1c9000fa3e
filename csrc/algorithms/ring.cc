// Rings: every rank talks to its two neighbours only. n ranks, data of M bytes.
#include "algorithms/algorithms.h"

namespace pycomm {

// n-1 steps, (n-1)/n M bytes sent by each rank.
void ring_reduce_scatter(Program& p, const Group& g, const Shares& data) {
  for (int k = 1; k < g.size(); ++k) {
    p.send(g.peer(+1), data[g.index() - k]);
    p.recv_reduce(g.peer(-1), data[g.index() - k - 1]);
  }
}

// n-1 steps, (n-1)/n M bytes.
void ring_all_gather(Program& p, const Group& g, const Shares& data) {
  for (int k = 0; k < g.size() - 1; ++k) {
    p.send(g.peer(+1), data[g.index() - k]);
    p.recv(g.peer(-1), data[g.index() - k - 1]);
  }
}

// 2(n-1) steps, 2(n-1)/n M bytes: the least there is.
void ring_all_reduce(Program& p, const Group& g, const Span& data) {
  const Shares shares = split(data, g);
  ring_reduce_scatter(p, g, shares);
  ring_all_gather(p, g, shares);
}

// A chain from the root round to its left neighbour: n-1 hops, streamed slice by slice; M bytes by all but
// the last.
void ring_broadcast(Program& p, const Group& g, int root, const Span& data) {
  const int place = g.wrap(g.index() - root);
  if (place > 0) p.recv(g.peer(-1), data);
  if (place < g.size() - 1) p.send(g.peer(+1), data);
}

// The same chain, ending at the root: M bytes by all but the root.
void ring_reduce(Program& p, const Group& g, int root, const Span& data) {
  if (g.size() == 1) return;
  const int place = g.wrap(g.index() - root);
  if (place != 1) p.recv_reduce(g.peer(-1), data);
  if (place != 0) p.send(g.peer(+1), data);
}

// Shifts: in step k everyone sends to the k-th rank on the right and hears from the k-th on the left.
// n-1 steps, (n-1)/n M bytes.
void ring_all_to_all(Program& p, const Group& g, const Shares& outgoing, const Shares& incoming) {
  for (int k = 1; k < g.size(); ++k) {
    const int right = g.index() + k, left = g.index() - k;
    if (!outgoing[right].empty()) p.send(g.at(right), outgoing[right]);
    if (!incoming[left].empty()) p.recv(g.at(left), incoming[left]);
  }
}

}  // namespace pycomm
