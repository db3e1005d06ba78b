"""The ``joint`` tab: forward and backward as one graph, where it was cut, and what is saved in between, with its bytes."""

from __future__ import annotations

from dataclasses import dataclass

from app.stages.view import (
    Facts,
    Lines,
    Listing,
    Picture,
    Round,
    StageView,
    bytes_text,
    facts_text,
    listings,
    picture,
    rounds,
    source_lines,
)
from compiler.trace import Stage


@dataclass(frozen=True, slots=True)
class Saved:
    """A value kept for the backward pass; ``percent`` of the bytes of the largest, for its bar."""

    name: str
    bytes: str
    percent: float
    reason: str
    lines: Lines


@dataclass(frozen=True, slots=True)
class JointPage:
    facts: Facts
    picture: Picture | None
    saved: tuple[Saved, ...]
    rounds: tuple[Round, ...]
    listings: tuple[Listing, ...]


def page(stage: Stage) -> JointPage:
    kept = [item for item in stage.decisions if item.rule == "saved"]
    sizes = [size if isinstance(size := item.numbers.get("bytes"), int | float) else 0 for item in kept]
    largest = max(sizes, default=0) or 1
    saved = tuple(
        Saved(
            item.subject, bytes_text(size), round(max(0.0, size / largest * 100), 2), item.reason, source_lines(item.origins, stage.origins)
        )
        for item, size in zip(kept, sizes, strict=True)
    )
    others = tuple(item for item in stage.decisions if item.rule != "saved")
    return JointPage(facts_text(stage.facts), picture(stage), saved, rounds(stage, others), listings(stage))


VIEW = StageView("joint", "Forward and backward as one graph, how it was cut in two, and the tensors saved between them.", page)
