// Direct: every pair of ranks talks, and each message goes straight to where it is needed.
#include <algorithm>

#include "algorithms/algorithms.h"

namespace pycomm {

// n-1 messages in flight at once, (n-1)/n M bytes.
void direct_reduce_scatter(Program& p, const Group& g, const Shares& data) {
  for (int k = 1; k < g.size(); ++k) {
    p.send(g.peer(+k), data[g.index() + k]);
    p.recv_reduce(g.peer(-k), data.mine());
  }
}

void direct_all_gather(Program& p, const Group& g, const Shares& data) {
  for (int k = 1; k < g.size(); ++k) {
    p.send(g.peer(+k), data.mine());
    p.recv(g.peer(-k), data[g.index() - k]);
  }
}

// One shot: (n-1) M bytes, and the latency of one step. Everyone adds up in rank order, so that all get the
// same bits: ((x0 + x1) + x2) + … ; a rank's own value joins at its place, on the left or the right, which is
// the same sum. Nothing is added to `data` before it was sent to everyone, hence the scratch: two ranks that
// each reduced into what they are still sending would wait for each other.
void direct_all_reduce(Program& p, const Group& g, const Span& data) {
  const int n = g.size(), me = g.index();
  if (n == 1) return;
  Layout& tmp = p.layout(Buffer::kTmp);
  tmp.chunks = p.layout(Buffer::kData).chunks;
  tmp.blocks = std::max(tmp.blocks, n);
  const auto theirs = [&](int position) { return data.in(Buffer::kTmp, position * tmp.chunks); };
  for (int k = 1; k < n; ++k) {
    p.send(g.peer(+k), data);
    p.recv(g.peer(-k), theirs(g.wrap(me - k)));
  }
  for (int j = 1; j < me; ++j) p.reduce(theirs(0), theirs(j));
  if (me > 0) p.reduce(data, theirs(0));
  for (int j = me + 1; j < n; ++j) p.reduce(data, theirs(j));
}

// One step; the root sends (n-1) M bytes.
void direct_broadcast(Program& p, const Group& g, int root, const Span& data) {
  if (g.wrap(root) != g.index()) return p.recv(g.at(root), data);
  for (int k = 1; k < g.size(); ++k) p.send(g.peer(+k), data);
}

// One step; the root receives (n-1) M bytes.
void direct_reduce(Program& p, const Group& g, int root, const Span& data) {
  if (g.wrap(root) != g.index()) return p.send(g.at(root), data);
  for (int k = 1; k < g.size(); ++k) p.recv_reduce(g.peer(+k), data);
}

// Pairs: in round k the ranks whose positions add up to k (mod n) exchange. n rounds, in one or two of which
// a rank is its own partner and idle; (n-1)/n M bytes.
void direct_all_to_all(Program& p, const Group& g, const Shares& outgoing, const Shares& incoming) {
  for (int k = 0; k < g.size(); ++k) {
    const int partner = g.wrap(k - g.index());
    if (partner == g.index()) continue;
    if (!outgoing[partner].empty()) p.send(g.at(partner), outgoing[partner]);
    if (!incoming[partner].empty()) p.recv(g.at(partner), incoming[partner]);
  }
}

}  // namespace pycomm
