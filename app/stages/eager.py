"""The ``eager`` tab: what PyTorch does without a compiler, operation by operation, and how long each takes."""

from __future__ import annotations

from dataclasses import dataclass

from app.stages.timing import TimingTable, timing_tables
from app.stages.view import Facts, Listing, Round, StageView, facts_text, listings, rounds
from compiler.trace import Stage


@dataclass(frozen=True, slots=True)
class EagerPage:
    facts: Facts
    tables: tuple[TimingTable, ...]
    listings: tuple[Listing, ...]
    rounds: tuple[Round, ...]


def page(stage: Stage) -> EagerPage:
    return EagerPage(facts_text(stage.facts), timing_tables(stage), listings(stage), rounds(stage))


VIEW = StageView("eager", "What PyTorch does without a compiler: one kernel for each operation.", page)
