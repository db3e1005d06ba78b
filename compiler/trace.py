"""What one run produced, in the form that every compiler emits and every page reads; the leaf of all imports.

A run is a sequence of events, each one line of JSON: ``Begin``, then ``RegionFound``, ``Stage`` and ``Output`` in any order, then ``End``.
``Trace.fold`` puts them together. Every field is bounded, so that lines written by a hostile process can be parsed with ``parse_event``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

FORMAT = 1
MAX_EVENT_BYTES = 8 << 20
MAX_TEXT = 2_000_000
MAX_EVENTS = 2_000

StageName = Literal[
    "eager", "dynamo", "joint", "passes", "aten", "loops", "fusion", "autotune", "code", "wrapper",
    "ttir", "ttgir", "llir", "ptx", "sass", "timing", "numerics",
]  # fmt: skip
STAGE_NAMES: tuple[StageName, ...] = get_args(StageName)
"""In the order of the tabs."""
Part = Literal["", "forward", "backward"]
CompilerName = Literal["fuselab", "inductor", "eager"]
Name = Annotated[str, Field(max_length=400)]
Sentence = Annotated[str, Field(max_length=4_000)]
Text = Annotated[str, Field(max_length=MAX_TEXT)]
Count = Annotated[int, Field(ge=0, le=1 << 62)]
Scalar = str | int | float | bool | None
Facts = Annotated[dict[Name, Scalar], Field(max_length=400)]
Places = Annotated[tuple[Count, ...], Field(max_length=200)]


class Record(BaseModel):
    """A frozen, closed, strictly typed piece of a trace."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Origin(Record):
    """Where something comes from: a span of the snippet (lines 1-based, columns 0-based; 0 0 when unknown) and the graph nodes passed on
    the way.
    """

    line: Count = 0
    column: Count = 0
    end_line: Count = 0
    end_column: Count = 0
    nodes: Annotated[tuple[Name, ...], Field(max_length=200)] = ()
    op: Name = ""


class Section(Record):
    """One text of a stage. ``marks[i]`` lists, for line ``i`` of the text, indices into the stage's ``origins``."""

    title: Name
    language: Literal["text", "python", "cpp", "mlir", "llvm", "ptx", "sass", "asm", "json", "diff"] = "text"
    text: Text
    marks: Annotated[tuple[Places, ...], Field(max_length=200_000)] = ()


class Decision(Record):
    """One choice the compiler made: about what, how it went, by which rule (whose sentence ``reason`` is), with which numbers."""

    subject: Name
    verdict: Literal["fused", "refused", "chosen", "kept", "extern", "noted", "lost"]
    rule: Name
    reason: Sentence
    numbers: Facts = {}
    round: Count | None = None
    origins: Places = ()


class Node(Record):
    """A box of a drawing; ``group`` names the kernel or region that it is drawn inside of."""

    id: Name
    label: Sentence
    kind: Literal["input", "op", "view", "output", "extern", "kernel", "buffer"] = "op"
    group: Name = ""
    origins: Places = ()


class Edge(Record):
    source: Name
    target: Name
    label: Name = ""


class Drawing(Record):
    """A graph to be laid out by the page."""

    nodes: Annotated[tuple[Node, ...], Field(max_length=20_000)] = ()
    edges: Annotated[tuple[Edge, ...], Field(max_length=60_000)] = ()


class Kernel(Record):
    """One launch of the compiled program. ``facts`` holds what is known of it: grid, warps, bytes, registers, spills, shared memory,
    occupancy.
    """

    name: Name
    kind: Literal["triton", "cpp", "extern"]
    part: Part = ""
    library: Name = ""
    steps: Annotated[tuple[Name, ...], Field(max_length=2_000)] = ()
    facts: Facts = {}
    origins: Places = ()


class Timing(Record):
    """A measured time in microseconds: the median of ``repeats`` samples, with the 10th and 90th percentile as spread.

    ``bytes`` is what must be read and written once; ``copy_fraction`` is the achieved rate over the measured copy rate of the device.
    """

    subject: Name
    scope: Literal["call", "kernel", "op"]
    compiler: CompilerName
    part: Part = ""
    median_us: Annotated[float, Field(ge=0)]
    low_us: Annotated[float, Field(ge=0)]
    high_us: Annotated[float, Field(ge=0)]
    repeats: Count
    bytes: Count | None = None
    gb_per_s: float | None = None
    copy_fraction: float | None = None
    origins: Places = ()


class Problem(Record):
    """Why a run or a stage failed: kind of cause, stage, message, what to do, and the place in the snippet (line 0: none).

    ``internal`` is a fault of Fuselab's own, ``worker`` one of the machine; after ``process`` the run's process ended, or said what it
    may not, and nobody can tell through whose fault.
    """

    kind: Literal["snippet", "stage", "limit", "worker", "internal", "process"]
    message: Sentence
    stage: Name = ""
    hint: Sentence = ""
    line: Count = 0
    column: Count = 0
    op: Name = ""
    detail: Text = ""


