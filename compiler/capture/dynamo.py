"""The ``dynamo`` stage: what TorchDynamo captured of one region, what must hold for it, and why it ended."""

from __future__ import annotations

import linecache
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import FrameType

import torch
from torch.fx import Graph, GraphModule, Node

from compiler.capture.bytecode import resumed
from compiler.capture.listing import Listing, describe, listing, node_value
from compiler.capture.origins import OriginTable
from compiler.observe.dynamo_names import SymbolRow, frame_now
from compiler.observe.torch_names import Break, GuardRow
from compiler.recorder import Draft
from compiler.spans import SNIPPET
from compiler.trace import Decision, Origin

_OWN = re.compile(r"^_?[LG]_(?P<path>.*?)_*$")
OMITTED = (
    "Hint: ", "Developer debug context", "For more details", "Encountered graph break when attempting to trace",
    "Failed to handle graph break",
)  # fmt: skip
SKIPPED = "The function is not compiled: it runs in eager PyTorch."
QUIET_GUARDS = {
    "BUILTIN_MATCH", "MODULE_MATCH", "GLOBAL_STATE", "TORCH_FUNCTION_STATE", "AUTOGRAD_SAVED_TENSORS_HOOKS",
    "GRAD_MODE", "DEFAULT_DEVICE", "DETERMINISTIC_ALGORITHMS",
}  # fmt: skip


def readable_inputs(graph: Graph) -> dict[str, str]:
    """A name near to the visitor's own for each input, such as ``model_0_weight`` for ``G_model_modules_0_parameters_weight_``."""
    taken: set[str] = {node.name for node in graph.nodes if node.op != "placeholder"}
    names: dict[str, str] = {}
    for node in graph.nodes:
        if node.op != "placeholder":
            continue
        match = _OWN.match(str(node.target))
        path = re.sub(r"(^|_)(modules|parameters|buffers)_", r"\1", match["path"]) if match else node.name
        path = re.sub(r"(^|_)(modules|parameters|buffers)_", r"\1", path).removeprefix("self_").strip("_")
        plain = re.sub(r"\W+", "_", path) or node.name
        plain = plain if not plain[0].isdigit() else f"layer_{plain}"
        unique = plain
        for number in range(1, len(graph.nodes) + 2):
            if unique not in taken:
                break
            unique = f"{plain}_{number}"
        taken.add(unique)
        names[node.name] = unique
    return names


def title_of(gm: GraphModule, stopped: Break | None, origins: OriginTable) -> tuple[str, int]:
    """The function that a region came from, and its first line there."""
    lines = [origin.line for node in gm.graph.nodes if node.op not in ("placeholder", "output") and (origin := origins[node.name]).line]
    for node in gm.graph.nodes:
        for name in re.findall(rf'File "{re.escape(SNIPPET)}", line \d+, in (\S+)', node.meta.get("stack_trace") or "")[:1]:
            after = resumed(name)
            title = f"{after[0]}, after the break at line {after[1]}" if after else name
            return title, min(lines, default=0)
    if module := foreign_module():
        return module, called_at() or min(lines, default=0)
    for node in gm.graph.nodes:
        for _, kind in list((node.meta.get("nn_module_stack") or {}).values())[:1]:
            return str(getattr(kind, "__name__", kind)), min(lines, default=0) or called_at()
    for node in gm.graph.nodes:  # none of the code is the script's: an optimiser's step, say
        for file, name in re.findall(r'File "([^"]*)", line \d+, in (\S+)', node.meta.get("stack_trace") or "")[:1]:
            return f"{name} of {file.rpartition('/')[2]}", min(lines, default=0) or called_at()
    return "graph", (own_line(stopped.frames) if stopped else 0) or called_at()


def foreign_module() -> str:
    """The class of the module whose own code is being compiled, "" for other code: modules that it calls come first in the graph."""
    code, local = frame_now() or (None, {})
    if code is None:
        return ""
    first = local.get("self", local.get(code.co_varnames[0]) if code.co_varnames else None)
    module = first[0] if isinstance(first, tuple) and first else first  # a decorator's function takes it among its *args
    if not isinstance(module, torch.nn.Module):
        return ""
    after = resumed(code.co_name)
    return type(module).__name__ + (f", after the break at line {after[1]} of {os.path.basename(code.co_filename)}" if after else "")


