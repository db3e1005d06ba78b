"""The private names of Inductor that observing relies on: while ``watching`` is open, what Inductor does is told to a ``Sighting``.

Every wrapper calls Inductor's own function and hands its result on unchanged.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from torch.fx import GraphModule

RELIES_ON = (
    "torch._inductor.compile_fx.compile_fx",
    "torch._inductor.compile_fx.compile_fx_inner",
    "torch._inductor.compile_fx._recursive_post_grad_passes",
    "torch._inductor.config.patch",
    "torch._inductor.config.compile_threads",
    "torch._inductor.config.fx_graph_cache",
    "torch._functorch.config.enable_autograd_cache",
    "torch._inductor.debug.log_ir_pre_fusion",
    "torch._inductor.debug.log_ir_post_fusion",
    "torch._inductor.graph.GraphLowering.save_output_code",
    "torch._inductor.scheduler.Scheduler.can_fuse",
    "torch._inductor.scheduler.Scheduler.fuse_nodes_once",
    "torch._inductor.scheduler.Scheduler.fuse_two_nodes",
    "torch._inductor.scheduler.Scheduler.score_fusion_key",
    "torch._inductor.scheduler.WhyNoFuse.__call__",
)
"""Dotted names, each needed for some stage."""

QUIET_CONFIG = {"compile_threads": 1, "fx_graph_cache": False}


@dataclass(slots=True)
class Pair:
    """Two nodes that the scheduler looked at in one round, with its own words and numbers."""

    round: int
    first: str
    second: str
    legal: bool = False
    reason: str = ""
    score: tuple[tuple[str, float], ...] = ()
    fused: bool = False


@dataclass(slots=True)
class Sighting:
    """What Inductor did for one graph. ``reasons`` counts what its log says of refusals, ``fusions`` of fused pairs."""

    graph: GraphModule | None = None
    before: list[tuple[str, str]] = field(default_factory=list)
    after: list[tuple[str, str, tuple[str, ...]]] = field(default_factory=list)
    pairs: dict[tuple[int, str, str], Pair] = field(default_factory=dict)
    round: int = 0
    reasons: list[str] = field(default_factory=list)
    fusions: int = 0
    code: str = ""

    def pair(self, first: Any, second: Any) -> Pair:  # noqa: ANN401  # scheduler nodes
        key = (self.round, first.get_name(), second.get_name())
        return self.pairs.setdefault(key, Pair(*key))


def missing_names() -> tuple[str, ...]:
    """Those of ``RELIES_ON`` that the installed torch does not have."""
    import importlib

    found = []
    for name in RELIES_ON:
        parts = name.split(".")
        for split in range(len(parts), 0, -1):
            try:
                value: Any = importlib.import_module(".".join(parts[:split]))
            except ModuleNotFoundError:
                continue
            try:
                functools.reduce(getattr, parts[split:], value)
            except AttributeError:
                found.append(name)
            break
    return tuple(found)


def compile_observed(
    gm: GraphModule,
    inputs: Sequence[Any],
    folder: str,
    settings: Mapping[str, Any],
    made: Callable[[bool, Sighting, Callable[..., Any]], Callable[..., Any]],
) -> Callable[..., Any]:
    """Inductor's callable for a graph of Dynamo's. ``made`` gets each compiled part (backward or not) and may wrap it."""
    import torch._functorch.config
    from torch._inductor import config
    from torch._inductor.compile_fx import compile_fx, compile_fx_inner

    def inner(graph: GraphModule, examples: Sequence[Any], **given: Any) -> Callable[..., Any]:  # noqa: ANN401  # Inductor's own
        sighting = Sighting()
        with watching(sighting), patch.dict("os.environ", {"TORCHINDUCTOR_CACHE_DIR": folder}):
            compiled = compile_fx_inner(graph, examples, **given)
        return made(bool(given.get("is_backward")), sighting, compiled)

    with torch._functorch.config.patch(enable_autograd_cache=False), config.patch({**settings, **QUIET_CONFIG}):
        compiled: Callable[..., Any] = compile_fx(gm, list(inputs), inner_compile=inner)
    return compiled


def settings_of(mode: str | None, options: Mapping[str, Any] | None) -> dict[str, Any]:
    """The configuration that ``torch.compile`` sets for these arguments."""
    import torch

    listed: dict[str, Any] = torch._inductor.list_mode_options(mode) if mode else {}
    return {name.replace("-", "_"): value for name, value in {**listed, **(options or {})}.items()}


def config_diff() -> dict[str, str]:
    """The entries of Inductor's configuration that are not at their defaults."""
    from torch._inductor import config

    found: dict[str, Any] = getattr(config, "get_config_copy", dict)()
    default = getattr(config, "_config", {})
    return {name: repr(value)[:200] for name, value in found.items() if name in default and default[name].default != value}