class Stage(Record):
    """One step's result for one part (forward, backward, or the whole) of one region. Its key is (region, name, part)."""

    event: Literal["stage"] = "stage"
    region: Count
    name: StageName
    part: Part = ""
    status: Literal["ok", "error", "skipped"] = "ok"
    reason: Sentence = ""
    millis: Annotated[float, Field(ge=0)] = 0.0
    sections: Annotated[tuple[Section, ...], Field(max_length=2_000)] = ()
    origins: Annotated[tuple[Origin, ...], Field(max_length=100_000)] = ()
    decisions: Annotated[tuple[Decision, ...], Field(max_length=100_000)] = ()
    kernels: Annotated[tuple[Kernel, ...], Field(max_length=5_000)] = ()
    timings: Annotated[tuple[Timing, ...], Field(max_length=20_000)] = ()
    drawing: Drawing | None = None
    facts: Facts = {}


class Region(Record):
    """One graph that Dynamo captured: the function it came from and its first line in the snippet."""

    id: Count
    title: Name
    line: Count = 0


class Begin(Record):
    """The first event: what was asked of which compiler, and where it runs."""

    event: Literal["begin"] = "begin"
    format: Literal[1] = 1
    compiler: CompilerName
    target: Name
    options: Facts = {}
    environment: Facts = {}


class RegionFound(Record):
    event: Literal["region"] = "region"
    region: Region


class Output(Record):
    """What the snippet printed, or a note of the compiler about the whole run (``note``: what was chosen to be compiled, and why)."""

    event: Literal["output"] = "output"
    stream: Literal["stdout", "stderr", "note"]
    text: Text


class End(Record):
    event: Literal["end"] = "end"
    status: Literal["ok", "error"]
    problem: Problem | None = None


Event = Begin | RegionFound | Stage | Output | End
_EVENT: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="event")])


class BadEvent(ValueError):
    """A line that is no event: too long, no JSON, or outside the schema. The message is short and safe to show."""


def parse_event(line: bytes | str) -> Event:
    """One line of JSON as an event.

    Raises BadEvent for anything else, whoever wrote it.
    """
    if len(line) > MAX_EVENT_BYTES:
        raise BadEvent(f"an event of {len(line)} bytes; the limit is {MAX_EVENT_BYTES}")
    try:
        return _EVENT.validate_json(line)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise BadEvent(f"{where}: {first['msg']}"[:300]) from None
    except (RecursionError, UnicodeError) as error:
        raise BadEvent(type(error).__name__) from None


def event_line(event: Event) -> str:
    """The event as one line of JSON, without the line break."""
    return event.model_dump_json(exclude_defaults=False)


class Trace(Record):
    """Everything that one run produced."""

    format: Literal[1] = 1
    compiler: CompilerName = "fuselab"
    target: Name = "cpu"
    options: Facts = {}
    environment: Facts = {}
    status: Literal["running", "ok", "error"] = "running"
    problem: Problem | None = None
    notes: tuple[Text, ...] = ()
    output: Text = ""
    regions: tuple[Region, ...] = ()
    stages: tuple[Stage, ...] = ()

    @staticmethod
    def fold(events: Iterable[Event]) -> Trace:
        """The trace that a sequence of events tells. A later stage with the same key replaces an earlier one."""
        head: dict[str, Any] = {}
        regions: dict[int, Region] = {}
        stages: dict[tuple[int, str, str], Stage] = {}
        notes: list[str] = []
        output: list[str] = []
        for event in events:
            match event:
                case Begin():
                    head.update(compiler=event.compiler, target=event.target, options=event.options, environment=event.environment)
                case RegionFound():
                    regions[event.region.id] = event.region
                case Stage():
                    stages[event.region, event.name, event.part] = event
                case Output(stream="note"):
                    notes.append(event.text)
                case Output():
                    output.append(event.text)
                case End():
                    head.update(status=event.status, problem=event.problem)
        order = {name: position for position, name in enumerate(STAGE_NAMES)}
        ranks = {"": 0, "forward": 1, "backward": 2}
        ordered = sorted(stages.values(), key=lambda stage: (stage.region, order[stage.name], ranks[stage.part]))
        return Trace(**head, notes=tuple(notes), output="".join(output)[:MAX_TEXT], regions=tuple(regions.values()), stages=tuple(ordered))

    def stage(self, name: str, region: int = 0, part: str = "") -> Stage | None:
        """The stage of that key, or None."""
        return next((s for s in self.stages if (s.region, s.name, s.part) == (region, name, part)), None)

    def to_json(self, indent: int | None = None) -> str:
        return self.model_dump_json(indent=indent)

    @staticmethod
    def from_json(text: str | bytes) -> Trace:
        """Raises ValueError (a pydantic ValidationError or a JSON error) when the text is no trace of this format."""
        return Trace.model_validate(json.loads(text))
