"""The address book: what every rank says of itself first, and what follows from it for all of them alike."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from pycomm.errors import Mismatch
from pycomm.machine import kernel_of
from pycomm.offer import TOPOLOGY_FILE, Offer, joined
from pycomm.topo.topology import Place
from pycomm.wiring.choice import Railed

LOCAL_INDEX = "local index"


@dataclass(frozen=True)
class Entry:
    """One rank, as it describes itself."""

    rank: int
    version: str
    label: str  # of its node: PYCOMM_NODE, or the machine
    machine: str
    door: str  # name of its abstract Unix socket, "" if it has none
    pid: int
    cpus: list[int]  # that it may run on
    quota: float  # of CPUs; infinite without one
    rail: int | None  # PYCOMM_RAIL
    settings: dict[str, object]  # those that all must share
    nonce: str = ""  # rank 0's: makes the job's keys its own
    host: str = ""  # what its machine is called, for messages
    offer: dict[str, Any] = field(default_factory=dict)  # the NICs of its machine, packed

    def pack(self) -> bytes:
        """As JSON."""
        return json.dumps(asdict(self)).encode()


def merge(payloads: list[bytes]) -> bytes:
    """The address book out of all packed entries, made once, by rank 0. What many ranks say alike is in it
    once: `values` has each thing that any of them says, `rows` for each rank where its fields are among them.

    Raises:
        Mismatch: ranks run different versions or settings.
    """
    entries = [_unpack(payload) for payload in payloads]
    check_agreed(entries)
    values: dict[str, int] = {}
    rows = [
        [values.setdefault(json.dumps(value), len(values)) for value in vars(entry).values()]
        for entry in entries
    ]
    return json.dumps({"values": list(values), "rows": rows}, separators=(",", ":")).encode()


def read(book: bytes) -> list[Entry]:
    """The entries of an address book."""
    said = json.loads(book)
    values = json.loads(f"[{','.join(said['values'])}]")
    return [Entry(*[values[at] for at in row]) for row in said["rows"]]


def _unpack(payload: bytes) -> Entry:
    """Reads a packed entry; of another version only what both know. Raises Mismatch."""
    fields = json.loads(payload)
    try:
        return Entry(**{name: fields[name] for name in Entry.__dataclass_fields__})
    except (KeyError, TypeError):
        version = fields.get("version") if isinstance(fields, dict) else None
        raise Mismatch(
            f"init: a rank runs pycomm {version}, which speaks otherwise: install one version"
        ) from None


def check_agreed(entries: list[Entry]) -> None:
    """Raises Mismatch where versions or shared settings differ, such as "rank 9 runs 0.3.1, rank 0 0.4.0"."""
    first = entries[0]
    for entry in entries:
        if entry.version != first.version:
            raise Mismatch(
                f"init: rank {entry.rank} runs {entry.version}, rank 0 {first.version}: install one "
                f"version everywhere"
            )
        for name, value in entry.settings.items():
            if value != first.settings.get(name):
                raise Mismatch(
                    f"init: rank {entry.rank} has {name}={value}, rank 0 has {first.settings.get(name)}: "
                    f"it must be the same everywhere"
                )


def crowded(entries: list[Entry], rank: int) -> bool:
    """Whether the ranks that share this one's kernel, whatever their nodes, lack a CPU for each of them."""
    kernel = kernel_of(entries[rank].machine)
    sharing = [entry for entry in entries if kernel_of(entry.machine) == kernel]
    cpus = {cpu for entry in sharing for cpu in entry.cpus}
    return len(sharing) > min(len(cpus), *(entry.quota for entry in sharing))


def labelled(entries: list[Entry]) -> list[list[int]]:
    """The ranks of each label, by first appearance: nodes, if they can all map each other's memory."""
    groups: dict[str, list[int]] = {}
    for entry in entries:
        groups.setdefault(entry.label, []).append(entry.rank)
    return list(groups.values())


def machines(entries: list[Entry]) -> dict[str, Entry]:
    """The first rank of each machine."""
    found: dict[str, Entry] = {}
    for entry in entries:
        found.setdefault(entry.machine, entry)
    return found


def offers(entries: list[Entry]) -> dict[str, Offer]:
    """What each machine offers: all that its ranks do, who may each have been given NICs of their own."""
    found: dict[str, list[Offer]] = {}
    for entry in entries:
        found.setdefault(entry.machine, []).append(Offer.unpack(entry.offer))
    return {machine: joined(each) for machine, each in found.items()}


def places(
    entries: list[Entry], node_list: list[list[int]], shares: Sequence[Sequence[Railed]]
) -> list[Place]:
    """Every rank's node and rail. A node is called by its label; parts of a split one get a suffix. `shares`
    has the NICs of each rank; none in a job on one machine.
    """
    found: dict[int, Place] = {}
    seen: dict[str, int] = {}
    short = {machine: f"node{i}" for i, machine in enumerate(dict.fromkeys(e.machine for e in entries))}
    for ranks in node_list:
        label = entries[ranks[0]].label
        name = short.get(label, label)
        seen[name] = seen.get(name, 0) + 1
        if seen[name] > 1:
            name = f"{name}/{seen[name]}"
        for index, rank in enumerate(ranks):
            found[rank] = Place(name, *_rail(entries[rank], index, shares[rank]))
    return [found[rank] for rank in range(len(entries))]


def _rail(entry: Entry, index: int, share: Sequence[Railed]) -> tuple[int, str, int]:
    """The rail, where it comes from, and the number of NICs: the first that is known."""
    if share:
        said = share[0].nic.rail is not None
        return share[0].rail, TOPOLOGY_FILE if said else f"NIC {share[0].nic.name}", len(share)
    if entry.rail is not None:
        return entry.rail, "PYCOMM_RAIL", 1
    return index, LOCAL_INDEX, 1
