"""The stages ``loops`` and ``fusion`` of the real Inductor: its loops before and after, and every pair that its scheduler looked at."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal

from compiler.capture.observed_calls import call_decision
from compiler.capture.places import Places, every_view, line_marks
from compiler.observe.inductor_loops import Line, View, is_extern_call, print_view
from compiler.observe.inductor_scheduler import FusionLog, Pair
from compiler.recorder import Draft
from compiler.stats import is_fallback
from compiler.target import Target
from compiler.trace import Decision, Drawing, Edge, Node, Scalar

MAX_DECISIONS = 8_000
MAX_ORIGINS = 40
"""Of one decision: a fused node of a large model stands for hundreds of nodes, and an event of the trace is bounded."""
_BENCHMARK = re.compile(r"(can|cannot) fuse \(benchmark\): fusing (.*) with (.*) cause ([\d.]+)x (speedup|slowdown)")


def describe_loops(draft: Draft, before: Sequence[View], places: Places, target: Target) -> None:
    """Fills in the stage: the loops, and why the other ops are calls."""
    draft.origins = places.origins
    _section(draft, "Loops before fusion", before, places)
    draft.decisions = [call_decision(view, places, target) for view in before if is_extern_call(view)][:MAX_DECISIONS]
    fallbacks = [str(decision.numbers.get("op")) for decision in draft.decisions if is_fallback(decision)]
    draft.facts |= {
        "nests": sum(view.body is not None for view in before),
        "extern_calls": sum(map(is_extern_call, before)),
        "fallback_kernels": len(fallbacks),
        "loops": len(before),
    }
    if fallbacks:
        draft.facts["fallback_ops"] = ", ".join(dict.fromkeys(fallbacks))[:400]


def describe_fusion(draft: Draft, log: FusionLog, before: Sequence[View], after: Sequence[View], places: Places, lacking: str) -> None:
    """Fills in the stage: the nodes that are left, and every pair of every round. ``lacking``: why the pairs are not known, if so."""
    draft.origins = places.origins
    _section(draft, "Loops after fusion", after, places)
    if lacking:
        draft.section("Pairs", lacking)
    draft.facts |= {"nodes": len(before), "groups": len(after)}
    draft.drawing = fusion_drawing(before, after, places)
    if lacking:
        return
    views = every_view([*before, *after])
    pairs = list(log.pairs.values())
    draft.decisions = [decision_of(pair, log, views, places) for pair in listed(pairs)]
    if len(pairs) > MAX_DECISIONS:
        draft.facts["pairs_not_listed"] = len(pairs) - MAX_DECISIONS
    draft.decisions += [found for line in log.lines if (found := benchmarked(line)) is not None]
    draft.section("Fusion log", "\n".join(log.lines))
    draft.facts |= {
        "rounds": log.round,
        "pairs": len(pairs),
        "fused": log.fusions,
        "fusions": log.fusions,
        "refusals_said": log.refusals,
        "possible_fusions": ", ".join(map(str, log.possible)),
    }
    if log.reorder_rounds:
        draft.facts["rounds_that_may_reorder_loops"] = ", ".join(map(str, log.reorder_rounds))


def _section(draft: Draft, title: str, views: Sequence[View], places: Places) -> None:
    lines: list[Line] = []
    for view in views:
        lines += [*print_view(view), Line("")]
    draft.section(title, "\n".join(line.text for line in lines), "python", line_marks(lines, every_view(views), places))


def listed(pairs: Sequence[Pair]) -> list[Pair]:
    """The pairs in their order; where they are too many, refused ones are left out first."""
    if len(pairs) <= MAX_DECISIONS:
        return list(pairs)
    ranked = sorted(range(len(pairs)), key=lambda place: (not pairs[place].fused, not pairs[place].legal, place))
    return [pairs[place] for place in sorted(ranked[:MAX_DECISIONS])]


def decision_of(pair: Pair, log: FusionLog, views: dict[str, View], places: Places) -> Decision:
    verdict: Literal["fused", "lost", "refused"] = "fused" if pair.fused else "lost" if pair.legal else "refused"
    said = {
        "fused": "Inductor may fuse them, and did.",
        "lost": f"Inductor may fuse them, but did not: {why_lost(pair, log)}.",
        "refused": pair.reason or "Inductor's can_fuse refused without a reason.",
    }
    rule = "score_fusion" if verdict != "refused" else re.sub(r"\W+", "_", pair.reason.split(":")[0])[:60].strip("_") or "can_fuse"
    sides = [_members(name, views) for name in (pair.first, pair.second)]
    buffers = [", ".join(name for view in side for name in view.buffers) for side in sides]
    origins = places.marks(name for side in sides for view in side for name in view.origins)[:MAX_ORIGINS]
    numbers: dict[str, Scalar] = dict(pair.score)
    if any(buffers):
        numbers["buffers"] = " + ".join(text[:180] for text in buffers)
    return Decision.model_validate({
        "subject": f"{pair.first} + {pair.second}"[:400], "verdict": verdict, "rule": rule, "reason": said[verdict][:4_000],
        "numbers": numbers, "round": pair.round, "origins": origins,
    })  # fmt: skip


def why_lost(pair: Pair, log: FusionLog) -> str:
    """What kept a legal pair apart, as far as the scheduler's calls tell."""
    if pair.why:
        return pair.why
    moved = [(name, log.became[pair.round, name]) for name in (pair.first, pair.second) if (pair.round, name) in log.became]
    if moved:
        return " and ".join(f"{name} had become part of {into}" for name, into in moved) + " in the same round"
    if not pair.candidate:
        return "it was not among the candidates of the round, which are the pairs of the highest priority"
    return "the scheduler gives no reason"


