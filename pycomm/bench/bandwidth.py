"""Bandwidths by the definitions of nccl-tests (its doc/PERFORMANCE.md).

`algbw` is S/t: S the bytes of the collective, t its time. S is the vector of one rank for all_reduce,
broadcast, reduce and all_to_all, the gathered vector for all_gather, the vector before scattering for
reduce_scatter. Through the link of some rank `factor · S` bytes must pass, so `busbw = algbw · factor` can
be compared with the speed of one link whatever the collective and the number of ranks n.
"""

BUSBW_FACTORS = {
    "all_reduce": "2(n-1)/n",
    "reduce_scatter": "(n-1)/n",
    "all_gather": "(n-1)/n",
    "all_to_all": "(n-1)/n",
    "broadcast": "1",
    "reduce": "1",
    "barrier": "0",
}
"""The factor of every collective, as text for people; `busbw_factor` computes it."""


def busbw_factor(collective: str, ranks: int) -> float:
    """What algbw is multiplied with, for a collective over so many ranks."""
    match BUSBW_FACTORS[collective]:
        case "2(n-1)/n":
            return 2 * (ranks - 1) / ranks
        case "(n-1)/n":
            return (ranks - 1) / ranks
        case constant:
            return float(constant)


def algbw(size_bytes: int, seconds: float) -> float:
    """GB/s (10⁹ bytes); 0 where nothing was moved."""
    return size_bytes / seconds / 1e9 if size_bytes and seconds > 0 else 0.0
