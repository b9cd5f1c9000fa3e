"""A plan in words and figures, for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from itertools import groupby
from typing import TYPE_CHECKING

from pycomm.topo.candidate import Candidate, unlike
from pycomm.topo.outline import BY_BLOCK
from pycomm.topo.profile import PICOSECONDS
from pycomm.topo.rails import rail_groups
from pycomm.topo.units import bytes_text, counted, time_text

if TYPE_CHECKING:
    from pycomm.topo.outline import Phase
    from pycomm.topo.plan import Plan

MAX_NODES_SHOWN = 8
MAX_RAILS_SHOWN = 8
MAX_NEAREST_SHOWN = 3
MAX_RELAYS_SHOWN = 6
BAR_CELLS = 24
LATENCY_BOUND = 20  # times the bound above which a plan is about latency


def explain(plan: Plan) -> str:
    """The whole text: what is done where and when, its bytes, its proof, why it was chosen, what lost."""
    parts = (_head(plan), _map(plan), _phases(plan), _bytes(plan), _facts(plan), _rivals(plan))
    return "\n\n".join("\n".join(line.rstrip() for line in part) for part in map(list, parts) if part)


def _head(plan: Plan) -> Iterator[str]:
    request, topology = plan.request, plan.topology
    widths = request.widths
    size = "" if request.collective == "barrier" else f" of up to {bytes_text(request.bucket_bytes)}"
    if request.moves in BY_BLOCK and topology.world_size > 1:
        size += f" ({counted(topology.world_size, 'block')})"
    kind = f", {widths.storage}-byte elements" if size else ""
    if widths.partial != widths.storage:
        kind += f" whose incomplete sums take {widths.partial} bytes and are rounded once"
    where = f"{counted(topology.world_size, 'rank')} on {counted(len(topology.nodes), 'node')}"
    yield f"{plan.collective}{size} · {where}{kind}"
    cut = f" · {counted(plan.channels, 'channel')}" if plan.channels > 1 else ""
    yield f"{plan.algorithm}{cut}"
    yield _against_bound(plan)


def _against_bound(plan: Plan) -> str:
    predicted = f"predicted {time_text(plan.predicted_s)}"
    if plan.bound.ps == 0:
        return predicted
    times = plan.predicted_s / plan.bound_s
    if times > LATENCY_BOUND:
        return f"{predicted}, nearly all of it latency: the bytes alone need {time_text(plan.bound_s)}"
    return f"{predicted}, {times:.2f} × the bound of {time_text(plan.bound_s)} that {plan.bound.by} set"


# -- where everybody is ----------------------------------------------------------------------------


def _map(plan: Plan) -> Iterator[str]:
    """Nodes down, rails across, ranks inside; in brackets those that own no share."""
    topology = plan.topology
    if len(topology.nodes) > MAX_NODES_SHOWN or len(topology.rails) > MAX_RAILS_SHOWN:
        yield f" {topology!r}"
        return
    idle = _shareless(plan)
    rows = [["", *(f"rail {rail}" for rail in topology.rails)]]
    for node in topology.nodes:
        here = {rail: [rank for rank in node if topology.rail_of(rank) == rail] for rail in topology.rails}
        cells = [" ".join(f"({r})" if r in idle else str(r) for r in ranks) for ranks in here.values()]
        rows.append([topology.places[node[0]].node, *(cell or "·" for cell in cells)])
    yield from _table(rows, "<" + ">" * len(topology.rails))
    sources = sorted({place.rail_source for place in topology.places})
    brackets = "; (r) owns no share" if idle else ""
    nics = sorted({place.nics for place in topology.places})
    striped = (
        f"; striped over {'-'.join(map(str, nics[:: max(1, len(nics) - 1)]))} NICs" if nics != [1] else ""
    )
    yield f" rails by {', '.join(sources)}{striped}{brackets}"


def _shareless(plan: Plan) -> tuple[int, ...]:
    outline = plan.choice.chosen.outline
    return rail_groups(plan.topology).relays if len(outline.levels) > 1 and outline.form != "led" else ()


# -- what is done, and when ------------------------------------------------------------------------


def _phases(plan: Plan) -> Iterator[str]:
    rows = [["phase", "", "", "", "steps", "bytes a rank", "time"]]
    for i, each in enumerate(plan.phases):
        teams = each.phase.teams
        sizes = sorted({len(team.ranks) for team in teams})
        groups = f"{len(teams)} × {'-'.join(map(str, sizes[:: max(1, len(sizes) - 1)]))}"
        branch = "└─" if i == len(plan.phases) - 1 else "├─"
        rows.append(
            [
                f"{branch} {_place(plan, each.phase)}",
                each.phase.op,
                "" if each.algorithm == "sends" else each.algorithm,
                groups,
                str(each.work.steps),
                bytes_text(each.work.bytes),
                time_text(each.predicted_s),
            ]
        )
    yield from _table(rows, "<<<>>>>")
    serial = sum(each.predicted_s for each in plan.phases)
    if plan.channels > 1 and len(plan.phases) > 1:
        hidden = f"{plan.channels} channels overlap what the nodes and the network do"
        yield f" {time_text(serial)} one after another; {hidden}: {time_text(plan.predicted_s)}"


def _place(plan: Plan, phase: Phase) -> str:
    if phase.level == "rail":
        rails = ({plan.topology.rail_of(rank) for rank in team.ranks} for team in phase.teams)
        return "along rails" if all(len(each) == 1 for each in rails) else "between nodes"
    return "inside nodes" if phase.level == "local" else "all ranks"


# -- what is sent ----------------------------------------------------------------------------------


def _bytes(plan: Plan) -> Iterator[str]:
    """Bytes by all ranks together; a bar for each rail shows whether they are even."""
    if plan.collective == "barrier":
        yield " no bytes: a barrier's messages are headers"
        return
    traffic = plan.traffic
    sent = traffic.bytes
    rows = [["bytes of all ranks", "", ""], ["inside nodes", bytes_text(traffic.within(sent)), ""]]
    if len(plan.topology.nodes) > 1:
        along = traffic.along(sent)
        most = max(along.values())
        for label, each in _rail_labels(list(along.items())):
            rows.append([label, bytes_text(each), "█" * round(BAR_CELLS * each / most) if most else ""])
        pairs = ", ".join(f"{a}→{b}" for a, b in traffic.crossing[:MAX_RELAYS_SHOWN])
        more = ", …" if len(traffic.crossing) > MAX_RELAYS_SHOWN else ""
        declared = f"declared: {pairs}{more}" if pairs else ""
        rows.append(["across rails", bytes_text(traffic.across(sent)), declared])
    yield from _table(rows, "<><")


def _rail_labels(along: Sequence[tuple[int, Fraction]]) -> Iterator[tuple[str, Fraction]]:
    """Rails by name; those beside each other as one line if they carry nothing, or there are many of them."""
    for amount, run in groupby(along, key=lambda pair: pair[1]):
        rails = [rail for rail, _ in run]
        if len(rails) > 1 and (amount == 0 or len(along) > MAX_RAILS_SHOWN):
            yield f"rails {rails[0]}-{rails[-1]}, each", amount
        else:
            yield from ((f"rail {rail}", amount) for rail in rails)


# -- what else there is to say ---------------------------------------------------------------------


def _facts(plan: Plan) -> Iterator[str]:
    rows = []
    if len(plan.topology.nodes) > 1:
        rows.append(["relayed", _relayed(plan)])
    rows += [["proof" if i == 0 else "", text] for i, text in enumerate(_proof(plan))]
    rows.append(["why", f"{plan.choice.why} (policy {plan.choice.policy})"])
    yield from _table(rows, "<<")


def _relayed(plan: Plan) -> str:
    chosen = plan.choice.chosen
    if chosen.outline.form == "led":
        leaders = next(each.phase.teams[0].ranks for each in plan.phases if each.phase.level == "rail")
        return f"all that enters or leaves a node, by its leader: rank {_some(leaders)}"
    pairs = sorted(
        (team.ranks[max(a, b)], team.ranks[min(a, b)])
        for each in plan.phases
        if each.phase.op == "relay"
        for team in each.phase.teams
        for a, b, _ in team.moves
    )
    if pairs:
        return _some(f"rank {rank} by rank {owner}" for rank, owner in pairs)
    idle = _shareless(plan)
    if idle:
        own = "rank {} owns" if len(idle) == 1 else "ranks {} own"
        return f"{own.format(_some(idle))} no share; an owner on its node stands in for each"
    return "nothing"


def _proof(plan: Plan) -> Iterator[str]:
    proof = plan.proof
    if proof is None:
        yield "none of its own: above 64 ranks only the algorithms are proved"
        return
    steps, messages = counted(proof.steps, "step"), counted(proof.messages, "message")
    bits = ", the same bits on every rank" if proof.same_bits and plan.request.moves == "all_reduce" else ""
    yield f"{steps} and {messages} run on symbols: the result is right{bits}"
    if len(plan.topology.nodes) > 1:
        yield "no byte crosses a rail" if proof.cross_rail == 0 else "only the declared pairs cross rails"


def _rivals(plan: Plan) -> Iterator[str]:
    """The other ways, nearest first; those that were cheaper say why they lost."""
    chosen = plan.choice.chosen
    shown = _nearest(plan)
    own = plan.traffic.across(plan.traffic.bytes)
    if shown and chosen.ps:
        rows = [["others", "channels", "time", "", "across rails", ""]]
        for each in shown:
            sent = each.traffic(plan.request)
            crossing = sent.across(sent.bytes)
            more = 100 * (each.ps - chosen.ps) / chosen.ps
            rows.append(
                [
                    f"  {each.name}",
                    str(each.channels),
                    time_text(each.ps / PICOSECONDS),
                    "=" if abs(more) < 0.05 else f"{more:+.0f} %" if abs(more) >= 10 else f"{more:+.1f} %",
                    bytes_text(crossing) if plan.collective != "barrier" else "yes" if crossing else "no",
                    "" if each.ps > chosen.ps else _verdict(plan, crossing > own),
                ]
            )
        yield from _table(rows, "<>>>><")
    yield from _cost_of_choice(plan)


def _nearest(plan: Plan) -> list[Candidate]:
    """The nearest few, and of each form the best: they would otherwise all be of the chosen one's kind."""
    others = [each for each in unlike(plan.choice.candidates) if each.name != plan.choice.chosen.name]
    flat = [each for each in others if each.outline.form == "flat"]
    led = [each for each in others if each.outline.form == "led"]
    shown = {each.name for each in (*others[:MAX_NEAREST_SHOWN], *led[:1], *flat)}
    return [each for each in others if each.name in shown]