def _members(name: str, views: dict[str, View]) -> list[View]:
    """The nodes that a name stands for: fused nodes are called by the names of their members."""
    if name in views:
        view = views[name]
        return list(view.members) or [view]
    return [views[part] for part in name.split("_") if part in views]


def benchmarked(line: str) -> Decision | None:
    """The decision that a line of the log tells of a benchmarked fusion, None for other lines."""
    found = _BENCHMARK.match(line)
    if found is None:
        return None
    sides = [", ".join(re.findall(r"\w+\d+", side)) or side for side in (found[2], found[3])]
    said = "apart, they take" if found[5] == "speedup" else "fused, they take"
    return Decision(
        subject=" + ".join(sides)[:400],
        verdict="noted",
        rule="benchmark_fusion",
        reason=f"Inductor measured both ways: {said} {found[4]} times as long.",
        numbers={found[5]: float(found[4])},
    )


def kernel_of(members: Iterable[str], groups: Sequence[View]) -> View | None:
    """The scheduled node that a kernel with these members computes."""
    wanted = set(members)
    return next((group for group in groups if wanted and wanted <= {part.name for part in group.parts}), None)


def fusion_drawing(before: Sequence[View], after: Sequence[View], places: Places) -> Drawing | None:
    """The nodes before fusion as boxes, grouped by the node that they became; an edge for each buffer that one reads of another."""
    if len(before) > 1_000:
        return None
    group_of = {part.name: view.name for view in after if view.members for part in view.parts}
    writers = {buffer: view.name for view in before for buffer in view.buffers}
    boxes = [
        Node(
            id=view.name[:400],
            label=f"{view.name}\n{', '.join(view.origins[:4])}"[:4_000],
            kind="op" if view.body is not None else "extern",
            group=group_of.get(view.name, "")[:400],
            origins=places.marks(view.origins),
        )
        for view in before
    ]
    edges = [
        Edge(source=writers[name][:400], target=view.name[:400], label=name[:400])
        for view in before
        for name in view.reads
        if name in writers and writers[name] != view.name
    ]
    return Drawing(nodes=tuple(boxes), edges=tuple(edges[:6_000]))


def kernel_facts(view: View | None) -> dict[str, Scalar]:
    """What Inductor counts of a scheduled node."""
    if view is None:
        return {}
    facts: dict[str, Scalar] = {}
    for name, value in (("bytes_read", view.read_bytes), ("bytes_written", view.written_bytes)):
        if isinstance(value, int):
            facts[name] = value
    if len(facts) == 2:
        facts["bytes"] = (view.read_bytes or 0) + (view.written_bytes or 0)
    return facts
