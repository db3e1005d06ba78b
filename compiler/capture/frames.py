"""The ``dynamo`` stage of each region: emitted when its graph is captured, and again with bytecode when Dynamo is done with the frame."""

from __future__ import annotations

import ast
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType

import torch
from torch.fx import GraphModule, Node

from compiler.capture.bytecode import disassembly, resumed
from compiler.capture.dynamo import (
    Explained,
    Places,
    describe_breaks,
    describe_guards,
    describe_symbols,
    graph_section,
    own_line,
    place_text,
    readable_inputs,
    title_of,
)
from compiler.capture.listing import Listing, drawing, node_value
from compiler.capture.origins import OriginTable, dynamo_origins
from compiler.observe.dynamo_names import FrameLog, SymbolRow, Tracing, compile_id, sizes_are_constants, tracing_now
from compiler.observe.torch_names import Break, GuardRow, graph_break
from compiler.recorder import Draft, Recorder
from compiler.spans import SNIPPET, Span
from compiler.trace import Decision, Drawing, Origin, Problem

MAX_CONSTANTS = 50
STATIC = (
    "Dynamo takes sizes as constants the first time that it compiles a frame, and leaves those open that differ at a later call. "
    "dynamic=True, or torch._dynamo.mark_dynamic(tensor, dimension), leaves them open at once."
)
NEVER_OPEN = "dynamic=False: every size is a constant, and a call with another size compiles the frame again."
ZERO_ONE = "A size of 0 or 1 is always a constant, since broadcasting depends on it: another size compiles the frame again."
TRACED_ANEW = (
    "While this graph was compiled, something that was left open proved to be a constant: Dynamo dropped it and traced the frame anew."
)
NUMBER = "Dynamo takes a number of Python as a constant the first time that it compiles a frame: another value compiles the frame again."


@dataclass(slots=True)
class Captured:
    """One graph of Dynamo's: its number, where its nodes come from, and what its ``dynamo`` stage is made of."""

    region: int
    graph: GraphModule
    origins: OriginTable
    compile_id: str
    tracing: Tracing
    device: str
    stopped: tuple[Break, ...]
    nodes: tuple[Node, ...]  # as captured: a graph that is traced anew has lost some by then
    places: tuple[Origin, ...]  # of ``nodes``
    sizes: tuple[bool, bool] = (True, True)  # constants at first; left open once they change
    earlier: tuple[Break, ...] = ()
    extra: list[Decision] = field(default_factory=list)
    shown: Listing | None = None
    drawing: Drawing | None = None
    millis: float = 0.0
    guards: tuple[GuardRow, ...] = ()
    symbols: tuple[SymbolRow, ...] = ()
    spent: tuple[str, int] | None = None  # the limit on compiling again that a later call hit, and its value
    spent_reason: str = ""
    given: str = ""  # what the script itself told torch.compile
    given_up: bool = False  # Dynamo traced the frame anew after this graph had been handed over

    @property
    def times(self) -> int:
        """How often the frame had been compiled before."""
        return int(self.compile_id.rpartition("/")[2] or 0) if self.compile_id else 0

    @property
    def frame(self) -> str:
        return self.compile_id.rpartition("/")[0]