@contextmanager
def watching(sighting: Sighting) -> Iterator[None]:
    """Tells ``sighting`` what Inductor does inside; everything is put back afterwards."""
    from torch._inductor import compile_fx, debug
    from torch._inductor.graph import GraphLowering
    from torch._inductor.scheduler import Scheduler, WhyNoFuse

    said: list[str] = []
    post_grad, pre, post = compile_fx._recursive_post_grad_passes, debug.log_ir_pre_fusion, debug.log_ir_post_fusion
    can_fuse, once, fuse, score, refuse = (
        Scheduler.can_fuse, Scheduler.fuse_nodes_once, Scheduler.fuse_two_nodes, Scheduler.score_fusion_key, WhyNoFuse.__call__,
    )  # fmt: skip

    def passes(gm: GraphModule, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        result = post_grad(gm, *args, **kwargs)
        sighting.graph = gm
        return result

    def loops_before(nodes: Sequence[Any]) -> None:
        pre(nodes)
        sighting.before = [(node.get_name(), node.debug_str()) for node in nodes]

    def loops_after(nodes: Sequence[Any]) -> None:
        post(nodes)
        sighting.after = [(n.get_name(), n.debug_str(), tuple(inner.get_name() for inner in n.get_nodes())) for n in nodes]

    def whether(self: Any, first: Any, second: Any, *args: Any, **kwargs: Any) -> bool:  # noqa: ANN401
        start = len(said)
        legal: bool = can_fuse(self, first, second, *args, **kwargs)
        pair = sighting.pair(first, second)
        pair.legal, pair.reason = legal, "" if legal else said[-1] if len(said) > start else ""
        return legal

    def a_round(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        sighting.round += 1
        return once(self, *args, **kwargs)

    def fused(self: Any, first: Any, second: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        sighting.pair(first, second).fused = True
        sighting.fusions += 1
        return fuse(self, first, second, *args, **kwargs)

    def scored(self: Any, nodes: tuple[Any, Any]) -> Any:  # noqa: ANN401
        result = score(self, nodes)
        parts = result._asdict() if hasattr(result, "_asdict") else getattr(result, "__dict__", {})
        sighting.pair(*nodes).score = tuple((name, value) for name, value in parts.items() if isinstance(value, int | float))
        return result

    def refused(self: Any, reason: str, *args: Any) -> None:  # noqa: ANN401
        refuse(self, reason, *args)
        text = reason % args
        said.append(text)
        sighting.reasons.append(f"{self.name1} {self.name2} {text}")

    def written(code: str) -> None:
        sighting.code = code

    with ExitStack() as stack:
        for owner, name, value in (
            (compile_fx, "_recursive_post_grad_passes", passes), (debug, "log_ir_pre_fusion", loops_before),
            (debug, "log_ir_post_fusion", loops_after), (Scheduler, "can_fuse", whether), (Scheduler, "fuse_nodes_once", a_round),
            (Scheduler, "fuse_two_nodes", fused), (Scheduler, "score_fusion_key", scored), (WhyNoFuse, "__call__", refused),
            (GraphLowering, "save_output_code", staticmethod(written)),
        ):  # fmt: skip
            stack.enter_context(patch.object(owner, name, value))
        yield
