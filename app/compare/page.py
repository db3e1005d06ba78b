"""Stored runs come in; what the comparison page shows goes out: their heads, what differs between them, and one stage of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlencode

from app import store
from app.compare.alignment import Group, groups
from app.compare.difference import Difference, difference
from app.compare.figures import LETTERS, READS, Told
from app.stages.timing import TimingTable, timing_tables
from app.stages.view import Facts, KernelRow, Round, facts_text, kernel_rows, rounds, scalar_text
from app.store import RunRow, Session, StageRow
from compiler.trace import Part, Scalar, Stage, Trace

MAX_RUNS, MAX_KERNELS = len(LETTERS), 400
PARTS: tuple[Part, ...] = ("", "forward", "backward")


@dataclass(frozen=True, slots=True)
class Place:
    """What the page shows, as its address says it. ``left`` and ``right``: the runs that a difference is of, and which of their texts."""

    runs: tuple[str, ...]
    tab: str
    view: str = ""
    region: int | None = None
    part: str = ""
    left: int = 0
    right: int = 1
    left_text: int = 0
    right_text: int | None = None

    def query(self) -> str:
        """The address's query; what is as by default is left out."""
        usual = Place((), "code")
        shown = {"runs": ",".join(self.runs)}
        for name in ("tab", "view", "region", "part", "left", "right", "left_text", "right_text"):
            if (value := getattr(self, name)) != getattr(usual, name):
                shown[name] = str(value)
        return urlencode(shown, safe=",")

    def to(self, **changes: object) -> str:
        """The address of the page with these changes."""
        return "/compare?" + replace(self, **changes).query()  # type: ignore[arg-type]  # names and types are those of the fields


@dataclass(frozen=True, slots=True)
class Head:
    """A run at the head of its column. ``differing``: the options and facts of the environment that not all runs share."""

    letter: str
    run: RunRow
    outline: Trace
    differing: Facts
    snippet: int


@dataclass(frozen=True, slots=True)
class Snippet:
    """A source, and the letters of the runs that are of it."""

    number: int
    letters: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ColumnStage:
    """One run's stage below the aligned texts; no stage where the run has none there."""

    stage: Stage | None
    kernels: tuple[KernelRow, ...]
    rounds: tuple[Round, ...]
    tables: tuple[TimingTable, ...]


@dataclass(frozen=True, slots=True)
class FactRow:
    name: str
    values: tuple[str, ...]
    differs: bool


@dataclass(frozen=True, slots=True)
class Panel:
    """One stage of every run. ``regions``: number and title of those that any run has."""

    regions: tuple[tuple[int, str], ...]
    region: int
    parts: tuple[str, ...]
    part: str
    columns: tuple[ColumnStage, ...]
    facts: tuple[FactRow, ...]
    groups: tuple[Group, ...]


@dataclass(frozen=True, slots=True)
class Chosen:
    """The difference of two texts: what can be chosen on each side, which is, and the difference if both are there."""

    titles: tuple[tuple[str, ...], ...]
    left_text: int
    right_text: int
    difference: Difference | None


def heads(session: Session, runs: Sequence[RunRow]) -> tuple[Head, ...]:
    """The heads of the columns, with what differs between the runs and the number of each one's snippet."""
    outlines = [store.outline(session, run.id) for run in runs]
    snippets = list(dict.fromkeys(run.source for run in runs))
    options = _differing([run.options for run in runs])
    begun = [outline.environment for outline in outlines]
    environment = _differing([facts for facts in begun if facts])
    return tuple(
        Head(
            LETTERS[index],
            run,
            outline,
            (*_told(run.options, options), *_told(facts, environment if facts else ())),
            snippets.index(run.source),
        )
        for index, (run, outline, facts) in enumerate(zip(runs, outlines, begun, strict=True))
    )


def snippets(chosen: Sequence[Head]) -> tuple[Snippet, ...]:
    """The different sources of the runs."""
    sources = {head.snippet: head.run.source for head in chosen}
    return tuple(
        Snippet(number, ", ".join(head.letter for head in chosen if head.snippet == number), tuple(source.split("\n")))
        for number, source in sources.items()
    )


