// The leaf algorithms: one file a shape (ring, halving, tree, direct). Pure functions from a group and its
// data to steps; no bytes, transports, dtypes or synchronisation. `g` is seen from the program's own rank.
#pragma once

#include <string>
#include <vector>

#include "program/group.h"
#include "program/program.h"

namespace pycomm {

// Afterwards the rank owns its share, reduced over the group.
void ring_reduce_scatter(Program& p, const Group& g, const Shares& data);
void halving_reduce_scatter(Program& p, const Group& g, const Shares& data);  // g.size() a power of two
void direct_reduce_scatter(Program& p, const Group& g, const Shares& data);

// Afterwards every rank has every share.
void ring_all_gather(Program& p, const Group& g, const Shares& data);
void doubling_all_gather(Program& p, const Group& g, const Shares& data);  // g.size() a power of two
void direct_all_gather(Program& p, const Group& g, const Shares& data);

void ring_all_reduce(Program& p, const Group& g, const Span& data);
void halving_all_reduce(Program& p, const Group& g, const Span& data);  // any size: folded to a power of two
void tree_all_reduce(Program& p, const Group& g, const Span& data);
void direct_all_reduce(Program& p, const Group& g, const Span& data);  // scratch: a block of kTmp like `data`

// `root` is a position in the group.
void ring_broadcast(Program& p, const Group& g, int root, const Span& data);
void tree_broadcast(Program& p, const Group& g, int root, const Span& data);
void direct_broadcast(Program& p, const Group& g, int root, const Span& data);
void ring_reduce(Program& p, const Group& g, int root, const Span& data);
void tree_reduce(Program& p, const Group& g, int root, const Span& data);
void direct_reduce(Program& p, const Group& g, int root, const Span& data);

// Each position's span of `outgoing` goes to that position's rank; theirs arrive in `incoming`.
void ring_all_to_all(Program& p, const Group& g, const Shares& outgoing, const Shares& incoming);
void direct_all_to_all(Program& p, const Group& g, const Shares& outgoing, const Shares& incoming);

}  // namespace pycomm
