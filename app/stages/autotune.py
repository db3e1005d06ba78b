"""The ``autotune`` tab: each choice between libraries and templates, every configuration with its time where it was measured."""

from __future__ import annotations

from dataclasses import dataclass

from app.stages.timing import TimingTable, timing_tables
from app.stages.view import DecisionRow, Facts, KernelRow, Listing, StageView, facts_text, kernel_rows, listings, rounds
from compiler.trace import Stage


@dataclass(frozen=True, slots=True)
class Choice:
    """The configurations that competed for one operation, and the names of the numbers known of them."""

    number: int | None
    rows: tuple[DecisionRow, ...]
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AutotunePage:
    facts: Facts
    choices: tuple[Choice, ...]
    tables: tuple[TimingTable, ...]
    kernels: tuple[KernelRow, ...]
    listings: tuple[Listing, ...]


def page(stage: Stage) -> AutotunePage:
    choices = []
    for group in rounds(stage):
        names = dict.fromkeys(name for row in group.rows for name, _ in row.numbers)
        choices.append(Choice(group.number, group.rows, tuple(names)[:12]))
    return AutotunePage(facts_text(stage.facts), tuple(choices), timing_tables(stage), kernel_rows(stage), listings(stage))


VIEW = StageView(
    "autotune",
    "The choices between libraries and templates: every configuration, with its time where it was measured.",
    page,
    columns=False,
)