def _differing(facts: Sequence[Mapping[str, Scalar]]) -> tuple[str, ...]:
    names = dict.fromkeys(name for each in facts for name in each)
    return tuple(name for name in names if len({(name in each, repr(each.get(name))) for each in facts}) > 1)


def _told(facts: Mapping[str, Scalar], names: Sequence[str]) -> Facts:
    return tuple((name, scalar_text(name, facts[name]) if name in facts else "not set") for name in names)


def told(session: Session, chosen: Sequence[Head]) -> tuple[Told, ...]:
    """What the table of figures is made of."""
    return tuple(
        Told(head.run.compiler, head.run.finished, head.outline, {name: store.stages(session, head.run.id, name) for name in READS})
        for head in chosen
    )


def stage_state(rows: Sequence[StageRow], run: RunRow, name: str) -> str:
    """What a tab says of a run's stage; of several regions the gravest shows."""
    kinds = {row.status for row in rows if row.name == name}
    found = next((kind for kind in ("error", "ok", "skipped") if kind in kinds), None)
    return found or {"queued": "waiting", "running": "waiting"}.get(run.status, "missing")


def panel(session: Session, chosen: Sequence[Head], place: Place, stage: str) -> Panel:
    """One stage of all runs, in one region and part: those asked for, or the first that any run has."""
    found = [store.stages(session, head.run.id, stage) for head in chosen]
    titles = {region.id: region.title for head in reversed(chosen) for region in head.outline.regions}
    numbers = sorted({item.region for stages in found for item in stages} | titles.keys()) or [0]
    region = place.region if place.region in numbers else numbers[0]
    own = [{item.part: item for item in stages if item.region == region} for stages in found]
    parts = tuple(part for part in PARTS if any(part in stages for stages in own))
    part = place.part if place.part in parts else next((name for name in parts if name), "")
    stages = [by_part.get(part) or by_part.get("") for by_part in own]  # type: ignore[call-overload]  # part is one of PARTS
    by_op = len({head.snippet for head in chosen}) > 1
    columns = tuple(
        ColumnStage(item, kernel_rows(item)[:MAX_KERNELS], rounds(item), timing_tables(item)) if item else ColumnStage(None, (), (), ())
        for item in stages
    )
    regions = tuple((number, titles.get(number, "")) for number in numbers)
    return Panel(regions, region or 0, parts, part, columns, fact_rows(stages), groups(stages, by_op))


def fact_rows(stages: Sequence[Stage | None]) -> tuple[FactRow, ...]:
    """The stages' facts, name by name."""
    told_facts = [dict(facts_text(stage.facts)) if stage else {} for stage in stages]
    rows = []
    for name in dict.fromkeys(name for facts in told_facts for name in facts):
        values = tuple(facts.get(name, "") for facts in told_facts)
        rows.append(FactRow(name, values, len(set(filter(None, values))) > 1))
    return tuple(rows)


def chosen_difference(shown: Panel, place: Place) -> Chosen:
    """The difference of the two texts that the address names; by default two of the same title, or else of the same number."""
    stages = [column.stage for column in shown.columns]
    titles = tuple(tuple(section.title for section in stage.sections) if stage else () for stage in stages)
    left, right = place.left, place.right
    if not (left < len(stages) and right < len(stages)):
        return Chosen(titles, 0, 0, None)
    first = place.left_text if place.left_text < len(titles[left]) else 0
    second = place.right_text
    if second is None or second >= len(titles[right]):
        name = titles[left][first] if titles[left] else ""
        second = titles[right].index(name) if name in titles[right] else min(first, max(0, len(titles[right]) - 1))
    one, other = stages[left], stages[right]
    if one is None or other is None or not titles[left] or not titles[right]:
        return Chosen(titles, first, second, None)
    return Chosen(titles, first, second, difference(one.sections[first].text, other.sections[second].text))