def _verdict(plan: Plan, crosses_more: bool) -> str:
    if plan.request.algorithm is not None:
        return "not asked for"
    return "crosses rails" if crosses_more else "as fast, later by name"


def _cost_of_choice(plan: Plan) -> Iterator[str]:
    """What keeping to the rails costs, or what the planner would rather have done."""
    choice = plan.choice
    if plan.request.algorithm is not None:
        own = choice.preferred
        if own.name != choice.chosen.name:
            yield f" asked for; the planner's own choice is {own.name}, {time_text(own.ps / PICOSECONDS)}"
        return
    if len(plan.topology.nodes) == 1 or choice.policy == "cheapest":
        return
    best = choice.candidates[0]
    if best.ps == choice.chosen.ps:
        yield " rail-first costs nothing: no other plan is predicted to be faster"
        return
    extra = choice.chosen.ps - best.ps
    percent = 100 * extra / best.ps
    costs = f"{time_text(extra / PICOSECONDS)} ({percent:.0f} %)"
    yield f" rail-first costs {costs} against {best.name}, which crosses rails"


def _some(words: Iterable[object]) -> str:
    listed = [str(word) for word in words]
    more = len(listed) - MAX_RELAYS_SHOWN
    return ", ".join(listed[:MAX_RELAYS_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _table(rows: Sequence[Sequence[str]], align: str) -> Iterator[str]:
    """Rows of cells in columns as wide as their widest cell; a space on the left."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(align))]
    for row in rows:
        cells = (f"{cell:{side}{width}}" for cell, side, width in zip(row, align, widths, strict=True))
        yield " " + "  ".join(cells)