def called_at() -> int:
    """The line of the snippet that is being executed, 0 if none is."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename != SNIPPET:
        frame = frame.f_back
    return frame.f_lineno if frame is not None else 0


class Places:
    """Positions in a stage's origins: those of the graph's nodes first, then one for each line of the snippet that is asked for."""

    def __init__(self, origins: Sequence[Origin]) -> None:
        self.origins = list(origins)
        self.lines: dict[int, int] = {}

    def at(self, line: int) -> tuple[int, ...]:
        """The position of a whole line; none for line 0."""
        if not line:
            return ()
        if line not in self.lines:
            self.lines[line] = len(self.origins)
            self.origins.append(Origin(line=line, end_line=line))
        return (self.lines[line],)


def own_line(frames: Sequence[tuple[str, int]]) -> int:
    """The innermost line of the snippet among frames, 0 if there is none."""
    return next((line for file, line in reversed(frames) if file == SNIPPET), 0)


def place_text(frames: Sequence[tuple[str, int]]) -> str:
    """The innermost place in words: a line of the snippet if there is one."""
    line = own_line(frames)
    return f"line {line}" if line or not frames else f"{frames[-1][0].rpartition('/')[2]}, line {frames[-1][1]}"


def graph_section(gm: GraphModule, device: str) -> Listing:
    """The graph as text, with marks by the position of each node."""
    return listing(gm.graph, "forward", device)


def describe_breaks(draft: Draft, places: Places, breaks: Sequence[Break], earlier: Sequence[Break] = ()) -> None:
    """Adds a decision and a paragraph for each graph break. ``earlier``: those just before, which left no graph of their own."""
    rows: list[tuple[str, tuple[int, ...]]] = []
    for stopped in (*earlier, *breaks):
        line, said = own_line(stopped.frames), Explained.of(stopped.reason)
        ended = "" if any(stopped is one for one in breaks) else " (before this graph; nothing was captured up to there)"
        rows += [("", ())] * bool(rows) + [(f"{place_text(stopped.frames)}: {said.headline}{ended}", places.at(line))]
        rows += [(f"  {text}", ()) for text in (said.explanation, *(f"hint: {hint}" for hint in said.hints)) if text]
        rows += [(f"  more: {link}", ()) for link in said.links]
        own = [number for file, number in stopped.frames if file == SNIPPET]
        rows += [("  reached by:", ())] * bool(own) + [
            (f"    line {number}: {source_line(number)}".rstrip(), places.at(number)) for number in own
        ]
        draft.decisions.append(
            Decision(
                subject=place_text(stopped.frames)[:400],
                verdict="refused",
                rule="graph_break",
                reason=said.sentence[:4_000],
                origins=places.at(line),
                numbers={"line": line, "hint": " ".join(said.hints)[:1_000], "more": " ".join(said.links)},
            )
        )
    text = "\n".join(text for text, _ in rows) or "None: the graph ends where the function returns."
    draft.section("Graph breaks", text, "text", [marks for _, marks in rows])


def source_line(number: int) -> str:
    return linecache.getline(SNIPPET, number).strip()


@dataclass(frozen=True, slots=True)
class Explained:
    """What Dynamo says of a graph break, taken apart, without what it adds for its own developers."""

    headline: str
    explanation: str
    hints: tuple[str, ...]
    links: tuple[str, ...]

    @staticmethod
    def of(reason: str) -> Explained:
        """Dynamo's own words: a headline, paragraphs that begin with their kind, and the same again for what followed from it."""
        links = tuple(dict.fromkeys(re.findall(r"please visit: (\S+)", reason)))
        hints = [row.strip().removeprefix("Hint: ") for row in reason.splitlines() if row.strip().startswith("Hint: ")]
        told: list[tuple[str, str]] = []
        for part in re.split(r"\*\*\* While handling this graph break, another graph break occurred: \*\*\*", reason):
            rows = [row.strip() for row in part.splitlines() if row.strip() and not row.strip().startswith(OMITTED)]
            told.append((rows[0] if rows else "unknown", " ".join(row.removeprefix("Explanation: ") for row in rows[1:])))
        later = [f"Then: {headline}. {explanation}" for headline, explanation in told[1:]]
        ending = [SKIPPED] if "Skipping the function" in reason else []
        useful = tuple(dict.fromkeys(hint for hint in hints if "report an issue" not in hint))
        return Explained(told[0][0], " ".join([told[0][1], *later, *ending]).strip(), useful, links)

    @property
    def sentence(self) -> str:
        """All of it in one row."""
        parts = [self.headline.rstrip("."), self.explanation.rstrip("."), *(f"Hint: {hint}".rstrip(".") for hint in self.hints)]
        return ". ".join(part for part in parts if part)


