"""The formulas of the leaf algorithms: what the busiest rank of a group does.

n ranks work on M bytes; a share is what one owner gets, M/n where all own one. The algorithms are in
csrc/algorithms.

Sources: "Thakur" is R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication
Operations in MPICH", IJHPCA 19 (2005); "Patarasuk" is P. Patarasuk, X. Yuan, "Bandwidth optimal all-reduce
algorithms for clusters of workstations", JPDC 69 (2009); "Pješivac-Grbović" is J. Pješivac-Grbović et al.,
"Performance analysis of MPI collective operations", Cluster Computing 10 (2007).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pycomm.topo.cost import Load, Payload, Shape, Work

# -- rings: neighbours only ------------------------------------------------------------------------


def ring_reduce_scatter(shape: Shape, data: Payload) -> Work:
    """n-1 steps of a share, the first of them raw: (n-1)/n M. Source: Patarasuk."""
    steps = shape.size - 1
    if steps == 0:
        return Work()
    moved = data.share * (data.raw + (steps - 1) * data.partial)
    return _on_slowest(shape, Load(steps, steps, moved, data.share * steps * data.partial))


def ring_all_gather(shape: Shape, data: Payload) -> Work:
    """n-1 steps of a share: (n-1)/n M. Source: Patarasuk."""
    steps = shape.size - 1
    return _on_slowest(shape, Load(steps, steps, data.share * steps * data.complete))


def ring_all_reduce(shape: Shape, data: Payload) -> Work:
    """2(n-1) steps, 2(n-1)/n M, the least there is: one ring after the other. Source: Patarasuk."""
    shape, data = _cut(shape, data)
    return ring_reduce_scatter(shape, data).then(ring_all_gather(shape, data))


def ring_broadcast(shape: Shape, data: Payload) -> Work:
    """A chain of n-1 hops, streamed: M bytes, and n-2 slices until it flows. Source: Pješivac-Grbović,
    pipeline.
    """
    return _chain(shape, data, data.complete, 0)


def ring_reduce(shape: Shape, data: Payload) -> Work:
    """The same chain, reducing: n-1 hops, M bytes, n-2 slices. Source: Pješivac-Grbović, pipeline."""
    return _chain(shape, data, _passed_on(shape, data), data.partial)


def ring_all_to_all(shape: Shape, data: Payload) -> Work:
    """n-1 shifts of M/n bytes each: (n-1)/n M. Source: Thakur, pairwise exchange."""
    return replace(_all_pairs(shape, data.share * data.raw, 0), at_once=1)


# -- halving and doubling: partners at distances n/2 … 1 -------------------------------------------


def halving_reduce_scatter(shape: Shape, data: Payload) -> Work:
    """log2 n steps, at distance d of d shares, the first of them raw: (n-1)/n M. Source: Thakur, recursive
    halving.
    """
    work, width, distance = Work(flows=shape.flows), data.raw, shape.size // 2
    while distance >= 1:
        moved = min(distance, shape.owners) * data.share
        work = work.then(_exchange(shape, distance, Load(1, 1, moved * width, moved * data.partial)))
        distance, width = distance // 2, data.partial
    return _with_partners(work)


def halving_all_gather(shape: Shape, data: Payload) -> Work:
    """log2 n steps, at distance d of d shares: (n-1)/n M. Source: Thakur, recursive doubling."""
    work, distance = Work(flows=shape.flows), 1
    while distance < shape.size:
        moved = min(distance, shape.owners) * data.share
        work = work.then(_exchange(shape, distance, Load(1, 1, moved * data.complete)))
        distance *= 2
    return _with_partners(work)


def halving_all_reduce(shape: Shape, data: Payload) -> Work:
    """2 log2 n steps, 2(n-1)/n M. Source: Thakur, Rabenseifner's algorithm.

    Where n is no power of two the ranks beyond one first give their data to a partner and in the end get the
    result from it: two steps and 2M bytes more.
    """
    core = 1 << (shape.size.bit_length() - 1)
    if core == shape.size:
        shape, data = _cut(shape, data)
        return halving_reduce_scatter(shape, data).then(halving_all_gather(shape, data))
    there = Load(1, 1, data.elements * data.raw, data.elements * data.partial)
    back = Load(1, 1, data.elements * data.complete)
    inner, folded = _cut(replace(shape, size=core, near=core if shape.on_one_node else 1), data)
    folded = replace(folded, raw=folded.partial)
    work = halving_reduce_scatter(inner, folded).then(halving_all_gather(inner, folded))
    return _exchange(shape, shape.size, there + back).then(work)


# -- direct: every message straight to where it is needed ------------------------------------------


def direct_reduce_scatter(shape: Shape, data: Payload) -> Work:
    """n-1 rounds of a raw share: (n-1)/n M. Source: Thakur, pairwise exchange. No sum is ever passed on."""
    return _all_pairs(shape, data.share * data.raw, data.share * data.partial)


def direct_all_gather(shape: Shape, data: Payload) -> Work:
    """n-1 rounds of a share: (n-1)/n M. Source: Thakur, pairwise exchange."""
    return _all_pairs(shape, data.share * data.complete, 0)


def direct_all_reduce(shape: Shape, data: Payload) -> Work:
    """One shot: n-1 rounds of all the raw data: (n-1) M. Source: the definition; nothing waits for a sum."""
    return _all_pairs(shape, data.elements * data.raw, data.elements * data.partial)


def direct_broadcast(shape: Shape, data: Payload) -> Work:
    """One step; the root sends (n-1) M. Source: Pješivac-Grbović, linear."""
    return replace(_star(shape, data.elements * data.complete, 0), senders=1, at_once=1)


def direct_reduce(shape: Shape, data: Payload) -> Work:
    """One step; the root receives (n-1) M. Source: Pješivac-Grbović, linear."""
    return _star(shape, data.elements * data.raw, data.elements * data.partial)


def direct_all_to_all(shape: Shape, data: Payload) -> Work:
    """Pairs: n-1 rounds of M/n bytes each: (n-1)/n M. Source: Thakur, pairwise exchange."""
    return _all_pairs(shape, data.share * data.raw, 0)


# -- trees: the fewest steps -----------------------------------------------------------------------


def tree_broadcast(shape: Shape, data: Payload) -> Work:
    """Binomial: ceil(log2 n) steps of M bytes, all of which the root sends. Source: Thakur."""
    return _tree(shape, data.elements * data.complete, 0)


def tree_reduce(shape: Shape, data: Payload) -> Work:
    """Binomial: ceil(log2 n) steps of M bytes, all of which the root receives. Source: Thakur."""
    work = _tree(shape, data.elements * _passed_on(shape, data), data.elements * data.partial)
    return replace(work, senders=max(1, work.far.waits))


def tree_all_reduce(shape: Shape, data: Payload) -> Work:
    """2 ceil(log2 n) steps of M bytes: a reduce, then a broadcast. Source: Thakur."""
    return tree_reduce(shape, data).then(tree_broadcast(shape, data))


# -- what is no algorithm's choice -----------------------------------------------------------------


def plain_sends(shape: Shape, data: Payload) -> Work:
    """One rank to or from `owners` others of its node; one step of M bytes. Source: the definition."""
    return Work(near=Load(min(shape.owners, 1), shape.owners, data.elements * data.complete))


Formula = Callable[[Shape, Payload], Work]

LEAVES: dict[str, dict[str, Formula]] = {
    "all_reduce": {
        "ring": ring_all_reduce,
        "halving": halving_all_reduce,
        "tree": tree_all_reduce,
        "direct": direct_all_reduce,
    },
    "reduce_scatter": {
        "ring": ring_reduce_scatter,
        "halving": halving_reduce_scatter,
        "direct": direct_reduce_scatter,
    },
    "all_gather": {"ring": ring_all_gather, "halving": halving_all_gather, "direct": direct_all_gather},
    "broadcast": {"ring": ring_broadcast, "tree": tree_broadcast, "direct": direct_broadcast},
    "reduce": {"ring": ring_reduce, "tree": tree_reduce, "direct": direct_reduce},
    "all_to_all": {"ring": ring_all_to_all, "direct": direct_all_to_all},
    "scatter": {"sends": plain_sends},
    "gather": {"sends": plain_sends},
    "relay": {"sends": plain_sends},
}


# -- patterns that several leaves share ------------------------------------------------------------


def _cut(shape: Shape, data: Payload) -> tuple[Shape, Payload]:
    """Every rank owns an equal share."""
    return replace(shape, owners=shape.size), replace(data, share=-(-data.elements // shape.size))


def _passed_on(shape: Shape, data: Payload) -> int:
    """Bytes of an element on the busiest edge of a reduction: only between two ranks is nothing passed on."""
    return data.partial if shape.size > 2 else data.raw


def _on_slowest(shape: Shape, load: Load) -> Work:
    """Every step waits for the slowest link. Where a group has several ranks on a node, one of them leaves
    it.
    """
    if shape.on_one_node:
        return Work(near=load)
    return Work(far=load, flows=shape.flows_alone)


def _chain(shape: Shape, data: Payload, width: int, reduced_width: int) -> Work:
    hops = shape.size - 1
    if hops == 0:
        return Work()
    moved = data.elements * width
    fill = (hops - 1) * min(moved, data.slice_bytes)
    return _on_slowest(shape, Load(hops, min(hops, 2), moved, data.elements * reduced_width, fill))


def _exchange(shape: Shape, distance: int, load: Load) -> Work:
    """A step at a distance: inside the nodes where these are blocks of a power of two, and longer."""
    blocks = shape.near & (shape.near - 1) == 0
    if shape.on_one_node or (blocks and distance < shape.near):
        return Work(near=load)
    return Work(far=load, flows=shape.flows)


def _all_pairs(shape: Shape, moved: int, reduced: int) -> Work:
    near, far = min(shape.near, shape.size) - 1, max(shape.size - shape.near, 0)
    return Work(
        Load(near, near, near * moved, near * reduced),
        Load(far, far, far * moved, far * reduced),
        shape.flows,
        senders=max(1, far),
        at_once=max(1, far),
    )


def _star(shape: Shape, moved: int, reduced: int) -> Work:
    work = _all_pairs(replace(shape, flows=shape.flows_alone), moved, reduced)
    near, far = (replace(load, waits=min(load.waits, 1)) for load in (work.near, work.far))
    return replace(work, near=near, far=far)


def _with_partners(work: Work) -> Work:
    """Another partner in each step between nodes: who is ahead sends to one that still hears from another."""
    partners = max(1, work.far.waits)
    return replace(work, senders=partners, at_once=min(2, partners))


def _tree(shape: Shape, moved: int, reduced: int) -> Work:
    """Distances 1, 2, 4 …; inside the nodes where these are blocks of a power of two, and longer."""
    work, distance = Work(), 1
    while distance < shape.size:
        load = Load(1, 1, moved, reduced)
        work = work.then(_exchange(replace(shape, flows=shape.flows_alone), distance, load))
        distance *= 2
    return work