@dataclass(slots=True)
class Frames:
    """The regions of a run by the frames that they came from. ``log`` is filled by ``watching_frames``; without that, stages say less."""

    recorder: Recorder
    log: FrameLog = field(default_factory=FrameLog)
    captured: list[Captured] = field(default_factory=list)
    given: str = ""  # what the script told the torch.compile that is at work
    told: set[str] = field(default_factory=set)  # the frames whose breaks are in a stage

    def __post_init__(self) -> None:
        self.log.told = self._told

    def capture(self, gm: GraphModule, modules: Mapping[str, Span], device: str = "", extra: Sequence[Decision] = ()) -> Captured:
        """Announces the region of a graph that Dynamo hands to a backend right now, and emits its stage. ``extra``: decisions to be added.

        ``device`` stands for the tensors' own if given.
        """
        start = time.perf_counter()
        origins = dynamo_origins(gm.graph, modules)
        frame = compile_id()
        reason = graph_break(gm)
        stopped = tuple(self.log.breaks.get(frame, ())) or ((reason,) if reason else ())
        given_up = next((one for one in self.captured if frame and one.compile_id == frame and not one.given_up), None)
        number = self.recorder.region(*title_of(gm, reason, origins), again=given_up is not None)
        if given_up is not None:
            given_up.given_up = True
            self._emit(given_up)
            self.recorder.skip_rest(given_up.region, f"{TRACED_ANEW} It is region {number}.")
        nodes = tuple(gm.graph.nodes)
        places = tuple(origins[node.name] for node in nodes)
        made = Captured(
            number,
            gm,
            origins,
            frame,
            tracing_now(),
            device,
            stopped,
            nodes,
            places,
            sizes_are_constants(),
            self._untold(frame),
            list(extra),
        )
        made.given = self.given
        made.shown, made.drawing = graph_section(gm, device), drawing(gm.graph, device)
        self.captured.append(made)
        made.millis = (time.perf_counter() - start) * 1e3
        self._emit(made)
        return made

    def gave_up(self) -> Problem | None:
        """The graph break for which Dynamo captured nothing at all, None if it captured something or met none."""
        frame = next((frame for frame, breaks in self.log.breaks.items() if breaks), None)
        if self.captured or frame is None:
            return None
        breaks = self.log.breaks[frame]
        said = Explained.of(breaks[0].reason)
        self.told.add(frame)  # ``finish`` notes those of other frames, such as functions that were called
        return Problem(
            kind="snippet",
            stage="dynamo",
            message=f"Dynamo captured no graph, so nothing was compiled. {said.headline}: {said.explanation}"[:3_000],
            line=own_line(breaks[0].frames),
            hint=" ".join(said.hints)[:3_000],
            detail=breaks[0].reason,
        )

    def finish(self) -> None:
        """Says of the graph breaks that led to no graph."""
        left = self._untold("")
        if left and self.captured:
            last = self.captured[-1]
            last.stopped = (*last.stopped, *left)
            self._emit(last)
        for stopped in left if not self.captured else ():
            self.recorder.note(f"Graph break at {place_text(stopped.frames)}: {Explained.of(stopped.reason).sentence}")

    def _untold(self, frame: str) -> tuple[Break, ...]:
        """The breaks of frames that left no graph and are in no stage yet; those of ``frame`` are then told as well."""
        left = tuple(one for name, breaks in self.log.breaks.items() if name not in (*self.told, frame) for one in breaks)
        self.told |= {*self.log.breaks, frame}
        return left

    def _told(self, frame: str) -> None:
        """Dynamo has finished a frame, or gave it up because it was compiled too often."""
        if frame in self.log.limits:
            same = [one for one in self.captured if one.frame == frame.rpartition("/")[0]]
            if same:
                same[-1].spent, same[-1].spent_reason = self.log.limits[frame], "; ".join(self.log.reasons.get(frame, ())[:1])
                self._emit(same[-1])
            return
        for made in self.captured:
            if made.compile_id == frame and not made.given_up:
                self._emit(made)

    def _emit(self, made: Captured) -> None:
        start = time.perf_counter()
        with self.recorder.stage(made.region, "dynamo") as draft:
            self._describe(draft, made)
            made.millis += (time.perf_counter() - start) * 1e3
            draft.millis = made.millis

    def _describe(self, draft: Draft, made: Captured) -> None:
        nodes = list(made.nodes)
        places = Places(made.places)
        if made.compile_id == compile_id():  # when Dynamo is done with the frame, it forgets them
            made.guards, made.symbols = made.tracing.guards(), made.tracing.symbols()
        guards, symbols = made.guards, made.symbols
        if made.shown is not None:
            draft.section("FX graph", made.shown.text, "python", made.shown.marks)
        draft.drawing = made.drawing
        describe_guards(draft, places, guards, nodes)
        describe_breaks(draft, places, made.stopped, made.earlier)
        describe_symbols(draft, places, symbols)
        self._bytecode(draft, places, made)
        draft.decisions += [*self._recompiles(made, places), *_specialised(made, places, guards, symbols), *made.extra]
        draft.origins = places.origins
        if made.given_up:
            draft.decisions.append(Decision(subject="this graph", verdict="noted", rule="traced_anew", reason=TRACED_ANEW))
        draft.facts |= {
            "operations": sum(node.op.startswith("call") for node in nodes),
            "inputs": sum(node.op == "placeholder" for node in nodes),
            "guards": len(guards),
            "graph_breaks": len(made.stopped),
            "recompiles": made.times,
        }
        if made.given:
            draft.facts["torch_compile"] = made.given[:4_000]
        if made.compile_id:
            draft.facts["frame"] = made.compile_id
        if self.log.missing:
            draft.facts["not_observed"] = f"The installed PyTorch lacks {', '.join(self.log.missing)}."

    def _bytecode(self, draft: Draft, places: Places, made: Captured) -> None:
        before, after = self.log.codes.get(made.compile_id, (None, None))
        for title, code in (("Bytecode before", before), ("Bytecode after", after)):
            if code is not None:
                text, lines = disassembly(code)
                draft.section(title, text, "text", [_marks(code, places, line) for line in lines])
        if after is None:
            return
        rows: list[tuple[str, tuple[int, ...]]] = []
        made_here = self.log.resumes.get(made.compile_id, ())
        for code in made_here:
            function, line = resumed(code.co_name) or (code.co_name, 0)
            arguments = ", ".join(code.co_varnames[: code.co_argcount])
            rows += [("", ())] * bool(rows)
            rows.append((f"{code.co_name}({arguments}): the rest of {function}, after the break at line {line}", places.at(line)))
            text, lines = disassembly(code)
            rows += [(f"    {row}", _marks(code, places, number)) for row, number in zip(text.splitlines(), lines, strict=True)]
        text = "\n".join(text for text, _ in rows) or "None: nothing is left to be run after this graph."
        draft.section("Resume functions", text, "text", [marks for _, marks in rows])
        draft.facts["resume_functions"] = len(made_here)

    def _recompiles(self, made: Captured, places: Places) -> list[Decision]:
        found = [
            Decision(
                subject=f"compiled again: {made.compile_id}",
                verdict="noted",
                rule="recompile",
                reason=reason[:4_000],
                numbers={"failed": reason.partition(":")[0], "compiled": made.compile_id},
                origins=places.at(_line_in(reason)),
            )
            for reason in self.log.reasons.get(made.compile_id, ())
        ]
        if made.spent:
            name, value = made.spent
            found.append(Decision(
                subject=f"torch._dynamo.config.{name}",
                verdict="refused",
                rule="recompile_limit",
                reason=(
                    f"Another call would have compiled the frame once more than {name} = {value} allows: from then on, calls that fit none "
                    f"of the compiled graphs run in eager PyTorch. The last reason: {made.spent_reason}"
                )[:4_000],
                numbers={name: value},
                origins=places.at(_line_in(made.spent_reason)),
            ))  # fmt: skip
        return found


