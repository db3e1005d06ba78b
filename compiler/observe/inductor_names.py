"""Has the real Inductor compile a graph and tells what it does: the stages that can be watched, and those whose private names are missing.

Every wrapper calls Inductor's own function and hands its result on unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol
from unittest.mock import patch

from torch.fx import GraphModule

from compiler.observe import (
    inductor_autotune,
    inductor_code,
    inductor_config,
    inductor_joint,
    inductor_loops,
    inductor_passes,
    inductor_scheduler,
)
from compiler.observe.inductor_autotune import TuneLog, watching_autotune
from compiler.observe.inductor_code import CodeLog, watching_code
from compiler.observe.inductor_joint import watching_partition
from compiler.observe.inductor_loops import View, view_of, with_bytes
from compiler.observe.inductor_passes import PassLog, watching_passes
from compiler.observe.inductor_scheduler import FusionLog, watching_scheduler
from compiler.observe.missing import missing_names

CORE = (
    "torch._inductor.compile_fx.compile_fx",
    "torch._inductor.compile_fx.compile_fx_inner",
    "torch._inductor.config.compile_threads",
    "torch._inductor.config.fx_graph_cache",
    "torch._functorch.config.enable_autograd_cache",
    "torch._functorch.config.force_non_lazy_backward_lowering",
    "torch._functorch.config.donated_buffer",
)
NEEDED: dict[str, tuple[str, ...]] = {
    "joint": inductor_joint.RELIES_ON,
    "passes": inductor_passes.RELIES_ON,
    "loops": inductor_loops.RELIES_ON,
    "fusion": inductor_scheduler.RELIES_ON,
    "autotune": inductor_autotune.RELIES_ON,
    "code": inductor_code.RELIES_ON,
}
"""The private names that each stage needs."""
RELIES_ON = (*CORE, *(name for names in NEEDED.values() for name in names), *inductor_config.RELIES_ON)

QUIET_CONFIG = {"compile_threads": 1, "fx_graph_cache": False}
"""What differs from a usual compilation: no other processes, and nothing taken from a cache, where there would be nothing to see."""


@dataclass(slots=True)
class Sighting:
    """What Inductor did for one part. ``config``: the entries in force that are not at their defaults, with these."""

    fusion: FusionLog = field(default_factory=FusionLog)
    code: CodeLog = field(default_factory=CodeLog)
    tuning: TuneLog = field(default_factory=TuneLog)
    before: list[View] = field(default_factory=list)
    after: list[View] = field(default_factory=list)
    config: dict[str, tuple[str, str]] = field(default_factory=dict)
    times: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0


class Told(Protocol):
    """Who is told what happens while one region is compiled."""

    def joint(self, gm: GraphModule) -> None:
        """AOTAutograd has traced forward and backward together, and nothing has changed that graph yet."""

    def cut(self, forward: GraphModule, backward: GraphModule, forward_outputs: int) -> None:
        """The joint graph was partitioned."""

    def begin(self, backward: bool, gm: GraphModule) -> None:
        """A part is about to be compiled."""

    def made(self, backward: bool, gm: GraphModule, sighting: Sighting, compiled: Callable[..., Any]) -> Callable[..., Any]:
        """A part was compiled; what is returned runs in its place."""


@dataclass(frozen=True, slots=True)
class Lacking:
    """The private names that the installed torch does not have: those without which nothing runs, and by stage."""

    core: tuple[str, ...]
    stages: Mapping[str, tuple[str, ...]]


def lacking() -> Lacking:
    return Lacking(missing_names(CORE), {stage: found for stage, names in NEEDED.items() if (found := missing_names(names))})


def compile_observed(
    gm: GraphModule,
    inputs: Sequence[Any],
    folder: str,
    settings: Mapping[str, Any],
    told: Told,
    passes: PassLog,
) -> Callable[..., Any]:
    """Inductor's callable for a graph of Dynamo's. ``settings`` is the configuration that ``torch.compile`` was given."""
    import torch._functorch.config as functorch
    from torch._inductor import config
    from torch._inductor.compile_fx import compile_fx, compile_fx_inner

    missing = lacking().stages

    def inner(graph: GraphModule, examples: Sequence[Any], **given: Any) -> Callable[..., Any]:  # noqa: ANN401  # Inductor's own
        backward = bool(given.get("is_backward"))
        told.begin(backward, graph)
        sighting = Sighting(config=inductor_config.config_diff())
        with config.patch(QUIET_CONFIG), _in_folder(folder), watching(sighting, passes, missing):
            compiled = compile_fx_inner(graph, examples, **given)
        return told.made(backward, graph, sighting, compiled)

    with ExitStack() as stack:
        stack.enter_context(functorch.patch(enable_autograd_cache=False))
        if "joint" not in missing:
            stack.enter_context(watching_partition(told))
        if "passes" not in missing:
            stack.enter_context(watching_passes(passes))
        compiled: Callable[..., Any] = compile_fx(gm, list(inputs), inner_compile=inner, config_patches=dict(settings) or None)
    return compiled


@contextmanager
def usual_autograd(compiler: str) -> Iterator[None]:
    """AOTAutograd as PyTorch has it by default for Inductor, whose code depends on it.

    Our own backward passes write to no saved tensor, and may be run again; a donated one would forbid it.
    """
    import torch._functorch.config as functorch

    with functorch.patch(force_non_lazy_backward_lowering=False) if compiler == "inductor" else functorch.patch(donated_buffer=False):
        yield


def _in_folder(folder: str) -> AbstractContextManager[object]:
    found: AbstractContextManager[object] = patch.dict("os.environ", {"TORCHINDUCTOR_CACHE_DIR": folder})
    return found


@contextmanager
def watching(sighting: Sighting, passes: PassLog, missing: Mapping[str, tuple[str, ...]]) -> Iterator[None]:
    """Tells ``sighting`` what Inductor does for one part inside; everything is put back afterwards."""
    import time

    times, counts, start = inductor_config.phase_times(), inductor_config.counters(), time.perf_counter()
    watches: tuple[tuple[str, Callable[[], AbstractContextManager[None]]], ...] = (
        ("passes", lambda: watching_passes(passes)),
        ("loops", lambda: watching_loops(sighting)),
        ("fusion", lambda: watching_scheduler(sighting.fusion)),
        ("autotune", lambda: watching_autotune(sighting.tuning)),
        ("code", lambda: watching_code(sighting.code)),
    )
    with ExitStack() as stack:
        for name, watch in watches:
            if name not in missing:
                stack.enter_context(watch())
        yield
    sighting.seconds = time.perf_counter() - start
    sighting.times = _difference(times, inductor_config.phase_times())
    sighting.counts = _difference(counts, inductor_config.counters())


def _difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value - before.get(name, 0) for name, value in after.items() if value != before.get(name, 0)}


@contextmanager
def watching_loops(sighting: Sighting) -> Iterator[None]:
    """Tells ``sighting`` of the scheduler's nodes before and after fusion."""
    from torch._inductor import debug

    pre, post = debug.log_ir_pre_fusion, debug.log_ir_post_fusion

    def loops_before(nodes: Sequence[Any]) -> None:
        pre(nodes)
        if not sighting.before:  # subgraphs have schedulers of their own, which end first
            sighting.before = [view_of(node) for node in nodes]

    def loops_after(nodes: Sequence[Any]) -> None:
        post(nodes)
        sighting.after = [with_bytes(view_of(node), node) for node in nodes]

    with patch.object(debug, "log_ir_pre_fusion", loops_before), patch.object(debug, "log_ir_post_fusion", loops_after):
        yield