def describe_guards(draft: Draft, places: Places, guards: Sequence[GuardRow], nodes: Sequence[Node]) -> None:
    """Adds the guards, one a line: first those that name the visitor's values, each with the line that needs it."""
    tensors = {_plain(str(node.target)): node for node in nodes if node.op == "placeholder"}
    loud = [row for guard in guards if guard.kind not in QUIET_GUARDS for row in _guard_lines(guard, tensors)]
    quiet = [row for guard in guards if guard.kind in QUIET_GUARDS for row in _guard_lines(guard, tensors)]
    rows = list(dict.fromkeys(loud))
    if quiet:
        rows += [("", 0), ("# About Python and PyTorch themselves:", 0), *dict.fromkeys(quiet)]
    draft.section("Guards", "\n".join(text for text, _ in rows) or "None.", "text", [places.at(line) for _, line in rows])


def _plain(name: str) -> str:
    """The name of a source or an input, however it is written: ``L['x']`` and ``L_x_`` are the same."""
    return re.sub(r"[\W_]+", "_", name).strip("_").lower()


def _guard_lines(guard: GuardRow, tensors: Mapping[str, Node]) -> list[tuple[str, int]]:
    subject = guard.subject if guard.subject not in ("", "None") else "global"
    line = own_line(guard.frames)
    details = ["; ".join(guard.code)]
    if guard.kind == "TENSOR_MATCH":
        node = tensors.get(_plain(subject))
        value = node_value(node) if node else None
        if isinstance(value, torch.Tensor):
            details = [describe(value) + (", requires grad" if value.requires_grad else "")]
    elif guard.kind == "SHAPE_ENV":
        subject, details = "sizes", list(guard.code)
    ending = f"  # line {line}" if line else ""
    return [(f"{guard.kind:<24} {subject}" + (f"  is  {detail}" if detail else "") + ending, line) for detail in details]


def describe_symbols(draft: Draft, places: Places, symbols: Sequence[SymbolRow]) -> None:
    """Adds the sizes and numbers that were left open, with what was decided about them, and those of them that became constants."""
    rows: list[tuple[str, tuple[int, ...]]] = []
    for symbol in symbols:
        first, *others = symbol.sources or ("a value that only a run will know",)
        known = "".join([f", {symbol.hint} in this call" if symbol.hint else "", f", {symbol.range}" if symbol.range else ""])
        rows.append((f"{symbol.name} = {first}{known}", ()))
        rows += [(f"    the same symbol, since equal in this call: {other}", ()) for other in others]
        for fact in symbol.facts:
            line = own_line(fact.frames)
            rows.append((f"    guard: {fact.text}" + (f"  # line {line}" if line else ""), places.at(line)))
        if symbol.value:
            line = own_line(symbol.decided)
            kind = "made the constant" if symbol.constant else "replaced by"
            rows.append((f"    {kind} {symbol.value}" + (f"  # line {line}" if line else ""), places.at(line)))
    text = "\n".join(text for text, _ in rows) or "None: every size and number in this graph is a constant."
    draft.section("Symbols", text, "text", [marks for _, marks in rows])
    draft.facts["symbols"] = len(symbols)
