"""The ``autotune`` tab: each choice between libraries and templates, every configuration with its time where it was measured."""

from __future__ import annotations

from dataclasses import dataclass

from app.stages.timing import TimingTable, timing_tables
from app.stages.view import DecisionRow, Facts, KernelRow, Listing, Round, StageView, facts_text, kernel_rows, listings, rounds
from compiler.trace import Stage


@dataclass(frozen=True, slots=True)
class Choice:
    """The configurations that competed for one operation, and the names of the numbers known of them."""

    number: int | None
    rows: tuple[DecisionRow, ...]
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AutotunePage:
    """``rounds``: choices that had no rival, and notes."""

    facts: Facts
    choices: tuple[Choice, ...]
    rounds: tuple[Round, ...]
    tables: tuple[TimingTable, ...]
    kernels: tuple[KernelRow, ...]
    listings: tuple[Listing, ...]


def page(stage: Stage) -> AutotunePage:
    groups = rounds(stage)
    rivals = [group for group in groups if group.number is not None and len(group.rows) > 1]
    choices = [
        Choice(group.number, group.rows, tuple(dict.fromkeys(name for row in group.rows for name, _ in row.numbers))[:12])
        for group in rivals
    ]
    alone = tuple(row for group in groups if group not in rivals for row in group.rows)
    others = (Round(None, alone, 0),) if alone else ()
    return AutotunePage(facts_text(stage.facts), tuple(choices), others, timing_tables(stage), kernel_rows(stage), listings(stage))


VIEW = StageView(
    "autotune",
    "The choices between libraries and templates: every configuration, with its time where it was measured.",
    page,
    columns=False,
)