def _marks(code: CodeType, places: Places, line: int) -> tuple[int, ...]:
    return places.at(line) if code.co_filename == SNIPPET else ()


def _line_in(reason: str) -> int:
    """The snippet's line that Dynamo names in a reason, 0 if none."""
    found = re.findall(rf'{re.escape(SNIPPET)}(?::|", line )(\d+)', reason)
    return int(found[-1]) if found else 0


def _specialised(made: Captured, places: Places, guards: Sequence[GuardRow], symbols: Sequence[SymbolRow]) -> list[Decision]:
    """What was made a constant of the graph, and why."""
    return [*_constant_symbols(symbols, places), *_constant_numbers(guards, places), *_constant_sizes(made)]


def _constant_symbols(symbols: Sequence[SymbolRow], places: Places) -> list[Decision]:
    found = []
    for symbol in symbols:
        if symbol.constant:
            asked = [fact.text for fact in symbol.facts]
            because = f"Tracing had to decide {'; '.join(asked[:5])}" if asked else "Tracing needed its value"
            reason = f"{because}: {symbol.name} was left open, and is the constant {symbol.value} from there on."
            numbers: dict[str, str | int | float] = {"value": symbol.value, "line": own_line(symbol.decided)}
            found.append(_constant(", ".join(symbol.sources) or symbol.name, reason, numbers, places.at(own_line(symbol.decided))))
    return found


def _constant_numbers(guards: Sequence[GuardRow], places: Places) -> list[Decision]:
    found: dict[str, Decision] = {}
    for guard in guards:
        value = next((value for code in guard.code if (value := _number(guard.subject, code)) is not None), None)
        if guard.kind in ("CONSTANT_MATCH", "EQUALS_MATCH") and value is not None:
            line = own_line(guard.frames)
            found[guard.subject] = _constant(guard.subject, NUMBER, {"value": value, "line": line}, places.at(line))
    return list(found.values())[:MAX_CONSTANTS]


def _number(subject: str, code: str) -> int | float | None:
    """The number that a guard compares its subject with."""
    left, _, right = code.partition(" == ")
    try:
        value = ast.literal_eval(right) if left == subject else None
    except (ValueError, SyntaxError):
        return None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _constant_sizes(made: Captured) -> list[Decision]:
    names = readable_inputs(made.graph.graph)
    tensors = [
        (names[node.name], value)
        for node in made.nodes
        if node.op == "placeholder"
        and node.name in names
        and isinstance(value := node_value(node), torch.Tensor)
        and not isinstance(value, torch.nn.Parameter)
    ]
    at_first, then_open = made.sizes
    if not at_first:
        fixed = [
            f"{name}.shape[{place}]"
            for name, value in tensors
            for place, size in enumerate(value.shape)
            if isinstance(size, int) and size < 2
        ]
        return [_constant(", ".join(fixed), ZERO_ONE, {})] if fixed else []
    fixed = [text for name, value in tensors if (text := _fixed(name, value.shape))]
    return [_constant(", ".join(fixed), STATIC if then_open else NEVER_OPEN, {})] if fixed else []


def _fixed(name: str, shape: Sequence[object]) -> str:
    """The sizes of a tensor that are constants, "" if none is."""
    places = [str(place) for place, size in enumerate(shape) if isinstance(size, int)]
    return f"{name}.shape" if len(places) == len(shape) > 0 else f"{name}.shape[{', '.join(places)}]" if places else ""


def _constant(subject: str, reason: str, numbers: Mapping[str, str | int | float], origins: tuple[int, ...] = ()) -> Decision:
    return Decision(
        subject=subject[:400], verdict="noted", rule="specialised", reason=reason[:4_000], numbers=dict(numbers), origins=origins
    )
