"""From samples of a wire to its alpha, message, beta and gamma."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pycomm.topo import Wire

Points = Sequence[tuple[int, float]]


@dataclass(frozen=True)
class Samples:
    """What was measured between pairs of ranks on one kind of wire; the slowest pair's.

    Attributes:
        ping_s: One way of a message of 8 bytes that is answered by another, in seconds.
        flood_s: The same for one of many messages that go one behind the other: nothing but the time of
            its own that a rank spends on each.
        moved: Bytes, and the seconds in which two ranks send each other so many.
        reduced: The same where each adds what comes to what it has.
    """

    ping_s: float
    flood_s: float
    moved: Points
    reduced: Points


def fit(samples: Samples) -> Wire:
    """The wire on which a message of b bytes takes ``alpha + message + b · beta + b · gamma``.

    The latency part is what the two small probes say, for a line through large messages says nothing of it.
    beta and gamma are slopes by least squares (R. Hockney, "The communication challenge for MPP", Parallel
    Computing 20, 1994, has the two-parameter form).

    Raises:
        ValueError: fewer than two sizes were measured.
    """
    beta = _slope(samples.moved)
    message = min(samples.flood_s, samples.ping_s)
    return Wire(
        alpha=samples.ping_s - message,
        message=message,
        beta=beta,
        gamma=max(0.0, _slope(samples.reduced) - beta),
    )


def _slope(points: Points) -> float:
    """Seconds per byte. Where noise makes larger messages no slower, the largest one's own time per byte."""
    if len({size for size, _ in points}) < 2:
        raise ValueError(f"a line needs two sizes, not {list(points)}")
    sizes, times = np.array(points).T
    slope = float(np.polyfit(sizes, times, 1)[0])
    largest = int(np.argmax(sizes))
    return slope if slope > 0 else float(times[largest] / sizes[largest])
