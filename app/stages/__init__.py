"""The stage views in tab order, and which regions and parts of a stage are shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app.stages import (
    aten,
    autotune,
    code,
    dynamo,
    eager,
    fusion,
    joint,
    llir,
    loops,
    numerics,
    passes,
    ptx,
    sass,
    timing,
    ttgir,
    ttir,
    wrapper,
)
from app.stages.view import StageView
from compiler.trace import Region, Stage

STAGES: tuple[StageView, ...] = (
    eager.VIEW,
    dynamo.VIEW,
    joint.VIEW,
    passes.VIEW,
    aten.VIEW,
    loops.VIEW,
    fusion.VIEW,
    autotune.VIEW,
    code.VIEW,
    wrapper.VIEW,
    ttir.VIEW,
    ttgir.VIEW,
    llir.VIEW,
    ptx.VIEW,
    sass.VIEW,
    timing.VIEW,
    numerics.VIEW,
)
DEFAULT = "code"
PART_TITLES = {"": "whole", "forward": "forward", "backward": "backward"}


@dataclass(frozen=True, slots=True)
class PartPage:
    """One part of a stage, with what its template shows."""

    stage: Stage
    title: str
    page: object


@dataclass(frozen=True, slots=True)
class Shown:
    """What of a stage is shown: the region chosen, the parts it has there, which of them is chosen ("" for all), and their pages."""

    region: int
    parts: tuple[str, ...]
    part: str
    pages: tuple[PartPage, ...]


def find_view(name: str) -> StageView:
    """The view of that name; the default one for a name that there is not."""
    views: dict[str, StageView] = {view.name: view for view in STAGES}
    return views.get(name, views[DEFAULT])


def shown(view: StageView, stages: Sequence[Stage], regions: Sequence[Region], region: int | None, part: str) -> Shown:
    """The stages that a view reads, narrowed to the region and part asked for; where those are not there, to the first that are."""
    there = sorted({stage.region for stage in stages} | {item.id for item in regions})
    chosen = region if region in there else there[0] if there else 0
    assert chosen is not None
    own = [stage for stage in stages if stage.region == chosen]
    parts = tuple(stage.part for stage in own)
    kept = part if part in parts and len(parts) > 1 else ""
    pages = tuple(PartPage(stage, PART_TITLES[stage.part], view.page(stage)) for stage in own if not kept or stage.part == kept)
    return Shown(chosen, parts, kept, pages)
