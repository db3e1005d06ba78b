"""The ``passes`` tab: what each pass over the graph changed, with its counts and the difference."""

from __future__ import annotations

from dataclasses import dataclass

from app.stages.view import DecisionRow, Facts, KernelRow, Listing, Picture, StageView, facts_text, kernel_rows, listings, picture, rounds
from compiler.trace import Stage


@dataclass(frozen=True, slots=True)
class Pass:
    """A pass by name: the text of what it changed with how many lines it took and gave, and what was said of it."""

    name: str
    removed: int
    added: int
    notes: tuple[DecisionRow, ...]
    listing: Listing | None


@dataclass(frozen=True, slots=True)
class PassesPage:
    facts: Facts
    passes: tuple[Pass, ...]
    listings: tuple[Listing, ...]
    picture: Picture | None
    kernels: tuple[KernelRow, ...]


def counted(text: str) -> tuple[int, int]:
    """How many lines of a unified difference are taken away and added."""
    lines = text.split("\n")
    return (
        sum(line.startswith("-") and not line.startswith("---") for line in lines),
        sum(line.startswith("+") and not line.startswith("+++") for line in lines),
    )


def page(stage: Stage) -> PassesPage:
    notes: dict[str, list[DecisionRow]] = {}
    for group in rounds(stage):
        for row in group.rows:
            notes.setdefault(row.subject, []).append(row)
    texts = listings(stage)
    passes = []
    for item in texts:
        if item.language == "diff":
            passes.append(Pass(item.title, *counted(item.text), tuple(notes.pop(item.title, ())), item))
    passes += [Pass(subject, 0, 0, tuple(rows), None) for subject, rows in notes.items()]
    others = tuple(item for item in texts if item.language != "diff")
    return PassesPage(facts_text(stage.facts), tuple(passes), others, picture(stage), kernel_rows(stage))


VIEW = StageView("passes", "What each pass over the graph changed: before and after, by name.", page)
