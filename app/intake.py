"""What a child says becomes events that are fit to store: hostile bytes in, checked events out, or a refusal that ends the run.

A child can lie about its own run only as a compiler could be wrong: order, numbers, sizes and the header are held here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from compiler.trace import (
    MAX_EVENT_BYTES,
    MAX_EVENTS,
    BadEvent,
    Begin,
    End,
    Event,
    Places,
    Problem,
    RegionFound,
    Scalar,
    Stage,
    parse_event,
)

MAX_REGIONS = 200


class Refused(Exception):
    """The child has to be ended, for this reason."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


@dataclass(slots=True)
class Intake:
    """The events of one run. The header is the worker's own, whatever the child says; the last event waits until the child has ended."""

    header: Begin
    source_lines: int
    max_bytes: int
    end: End | None = None
    _rest: bytearray = field(default_factory=bytearray)
    _bytes: int = 0
    _events: int = 0
    _begun: bool = False
    _regions: set[int] = field(default_factory=set)
    _titles: dict[int, str] = field(default_factory=dict)
    last: str = ""
    """What the run told last, in words: it was at the work after that when it ended."""

    def spend(self, count: int) -> None:
        """Count so many bytes of output against the limit. Raises Refused."""
        self._bytes += count
        if self._bytes > self.max_bytes:
            raise Refused(output_limit(self.max_bytes))

    def feed(self, data: bytes) -> Iterator[Event]:
        """The events that end within ``data``, to be stored in order. Raises Refused after those that were in order."""
        self.spend(len(data))
        self._rest += data
        *lines, rest = bytes(self._rest).split(b"\n") if b"\n" in data else [bytes(self._rest)]
        self._rest = bytearray(rest)
        for line in lines:
            if (event := self._accept(line)) is not None:
                yield event
        if len(self._rest) > MAX_EVENT_BYTES:
            raise broken(f"a line of more than {MAX_EVENT_BYTES} bytes")

    def _accept(self, line: bytes) -> Event | None:
        self._events += 1
        if self._events > MAX_EVENTS:
            hint = "Compile fewer functions in one snippet, and print less."
            raise Refused(
                Problem(kind="limit", message=f"The run produced more than {MAX_EVENTS:,} events, the most that is stored.", hint=hint)
            )
        if self.end is not None:
            raise broken("something after its end")
        try:
            event = parse_event(line)
        except BadEvent as error:
            raise broken(str(error)) from None
        if isinstance(event, Begin) == self._begun:
            raise broken("a second beginning" if self._begun else "something before its beginning")
        match event:
            case Begin():
                self._begun = True
                return self.header.model_copy(update={"environment": {**event.environment, **self.header.environment}})
            case RegionFound():
                self._regions.add(event.region.id)
                self._titles[event.region.id] = f"region {event.region.id}, {event.region.title}"[:200]
                self.last = f"it had found {self._titles[event.region.id]}"
                if len(self._regions) > MAX_REGIONS or event.region.id >= MAX_REGIONS:
                    raise broken(f"more than {MAX_REGIONS} regions")
            case Stage():
                self._check_stage(event)
                self.last = " ".join((
                    f"the last stage that it finished was {event.name}{event.part and f' ({event.part})'} of",
                    self._titles.get(event.region, f"region {event.region}"),
                ))  # fmt: skip
            case End():
                self.end = self._placed(event)
                return None
        return event

    def _check_stage(self, stage: Stage) -> None:
        if stage.region not in self._regions and stage.region != 0:
            raise broken(f"a stage of region {stage.region}, which it never announced")
        if any(place >= len(stage.origins) for places in _places(stage) for place in places):
            raise broken(f"an origin that the stage {stage.name} does not have")
        if any(origin.line > self.source_lines for origin in stage.origins):
            raise broken(f"a line that the snippet does not have, in the stage {stage.name}")

    def _placed(self, end: End) -> End:
        """The end, without a place outside the snippet."""
        if end.problem is None or end.problem.line <= self.source_lines:
            return end
        return end.model_copy(update={"problem": end.problem.model_copy(update={"line": 0, "column": 0})})


def _places(stage: Stage) -> Iterable[Places]:
    for section in stage.sections:
        yield from section.marks
    for part in (stage.decisions, stage.kernels, stage.timings, stage.drawing.nodes if stage.drawing else ()):
        for item in part:
            yield item.origins


def broken(what: str) -> Refused:
    """The stream is not what a compiler writes."""
    return Refused(
        Problem(
            kind="process",
            message=f"The run's own process wrote {what}, so it was ended.",
            hint="A snippet that writes to file descriptors 3 or 4 writes to the channel on which results travel. "
            "If yours does not, this is a fault of Fuselab: please report it.",
        )
    )


def output_limit(size: int) -> Problem:
    return Problem(
        kind="limit",
        message=f"The run wrote more than {size / (1 << 20):.0f} MiB of results and output, the most that is kept.",
        hint="Print less, or compile fewer and smaller functions in one snippet.",
    )


def header(compiler: str, target: str, options: Mapping[str, Scalar], environment: Mapping[str, Scalar]) -> Begin:
    return Begin.model_validate({"compiler": compiler, "target": target, "options": dict(options), "environment": dict(environment)})
