#include "algorithms/hierarchical.h"

#include <stdexcept>
#include <utility>

namespace pycomm {
namespace {

// One equal part of `data` for each owner of the group, nothing for the others.
Shares shares_of(const Hierarchy& h, int level, const Group& g, const Span& data) {
  std::vector<Span> spans;
  const int owners = static_cast<int>(h.owners(level, g.at(0)).size());
  for (int rank : g.ranks())
    spans.push_back(h.owns(level, rank) ? data.part(h.slot(level, rank), owners) : Span());
  return Shares(std::move(spans), g.index());
}

// The blocks among `blocks` whose way leads through the owner of `slot`.
std::vector<int> blocks_of_slot(const Hierarchy& h, int level, int slot, const std::vector<int>& blocks) {
  std::vector<int> chosen;
  for (int block : blocks)
    if (h.slot(level, h.representative(level, block)) == slot) chosen.push_back(block);
  return chosen;
}

Span join(const std::vector<int>& blocks, const Unit& unit) {
  Span span;
  for (int block : blocks) span = span + unit(block);
  return span;
}

// For each owner the blocks of its slot.
Shares shares_of(const Hierarchy& h, int level, const Group& g, const std::vector<int>& blocks,
                 const Unit& unit) {
  std::vector<Span> spans;
  for (int rank : g.ranks())
    spans.push_back(h.owns(level, rank) ? join(blocks_of_slot(h, level, h.slot(level, rank), blocks), unit)
                                        : Span());
  return Shares(std::move(spans), g.index());
}

// The blocks that `member` stands for at a level.
std::vector<int> blocks_behind(const Hierarchy& h, int level, int member, const std::vector<int>& blocks) {
  std::vector<int> chosen;
  for (int block : blocks)
    if (h.representative(level, block) == member) chosen.push_back(block);
  return chosen;
}

// A member that owns no share, its owner, and the blocks that pass between them: relayed, and said so by
// explain().
template <typename Visit>
void each_relay(const Hierarchy& h, int level, const Group& g, const std::vector<int>& blocks, Visit visit) {
  for (int member : g.ranks()) {
    if (h.owns(level, member)) continue;
    const int owner = h.owners(level, member)[static_cast<std::size_t>(h.slot(level, member))];
    if (const auto behind = blocks_behind(h, level, member, blocks); !behind.empty())
      visit(member, owner, behind);
  }
}

int position(const Group& g, int rank) {
  for (int i = 0; i < g.size(); ++i)
    if (g.at(i) == rank) return i;
  throw std::invalid_argument("rank " + std::to_string(rank) + " is not in the group that begins with rank " +
                              std::to_string(g.at(0)) + ": the levels' groups do not fit together");
}

// The rank of the root's group that stands where `rank` stands in its own.
int counterpart(const Hierarchy& h, int level, int root, int rank) {
  return h.owners(level, root)[static_cast<std::size_t>(h.slot(level, rank))];
}

int leader(const Hierarchy& h, int level, int root, int rank) {
  return h.owners(level, rank)[static_cast<std::size_t>(h.slot(level, root))];
}

}  // namespace

// Scatter inward, recurse, gather back; or to a leader and back.
void hierarchical_all_reduce(Program& p, const Hierarchy& h, int level, const Span& data) {
  const Group g = h.group(level, p.rank());
  const Shape& shape = h.shape(level);
  if (h.is_last(level)) return need(shape, shape.all_reduce, "all_reduce")(p, g, data);
  if (h.by_leader(level)) {
    const int lead = h.owners(level, p.rank()).front();
    shape.reduce(p, g, position(g, lead), data);
    if (lead == p.rank()) hierarchical_all_reduce(p, h, level + 1, data);
    return shape.broadcast(p, g, position(g, lead), data);
  }
  const Shares shares = shares_of(h, level, g, data);
  need(shape, shape.reduce_scatter, "reduce_scatter")(p, g, shares);
  if (h.owns(level, p.rank())) hierarchical_all_reduce(p, h, level + 1, shares.mine());
  need(shape, shape.all_gather, "all_gather")(p, g, shares);
}

// Scatter from the root over its group, broadcast each share along the next level, gather in every group.
void hierarchical_broadcast(Program& p, const Hierarchy& h, int level, int root, const Span& data) {
  const int me = p.rank();
  const Group g = h.group(level, me);
  const Shape& shape = h.shape(level);
  if (h.is_last(level)) return need(shape, shape.broadcast, "broadcast")(p, g, position(g, root), data);
  const bool at_root = h.same_group(level, me, root);
  if (h.by_leader(level)) {
    const int lead = leader(h, level, root, me);
    if (at_root && lead != root) {
      if (me == root) p.send(lead, data);
      if (me == lead) p.recv(root, data);
    }
    if (me == lead) hierarchical_broadcast(p, h, level + 1, leader(h, level, root, root), data);
    return shape.broadcast(p, g, position(g, lead), data);
  }
  const Shares shares = shares_of(h, level, g, data);
  if (at_root && me == root) {
    for (int k = 1; k < g.size(); ++k)
      if (h.owns(level, g.peer(k))) p.send(g.peer(k), shares[g.index() + k]);
  } else if (at_root && h.owns(level, me)) {
    p.recv(root, shares.mine());
  }
  if (h.owns(level, me))
    hierarchical_broadcast(p, h, level + 1, counterpart(h, level, root, me), shares.mine());
  need(shape, shape.all_gather, "all_gather")(p, g, shares);
}

// The mirror image: reduce-scatter in every group, reduce each share along the next level, gather at the
// root.
void hierarchical_reduce(Program& p, const Hierarchy& h, int level, int root, const Span& data) {
  const int me = p.rank();
  const Group g = h.group(level, me);
  const Shape& shape = h.shape(level);
  if (h.is_last(level)) return need(shape, shape.reduce, "reduce")(p, g, position(g, root), data);
  const bool at_root = h.same_group(level, me, root);
  if (h.by_leader(level)) {
    const int lead = leader(h, level, root, me);
    shape.reduce(p, g, position(g, lead), data);
    if (me == lead) hierarchical_reduce(p, h, level + 1, leader(h, level, root, root), data);
    if (at_root && lead != root) {
      if (me == lead) p.send(root, data);
      if (me == root) p.recv(lead, data);
    }
    return;
  }
  const Shares shares = shares_of(h, level, g, data);
  need(shape, shape.reduce_scatter, "reduce_scatter")(p, g, shares);
  if (h.owns(level, me)) hierarchical_reduce(p, h, level + 1, counterpart(h, level, root, me), shares.mine());
  if (!at_root) return;
  if (me == root) {
    for (int k = 1; k < g.size(); ++k)
      if (h.owns(level, g.peer(k))) p.recv(g.peer(k), shares[g.index() + k]);
  } else if (h.owns(level, me)) {
    p.send(root, shares.mine());
  }
}

// Each owner takes the blocks of its slot onward; what comes back for members that own no share is relayed to
// them.
void hierarchical_reduce_scatter(Program& p, const Hierarchy& h, int level, const std::vector<int>& blocks,
                                 const Unit& unit) {
  const int me = p.rank();
  const Group g = h.group(level, me);
  const Shape& shape = h.shape(level);
  need(shape, shape.reduce_scatter, "reduce_scatter")(p, g, shares_of(h, level, g, blocks, unit));
  if (h.is_last(level)) return;
  if (h.owns(level, me))
    hierarchical_reduce_scatter(p, h, level + 1, blocks_of_slot(h, level, h.slot(level, me), blocks), unit);
  each_relay(h, level, g, blocks, [&](int member, int owner, const std::vector<int>& behind) {
    if (me == owner) p.send(member, join(behind, unit));
    if (me == member) p.recv(owner, join(behind, unit));
  });
}

// The mirror image.
void hierarchical_all_gather(Program& p, const Hierarchy& h, int level, const std::vector<int>& blocks,
                             const Unit& unit) {
  const int me = p.rank();
  const Group g = h.group(level, me);
  const Shape& shape = h.shape(level);
  if (!h.is_last(level)) {
    each_relay(h, level, g, blocks, [&](int member, int owner, const std::vector<int>& behind) {
      if (me == member) p.send(owner, join(behind, unit));
      if (me == owner) p.recv(member, join(behind, unit));
    });
    if (h.owns(level, me))
      hierarchical_all_gather(p, h, level + 1, blocks_of_slot(h, level, h.slot(level, me), blocks), unit);
  }
  need(shape, shape.all_gather, "all_gather")(p, g, shares_of(h, level, g, blocks, unit));
}

}  // namespace pycomm
