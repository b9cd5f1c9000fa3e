"""`PYCOMM_NIC`: which network interfaces a person names, in the syntax of NCCL_SOCKET_IFNAME.

    eth,ib        those whose names begin with one of the prefixes
    =eth0,eth1    exactly these
    ^lo,docker    all but those whose names begin with one of the prefixes
    ^=eth0        all but exactly these

Source: "NCCL_SOCKET_IFNAME", https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html
"""

from __future__ import annotations

from dataclasses import dataclass

from pycomm.errors import InvalidArgument

NAME_LIMIT = 15  # characters of an interface's name: IFNAMSIZ - 1, linux/if.h
FORMS = "write prefixes (eth,ib), exact names (=eth0,eth1), or either after ^ for all but those (^lo,docker)"


@dataclass(frozen=True)
class NicFilter:
    """A parsed PYCOMM_NIC; `str` gives it back.

    Attributes:
        names: Prefixes, or whole names where `exact`.
        exact: Whether a name must be equal, not only begin alike.
        excludes: Whether those that match are left out.
    """

    names: tuple[str, ...]
    exact: bool = False
    excludes: bool = False

    @classmethod
    def parse(cls, text: str) -> NicFilter:
        """Reads the setting. Raises InvalidArgument, which says what is wrong and what can be written."""
        rest = text.strip()
        excludes = rest.startswith("^")
        rest = rest.removeprefix("^")
        exact = rest.startswith("=")
        names = tuple(name.strip() for name in rest.removeprefix("=").split(","))
        for name in names:
            _check(name)
        return cls(names, exact, excludes)

    def picks(self, name: str) -> bool:
        """Whether an interface of this name may be used."""
        found = name in self.names if self.exact else name.startswith(self.names)
        return found != self.excludes

    def names_exactly(self, name: str) -> bool:
        """Whether this very name is asked for: the only way to loopback."""
        return self.exact and not self.excludes and name in self.names

    def __str__(self) -> str:
        return "^" * self.excludes + "=" * self.exact + ",".join(self.names)


def _check(name: str) -> None:
    if not name:
        raise InvalidArgument(f"a name is missing: {FORMS}")
    if name[0] in "^=":
        raise InvalidArgument(f"{name[0]} stands once, before all names, as ^ or = or ^=: {FORMS}")
    bad = [c for c in name if c in "/:" or c.isspace() or not c.isprintable()]
    if bad:
        raise InvalidArgument(f"{name!r}: no interface has {bad[0]!r} in its name; {FORMS}")
    if len(name) > NAME_LIMIT:
        raise InvalidArgument(f"{name!r} is longer than an interface's name can be, {NAME_LIMIT} characters")
