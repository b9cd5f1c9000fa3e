"""How `--nodes` is read, by every command that takes it."""

from __future__ import annotations

from pycomm.errors import InvalidArgument

HELP = "nodes: how many, such as 2, or the ranks of each, such as 3,2,1"


def node_sizes(nodes: str | None, ranks: int | None, otherwise: int) -> list[int]:
    """Ranks on each node: as even as can be, or as given.

    Args:
        nodes: What `--nodes` says: "2", or "3,2,1"; None is one node.
        ranks: How many ranks there are, if that is said too.
        otherwise: How many there are where neither says it.

    Raises:
        InvalidArgument: it cannot be read, or there are not so many ranks.
    """
    total = otherwise if ranks is None else ranks
    if total < 1:
        raise InvalidArgument(f"{total} ranks: a job has at least 1")
    if nodes is None:
        return [total]
    parts = [int(part) if part.isdecimal() else 0 for part in nodes.split(",")]
    if min(parts) < 1:
        raise InvalidArgument(f"--nodes {nodes}: give a number such as 2, or each one's ranks, such as 3,2,1")
    if len(parts) > 1:
        if ranks is not None and sum(parts) != ranks:
            raise InvalidArgument(f"--nodes {nodes}: that makes {sum(parts)} ranks, not {ranks}")
        return parts
    if parts[0] > total:
        raise InvalidArgument(f"--nodes {nodes}: {total} ranks cannot be on {nodes} nodes")
    small, larger = divmod(total, parts[0])
    return [small + (node < larger) for node in range(parts[0])]
