"""The ``fusion`` tab: which loops became one kernel, round by round, with every pair's verdict, rule and numbers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from app.stages.view import Facts, KernelRow, Listing, Picture, Round, StageView, facts_text, kernel_rows, listings, picture, rounds
from compiler.trace import Stage


@dataclass(frozen=True, slots=True)
class FusionPage:
    """``tally``: how often each verdict was given, the most frequent refusals by rule beside it."""

    facts: Facts
    tally: tuple[tuple[str, int], ...]
    refusals: tuple[tuple[str, int], ...]
    picture: Picture | None
    kernels: tuple[KernelRow, ...]
    rounds: tuple[Round, ...]
    listings: tuple[Listing, ...]


def page(stage: Stage) -> FusionPage:
    tally = Counter(item.verdict for item in stage.decisions)
    refusals = Counter(item.rule for item in stage.decisions if item.verdict == "refused")
    return FusionPage(
        facts_text(stage.facts),
        tuple(tally.most_common()),
        tuple(refusals.most_common(6)),
        picture(stage),
        kernel_rows(stage),
        rounds(stage),
        listings(stage),
    )


VIEW = StageView("fusion", "Which loops became one kernel, and why: every pair of every round has a verdict, a rule and its numbers.", page)
