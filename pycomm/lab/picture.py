"""A lab drawn in text."""

from __future__ import annotations

from pycomm.lab.layout import Layout, host_name
from pycomm.lab.rates import rate_text

MOST_COLUMNS = 12  # of hosts; more are said in words


def picture(lab: Layout) -> str:
    """The hosts as columns, the rails as lines, with a dot where a host has a NIC.

               h0    h1    h2
        ┌ leaf0 ●─────●─────●   rail 0: nic0, 10.77.0.0/24
    spine
        └ leaf1 ●─────●─────┘   …
    """
    shown = range(min(lab.hosts, MOST_COLUMNS))
    head = " " * 17 + "".join(f"{host_name(host):<6}" for host in shown)
    if lab.hosts > len(shown):
        head += f"… {host_name(lab.hosts - 1)}"
    lines = [head.rstrip()]
    for rail in range(lab.leaves):
        on_it = [lab.rails[host] > rail for host in shown]
        last = max(host for host in range(lab.hosts) if lab.rails[host] > rail)
        wire = "".join(
            ("●" if there else "─" if host < last else " ") + ("─" * 5 if host < last else " " * 5)
            for host, there in zip(shown, on_it, strict=True)
        )
        note = f"rail {rail}: nic{rail}, 10.77.{rail}.0/24"
        lines.append(f" {_trunk(rail, lab.leaves)} leaf{rail:<2} ── {wire} {note}")
    return "\n".join([*lines, *_words(lab)])


def _trunk(rail: int, leaves: int) -> str:
    """The part of the spine that stands left of a leaf."""
    name = "spine" if rail == (leaves - 1) // 2 else "     "
    if leaves == 1:
        return f"{name} ─"
    return f"{name} {'┌' if rail == 0 else '└' if rail == leaves - 1 else '├'}"


def _words(lab: Layout) -> list[str]:
    return [
        f" each NIC {rate_text(lab.rate_mbit)}, each leaf's up-link to the spine "
        f"{rate_text(lab.spine_mbit)}, both each way",
        " eth0 of every host, 10.76.0.0/16: management, not shaped",
    ]
