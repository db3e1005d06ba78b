"""What a stage view is, and the pieces that several of them show: listings, decisions, kernels, facts, a drawing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from app.graph import dot, too_large
from compiler.trace import Decision, Kernel, Origin, Scalar, Section, Stage, StageName


@dataclass(frozen=True, slots=True)
class StageView:
    """A tab: its name, the sentence that says what it is, and how its page is made of a stage. Its template bears its name."""

    name: str
    about: str
    page: Callable[[Stage], object]
    columns: bool = True
    """Whether forward and backward stand side by side where there is room; wide tables stand below each other."""

    reads: StageName | None = None
    """The stage of the trace that it shows; None: the one of its own name."""

    @property
    def stage(self) -> str:
        return self.reads or self.name

    @property
    def template(self) -> str:
        return f"stages/{self.name}.html"


Lines = tuple[int, ...]


def source_lines(places: Iterable[int], origins: tuple[Origin, ...]) -> Lines:
    """The lines of the snippet that these origins point at. An origin that spans more than a screenful points at its first line only."""
    lines: set[int] = set()
    for place in places:
        if place < len(origins) and (origin := origins[place]).line:
            last = origin.end_line if origin.line <= origin.end_line < origin.line + 40 else origin.line
            lines.update(range(origin.line, last + 1))
    return tuple(sorted(lines))


@dataclass(frozen=True, slots=True)
class Listing:
    """A text with, for each of its lines, the lines of the snippet that it comes from."""

    title: str
    language: str
    text: str
    lines: tuple[Lines, ...]
    length: int

    @property
    def mapped(self) -> bool:
        return any(self.lines)


def listing(section: Section, origins: tuple[Origin, ...]) -> Listing:
    known: dict[tuple[int, ...], Lines] = {}
    lines = []
    for marks in section.marks:
        if marks not in known:
            known[marks] = source_lines(marks, origins)
        lines.append(known[marks])
    text = section.text.removesuffix("\n")
    return Listing(section.title, section.language, text, tuple(lines), text.count("\n") + 1)


def listings(stage: Stage) -> tuple[Listing, ...]:
    return tuple(listing(section, stage.origins) for section in stage.sections)


def bytes_text(count: float) -> str:
    """A number of bytes for people."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024 or unit == "GiB":
            return f"{count:,.0f} {unit}" if unit == "B" or count >= 100 else f"{count:,.1f} {unit}"
        count /= 1024
    return str(count)


def scalar_text(name: str, value: Scalar) -> str:
    """A fact's value for people; the name says when it is a number of bytes."""
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    if "bytes" in name and value >= 0:
        return bytes_text(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"


Facts = tuple[tuple[str, str], ...]


def facts_text(facts: dict[str, Scalar]) -> Facts:
    return tuple(
        (name.replace("_", " ").replace("gb per s", "GB/s"), scalar_text(name, value)) for name, value in facts.items() if value != ""
    )


@dataclass(frozen=True, slots=True)
class DecisionRow:
    subject: str
    verdict: str
    rule: str
    reason: str
    numbers: Facts
    lines: Lines


@dataclass(frozen=True, slots=True)
class Round:
    """The decisions of one round; ``number`` is None for those outside rounds."""

    number: int | None
    rows: tuple[DecisionRow, ...]
    fused: int


MAX_ROWS = 2_000


def rounds(stage: Stage, decisions: tuple[Decision, ...] | None = None) -> tuple[Round, ...]:
    """The stage's decisions by round: those outside rounds first."""
    grouped: dict[int | None, list[DecisionRow]] = {}
    for item in (stage.decisions if decisions is None else decisions)[:MAX_ROWS]:
        row = DecisionRow(
            item.subject, item.verdict, item.rule, item.reason, facts_text(item.numbers), source_lines(item.origins, stage.origins)
        )
        grouped.setdefault(item.round, []).append(row)
    order = sorted(grouped, key=lambda number: -1 if number is None else number)
    return tuple(Round(number, tuple(grouped[number]), sum(row.verdict == "fused" for row in grouped[number])) for number in order)


@dataclass(frozen=True, slots=True)
class KernelRow:
    name: str
    kind: str
    library: str
    steps: tuple[str, ...]
    facts: Facts
    lines: Lines


def kernel_rows(stage: Stage) -> tuple[KernelRow, ...]:
    def row(kernel: Kernel) -> KernelRow:
        lines = source_lines(kernel.origins, stage.origins)
        return KernelRow(kernel.name, kernel.kind, kernel.library, kernel.steps, facts_text(kernel.facts), lines)

    return tuple(row(kernel) for kernel in stage.kernels)


@dataclass(frozen=True, slots=True)
class Picture:
    """A drawing as DOT text, with the snippet's lines of each node; no text when it is too large to lay out."""

    dot: str
    lines: tuple[Lines, ...]
    nodes: int
    edges: int


def picture(stage: Stage) -> Picture | None:
    drawing = stage.drawing
    if drawing is None or not drawing.nodes:
        return None
    if too_large(drawing):
        return Picture("", (), len(drawing.nodes), len(drawing.edges))
    lines = tuple(source_lines(node.origins, stage.origins) for node in drawing.nodes)
    return Picture(dot(drawing), lines, len(drawing.nodes), len(drawing.edges))


@dataclass(frozen=True, slots=True)
class TextPage:
    """A stage that is mostly text: facts, kernels, listings, then what was decided."""

    facts: Facts
    kernels: tuple[KernelRow, ...]
    listings: tuple[Listing, ...]
    rounds: tuple[Round, ...]


def text_page(stage: Stage) -> TextPage:
    return TextPage(facts_text(stage.facts), kernel_rows(stage), listings(stage), rounds(stage))


@dataclass(frozen=True, slots=True)
class GraphPage:
    """A stage that is a graph: its picture, its listings, and what was decided."""

    facts: Facts
    picture: Picture | None
    kernels: tuple[KernelRow, ...]
    listings: tuple[Listing, ...]
    rounds: tuple[Round, ...]


def graph_page(stage: Stage) -> GraphPage:
    return GraphPage(facts_text(stage.facts), picture(stage), kernel_rows(stage), listings(stage), rounds(stage))
