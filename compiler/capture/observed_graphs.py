"""The stages ``aten`` and ``passes`` of the real Inductor: the graph as it was lowered, before its passes, and what each pass changed."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch.fx import GraphModule

from compiler.capture.listing import Listing, describe, drawing, expression, listing
from compiler.capture.origins import OriginTable
from compiler.capture.places import Places
from compiler.observe.inductor_passes import Change, PassLog, Phase, Row, Rows
from compiler.recorder import Draft
from compiler.trace import Decision, Origin, Part

MAX_DIFFS = 400
CONTEXT = 3


@dataclass(frozen=True, slots=True)
class Before:
    """A part's graph as AOTAutograd gave it to Inductor, with the origins of its lines."""

    listing: Listing
    origins: tuple[Origin, ...]


def before_passes(gm: GraphModule, part: str, origins: OriginTable, notes: Mapping[str, str]) -> Before:
    return Before(listing(gm.graph, part, "", notes), tuple(origins[node.name] for node in gm.graph.nodes))


def describe_aten(draft: Draft, gm: GraphModule, part: Part, places: Places, before: Before | None, notes: Mapping[str, str]) -> None:
    """Fills in the stage. The second section's marks point behind the first section's origins."""
    shown = listing(gm.graph, part, "", notes)
    draft.origins = places.origins
    draft.section("ATen graph as lowered", shown.text, "python", shown.marks)
    if before is not None:
        offset = len(places.origins)
        draft.origins = (*places.origins, *before.origins)
        marks = [tuple(place + offset for place in line) for line in before.listing.marks]
        draft.section("ATen graph before Inductor's passes", before.listing.text, "python", marks)
    draft.drawing = drawing(gm.graph)
    inputs = sum(node.op == "placeholder" for node in gm.graph.nodes)
    draft.facts |= {"operations": sum(node.op.startswith("call") for node in gm.graph.nodes), "inputs": inputs}


def describe_passes(draft: Draft, log: PassLog, phases: Sequence[Phase], since: int = 0) -> None:
    """Fills in the stage with the changes of these phases, from the ``since``-th change of the log on."""
    changes = [change for change in log.changes[since:] if change.phase in phases]
    titles: dict[str, int] = {}
    for change in changes[:MAX_DIFFS]:
        text = diff_text(change.before, change.after)
        if not text:
            continue
        name = f"{change.phase}: {change.name}"
        titles[name] = titles.get(name, 0) + 1
        title = (name if titles[name] == 1 else f"{name} ({titles[name]})")[:400]
        draft.section(title, text, "diff")
        draft.decisions.append(_decision(title, change))
    if not draft.sections:
        draft.section("No changes", f"None of the passes changed the graph: {', '.join(phases)}.")
    changed = {(change.phase, change.name) for change in changes}
    ran = [key for key in log.ran if key[0] in phases]
    draft.facts |= {"passes_run": len(ran), "passes_that_changed_the_graph": len(changed), "changes": len(changes)}
    draft.facts |= {f"{phase}_ms": round(log.seconds[phase] * 1e3, 3) for phase in phases if phase in log.seconds}
    quiet = sorted({name for phase, name in ran if (phase, name) not in changed})
    draft.facts["changed_nothing"] = ", ".join(quiet)[:4_000] or "none"


def _decision(title: str, change: Change) -> Decision:
    names = [{row.name for row in rows} for rows in (change.before, change.after)]
    removed, added = len(names[0] - names[1]), len(names[1] - names[0])
    kept = {row.name: row for row in change.before}
    rewired = sum(row.name in kept and not row.same(kept[row.name]) for row in change.after)
    numbers: dict[str, Any] = {"nodes_removed": removed, "nodes_added": added, "nodes_rewired": rewired}
    if change.matches is not None:
        numbers["rewrites"] = change.matches
    what = f"replaced {change.matches} patterns" if change.matches else "changed the graph"
    return Decision(
        subject=title,
        verdict="noted",
        rule="pass",
        reason=f"The pass {what}: {removed} nodes removed, {added} added, {rewired} given other arguments."[:4_000],
        numbers=numbers,
    )


def diff_text(before: Rows, after: Rows) -> str:
    """A unified difference of the two graphs, "" if they read the same."""
    lines = difflib.unified_diff(row_lines(before), row_lines(after), "before", "after", n=CONTEXT, lineterm="")
    return "\n".join(lines)


def row_lines(rows: Rows) -> list[str]:
    return [row_text(row) for row in rows]


def row_text(row: Row) -> str:
    """A node as it was, written as in the listings of graphs."""
    if row.op == "placeholder":
        return f"{row.name},"
    if row.op == "output":
        return f"return {expression(row)[len('output(') : -1]}"  # type: ignore[arg-type]  # a row has what an expression is made of
    value = describe(row.node.meta.get("val", row.node.meta.get("example_value")))
    return f"{row.name} = {expression(row)}" + (f"  # {value}" if value else "")  # type: ignore[arg-type]
