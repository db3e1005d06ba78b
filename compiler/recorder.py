"""Turns what the compiler does into events of the trace: hands out region numbers, times stages, and records the stage that failed."""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from compiler.blame import REPORT, blamed, complete
from compiler.errors import CompileError
from compiler.observe.torch_names import awaited
from compiler.trace import (
    MAX_TEXT,
    STAGE_NAMES,
    Decision,
    Drawing,
    Event,
    Kernel,
    Origin,
    Output,
    Part,
    Problem,
    Region,
    RegionFound,
    Scalar,
    Section,
    Stage,
    StageName,
    Timing,
)

MAX_DETAIL = 20_000


@dataclass(slots=True)
class Draft:
    """A stage while it is being filled in."""

    sections: list[Section] = field(default_factory=list)
    origins: Sequence[Origin] = ()
    decisions: list[Decision] = field(default_factory=list)
    kernels: list[Kernel] = field(default_factory=list)
    timings: list[Timing] = field(default_factory=list)
    drawing: Drawing | None = None
    facts: dict[str, Scalar] = field(default_factory=dict)
    skipped: str = ""
    millis: float | None = None  # where the work was not done inside the block

    def section(self, title: str, text: str, language: str = "text", marks: Sequence[Sequence[int]] = ()) -> None:
        """One text; ``marks[i]`` lists the origins of its line ``i``. What exceeds the limit of the trace is cut off, and said."""
        if len(text) > MAX_TEXT:
            note = "\n... cut off: the text is too long to be shown\n"
            text = text[: MAX_TEXT - len(note)] + note
            marks = marks[: text.count("\n") + 1]
        bounded = tuple(tuple(places[:200]) for places in marks)
        self.sections.append(Section.model_validate({"title": title, "language": language, "text": text, "marks": bounded}))

    def skip(self, reason: str) -> None:
        """This stage does not exist here; the reason is a sentence for the visitor."""
        self.skipped = reason


@dataclass(slots=True)
class Recorder:
    """Sends events to ``emit``. ``problem`` is the first failure of a stage, for the last event; ``failed`` the exception behind it.

    ``until``: the time (``time.monotonic``) after which nothing is begun that a run can do without.
    ``passing``: exceptions that are no failures, since whoever called the compiler waits for them.
    """

    emit: Callable[[Event], None]
    problem: Problem | None = None
    failed: CompileError | None = None
    regions: int = 0
    titles: dict[tuple[str, int], int] = field(default_factory=dict)
    told: set[tuple[int, StageName]] = field(default_factory=set)
    until: float = math.inf
    passing: tuple[type[BaseException], ...] = field(default_factory=awaited)

    @property
    def short(self) -> bool:
        """The run's time runs short."""
        return time.monotonic() > self.until

    def region(self, title: str, line: int = 0, *, again: bool = False) -> int:
        """Announces a new region and returns its number. ``again``: it takes the place of one that was given up before it was compiled."""
        number = self.regions
        self.regions += 1
        times = self.titles[title, line] = self.titles.get((title, line), 0) + (not again)
        shown = title[:350] + (f", compiled again ({times})" if times > 1 else "") + (", traced anew" if again else "")
        self.emit(RegionFound(region=Region(id=number, title=shown, line=line)))
        return number

    def skip_rest(self, region: int, reason: str) -> None:
        """Every stage of the region that has not been told is skipped, for this reason."""
        whole = ("eager", "dynamo", "joint", "passes")
        for name in STAGE_NAMES:
            if (region, name) not in self.told:
                with self.stage(region, name, "" if name in whole else "forward") as draft:
                    draft.skip(reason)

    def note(self, text: str) -> None:
        """Something about the whole run that the visitor should know."""
        self.emit(Output(stream="note", text=text))

    @contextmanager
    def stage(self, region: int, name: StageName, part: Part = "") -> Iterator[Draft]:
        """Times the block and emits the stage that it filled in.

        An exception is recorded as a stage with status "error" and leaves as a CompileError.
        """
        draft = Draft()
        start = time.perf_counter()
        with self.boundary(region, lambda: name, part, draft):
            yield draft
        self.emit(self._stage(region, name, part, draft, start, "skipped" if draft.skipped else "ok", draft.skipped))

    @contextmanager
    def boundary(self, region: int, name: Callable[[], StageName], part: Part = "", draft: Draft | None = None) -> Iterator[None]:
        """Whatever is raised inside leaves as a CompileError with stage, op and line, and is recorded as a stage that failed.

        ``name`` tells which stage, once something has failed. What Dynamo waits for passes as it is.
        """
        start = time.perf_counter()
        try:
            yield
        except self.passing:
            raise
        except CompileError as error:
            complete(error, error)
            if error is not self.failed:
                self._failed(region, name(), part, draft or Draft(), start, error)
            raise
        except Exception as error:  # whatever broke, the visitor is told at which stage, and the cause stays chained
            wrapped = blamed(name(), error)
            self._failed(region, name(), part, draft or Draft(), start, wrapped, "".join(traceback.format_exception(error)))
            raise wrapped from error

    def _failed(self, region: int, name: StageName, part: Part, draft: Draft, start: float, error: CompileError, detail: str = "") -> None:
        self.emit(self._stage(region, name, part, draft, start, "error", str(error)[:4_000]))
        if self.problem is None:
            own = {"kind": "internal"} if error.hint == REPORT else {}  # what no stage foresees is our own fault
            self.problem = error.problem().model_copy(update={"detail": detail[-MAX_DETAIL:], **own})
            self.failed = error

    def _stage(self, region: int, name: StageName, part: Part, draft: Draft, start: float, status: str, reason: str) -> Stage:
        self.told.add((region, name))
        millis = (time.perf_counter() - start) * 1e3 if draft.millis is None else draft.millis
        return Stage.model_validate({
            "region": region, "name": name, "part": part, "status": status, "reason": reason, "millis": millis,
            "sections": tuple(draft.sections), "origins": tuple(draft.origins), "decisions": tuple(draft.decisions),
            "kernels": tuple(draft.kernels), "timings": tuple(draft.timings), "drawing": draft.drawing, "facts": draft.facts,
        })  # fmt: skip
