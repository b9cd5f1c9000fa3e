#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "algorithms/hierarchical.h"

namespace pycomm {
namespace {

// The hops of the block from `from` to `to`. Stages 0 … depth-1 are exchanges at each level; then come the
// relays down, from the outer levels to the inner ones.
void route(const Hierarchy& h, int from, int to, std::vector<Move>& moves) {
  const auto hop = [&](int stage, int& here, int there) {
    if (here != there) moves.push_back({stage, here, there, from, to});
    here = there;
  };
  int here = from, level = 0;
  while (!h.is_last(level) && !h.same_group(level, here, h.representative(level, to))) {
    const int slot = h.slot(level, h.representative(level, to));
    hop(level, here, h.owners(level, here)[static_cast<std::size_t>(slot)]);
    ++level;
  }
  hop(level, here, h.representative(level, to));
  while (level-- > 0) hop(h.depth() + (h.depth() - 1 - level), here, h.representative(level, to));
}

using Item = std::pair<int, int>;  // from, to

// What one rank sends and receives in one stage, by peer.
struct Stage {
  std::map<int, std::vector<Item>> sent, received;
};

}  // namespace

std::vector<Move> all_to_all_moves(const Hierarchy& h) {
  std::vector<Move> moves;
  for (int from = 0; from < h.world_size(); ++from)
    for (int to = 0; to < h.world_size(); ++to) route(h, from, to, moves);
  std::stable_sort(moves.begin(), moves.end(),
                   [](const Move& a, const Move& b) { return a.stage < b.stage; });
  return moves;
}

void hierarchical_all_to_all(Program& p, const Hierarchy& h, const std::vector<Move>& moves, int chunks,
                             int chunk) {
  const int me = p.rank();
  std::map<int, Stage> stages;
  for (const Move& move : moves) {
    if (move.here == me) stages[move.stage].sent[move.there].emplace_back(move.from, move.to);
    if (move.there == me) stages[move.stage].received[move.here].emplace_back(move.from, move.to);
  }
  std::map<Item, Chunk> where;
  for (int to = 0; to < h.world_size(); ++to) where[{me, to}] = {Buffer::kIn, to * chunks + chunk};
  int tmp_blocks = 0;
  const auto land = [&](const Item& item) {
    const bool home = item.second == me;
    return where[item] = home ? Chunk{Buffer::kOut, item.first * chunks + chunk}
                              : Chunk{Buffer::kTmp, tmp_blocks++ * chunks + chunk};
  };

  for (const auto& [stage, traffic] : stages) {
    const int level = stage < h.depth() ? stage : 2 * h.depth() - 1 - stage;
    const Group g = h.group(level, me);
    std::vector<Span> outgoing, incoming;
    const auto gather = [](const auto& by_peer, int peer, auto chunk_of) {
      Span span;
      if (const auto found = by_peer.find(peer); found != by_peer.end())
        for (const Item& item : found->second) span.append(chunk_of(item));
      return span;
    };
    for (int peer : g.ranks())
      outgoing.push_back(gather(traffic.sent, peer, [&](const Item& i) { return where[i]; }));
    for (int peer : g.ranks()) incoming.push_back(gather(traffic.received, peer, land));
    const Shape& shape = h.shape(level);
    need(shape, shape.all_to_all, "all_to_all")(p, g, Shares(std::move(outgoing), g.index()),
                                                Shares(std::move(incoming), g.index()));
  }
  p.copy({Buffer::kOut, me * chunks + chunk, 1}, {Buffer::kIn, me * chunks + chunk, 1});
  p.layout(Buffer::kTmp) = {std::max(p.layout(Buffer::kTmp).blocks, tmp_blocks), chunks};
}

}  // namespace pycomm
