"""What can go wrong, as types. Every message says who, what, where, and what to do about it."""


class Error(Exception):
    """Every error that pycomm raises on purpose."""


class InvalidArgument(Error, ValueError):
    """The call itself is wrong: a shape, a dtype, a root, a closed communicator. Nothing was sent."""


class TimedOut(Error, TimeoutError):
    """A deadline passed; the text names the ranks that were waited for."""


class PeerLost(Error, ConnectionError):
    """A rank that was needed has died, left or cannot be reached."""


class Mismatch(Error):
    """Ranks disagree: about the request, the version of pycomm, or a setting that all must share."""


class Unsupported(Error):
    """A right request that pycomm cannot do here; the text says what can be done instead."""


def ranks_text(ranks: list[int]) -> str:
    """Such as "rank 3", "ranks 3 and 5", "ranks 1, 2 and 5"."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return "ranks " + ", ".join(map(str, ranks[:-1])) + f" and {ranks[-1]}"
