"""The ``numerics`` tab: how far eager and compiled results are from a float64 reference and from each other."""

from __future__ import annotations

from dataclasses import dataclass

from app.stages.view import DecisionRow, Facts, Listing, StageView, facts_text, listings, rounds
from compiler.trace import Stage


@dataclass(frozen=True, slots=True)
class NumericsPage:
    facts: Facts
    rows: tuple[DecisionRow, ...]
    columns: tuple[str, ...]
    listings: tuple[Listing, ...]


def page(stage: Stage) -> NumericsPage:
    rows = tuple(row for group in rounds(stage) for row in group.rows)
    columns = tuple(dict.fromkeys(name for row in rows for name, _ in row.numbers))
    return NumericsPage(facts_text(stage.facts), rows, columns, listings(stage))


VIEW = StageView(
    "numerics", "Whether the answer is right: the distance of eager and compiled results from a float64 reference.", page, columns=False
)
