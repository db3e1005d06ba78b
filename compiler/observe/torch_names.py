"""The private names of PyTorch that capture relies on, each behind a function of ours; a test lists and checks them all."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node

RELIES_ON = (
    "torch._C._dispatch_get_all_op_names",
    "torch._guards.TracingContext.try_get",
    "torch._guards.Guard.create_fn_name",
    "torch._dynamo.backends.common.aot_autograd",
    "torch._dynamo.optimize",
    "torch._dynamo.reset",
    "torch._dynamo.config.patch",
    "torch._dynamo.exc.BackendCompilerFailed",
    "torch._dynamo.exc.TorchDynamoException",
    "torch._dynamo.exc.exceptions_allowed_to_be_fallback",
    "torch.fx.experimental.symbolic_shapes.GuardOnDataDependentSymNode",
    "torch._dynamo.exc.FailOnRecompileLimitHit",
    "torch._functorch.config.patch",
    "torch._functorch.config.force_non_lazy_backward_lowering",
    "torch._functorch.partitioners.min_cut_rematerialization_partition",
    "torch._decomp.core_aten_decompositions",
    "torch._decomp.get_decompositions",
    "torch.fx.experimental.symbolic_shapes.ConstraintViolationError",
    "torch.utils._python_dispatch._disable_current_modes",
    "torch.utils._python_dispatch.TorchDispatchMode",
)
"""Dotted names, without those that ``torch.fx`` and ``torch.compile`` document."""


@dataclass(frozen=True, slots=True)
class GuardRow:
    """A guard: of which kind, what it watches, as which Python conditions, and the user's frames that led to it, outermost first."""

    kind: str
    subject: str
    code: tuple[str, ...]
    frames: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Break:
    """Why Dynamo ended a graph before the function's end, and the user's frames at that place, outermost first: (file, line)."""

    reason: str
    frames: tuple[tuple[str, int], ...]


def guard_rows(context: Any = None) -> tuple[GuardRow, ...]:  # noqa: ANN401  # a TracingContext
    """What must hold for a graph to be used again: by default for the one being compiled right now."""
    context = context or torch._guards.TracingContext.try_get()
    if context is None:
        return ()
    rows = [
        GuardRow(g.create_fn_name(), str(g.name), tuple(g.code_list or ()), tuple((f.filename, f.lineno or 0) for f in g.user_stack or ()))
        for g in context.guards_context.dynamo_guards
    ]
    return tuple(sorted(set(rows), key=lambda row: (row.kind != "TENSOR_MATCH", row.kind, row.subject)))


def graph_break(gm: GraphModule) -> Break | None:
    """The graph break that ended this graph, or None when it ends because the function does."""
    reason = getattr(gm, "compile_subgraph_reason", None)
    if reason is None or not reason.graph_break:
        return None
    return Break(str(reason.reason), tuple((frame.filename, frame.lineno or 0) for frame in reason.user_stack))


def mutated_inputs() -> tuple[int, ...]:
    """The places of the inputs that the graph being compiled right now writes to."""
    context = torch._guards.TracingContext.try_get()
    if context is None or context.fw_metadata is None:
        return ()
    return tuple(place for place, info in enumerate(context.fw_metadata.input_info) if info.mutates_data or info.mutates_metadata)


def keep_saved_tensors() -> None:
    """Gives none of the tensors that are saved for the backward part away to it: nothing of ours writes over them, and it may run again.

    To be called while the forward part is compiled, when AOTAutograd has listed them. Without it ``retain_graph=True`` is refused.
    """
    context = torch._guards.TracingContext.try_get()
    donated = getattr(context.fw_metadata, "bw_donated_idxs", None) if context is not None else None
    if donated:
        donated.clear()  # the one list that the descriptions of the region with and without its tensor subclasses share


def input_place(node: Node) -> int | None:
    """Which input of Dynamo's graph a placeholder of AOTAutograd's stands for, None for tangents and saved values."""
    place = getattr(node.meta.get("desc"), "idx", None)
    return place if isinstance(place, int) and type(node.meta["desc"]).__name__ == "PlainAOTInput" else None


def fx_node_name(node: Node) -> str:
    """The node of Dynamo's graph that a node of AOTAutograd's came from, "" when it is not known."""
    sources = node.meta.get("from_node")
    if sources:
        return str(sources[0].name)
    stack = node.meta.get("fwd_source_fn_stack") or node.meta.get("source_fn_stack")
    return str(stack[-1][0]) if stack else ""


def aot_compile(
    gm: GraphModule,
    inputs: Sequence[Any],
    forward: Callable[[GraphModule, Sequence[Any]], Callable[..., Any]],
    backward: Callable[[GraphModule, Sequence[Any]], Callable[..., Any]],
    decompositions: dict[Any, Callable[..., Any]],
    joint: Callable[[GraphModule], Callable[[GraphModule, GraphModule, int], None]],
) -> Callable[..., Any]:
    """AOTAutograd with the min-cut partitioner. Both compilers get a graph and its fake inputs, at once.

    Where there is something to partition, ``joint`` is called with the graph before that, and what it returns with both parts after it, and
    with the number of results of the forward part that are not only saved for the backward one.
    """
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    def partition(gm: GraphModule, inputs: Sequence[Any], *, num_fwd_outputs: int, **rest: Any) -> tuple[GraphModule, GraphModule]:  # noqa: ANN401
        told = joint(gm)
        parts: tuple[GraphModule, GraphModule] = min_cut_rematerialization_partition(gm, inputs, num_fwd_outputs=num_fwd_outputs, **rest)
        told(*parts, num_fwd_outputs)
        return parts

    backend = aot_autograd(fw_compiler=forward, bw_compiler=backward, partition_fn=partition, decompositions=decompositions)
    with _functorch_settings():
        compiled: Callable[..., Any] = backend(gm, inputs)
    return compiled


def _functorch_settings() -> AbstractContextManager[None]:
    from torch._functorch import config

    # The backward part is compiled with the forward part, so that it is shown even if the script never calls it.
    settings: AbstractContextManager[None] = config.patch(force_non_lazy_backward_lowering=True)
    return settings


def real_tensors() -> AbstractContextManager[object]:
    """What runs inside computes with real tensors, although AOTAutograd calls compilers while it traces with fake ones."""
    from torch.utils._python_dispatch import _disable_current_modes

    modes: AbstractContextManager[object] = _disable_current_modes()
    return modes


def decomposition_table(names: Sequence[str]) -> dict[Any, Callable[..., Any]]:
    """PyTorch's core ATen decompositions and those of the named packets, such as ``_softmax``."""
    from torch._decomp import core_aten_decompositions, get_decompositions

    packets = [getattr(torch.ops.aten, name) for name in names if hasattr(torch.ops.aten, name)]
    return {**core_aten_decompositions(), **get_decompositions(packets)}


def aten_overloads(prefix: str) -> list[Any]:
    """All overloads of ATen whose names begin so, functional and in-place ones."""
    found = []
    for full in sorted(torch._C._dispatch_get_all_op_names()):
        packet, _, overload = full.removeprefix("aten::").partition(".")
        if full.startswith("aten::") and packet.startswith(prefix):
            found.append(getattr(getattr(torch.ops.aten, packet), overload or "default"))
    return found


def optimize(backend: Callable[..., Any], *, fullgraph: bool, dynamic: bool | None) -> Callable[[Any], Any]:
    """Dynamo with this backend, as a decorator for functions and modules."""
    decorate: Callable[[Any], Any] = torch._dynamo.optimize(backend, nopython=fullgraph, dynamic=dynamic)
    return decorate


@contextmanager
def fresh_dynamo() -> Iterator[None]:
    """Dynamo without anything that it remembers of other snippets; its logs stay quiet."""
    import logging

    torch._dynamo.reset()
    with ExitStack() as stack:
        stack.enter_context(torch._dynamo.config.patch(suppress_errors=False, verbose=False))
        stack.enter_context(_functorch_settings())
        # What they have to say reaches the visitor as a problem or a decision.
        for name in ("torch", "torch._dynamo", "torch._subclasses.fake_tensor"):
            logger = logging.getLogger(name)
            stack.callback(logger.setLevel, logger.level)
            logger.setLevel(logging.CRITICAL)
        yield
    torch._dynamo.reset()


def is_untraceable(error: BaseException) -> bool:
    """Dynamo met what it cannot trace, where a graph break was not allowed."""
    return isinstance(error, torch._dynamo.exc.Unsupported)


def is_compiled_too_often(error: BaseException) -> bool:
    """Dynamo would have had to compile a function more often than its limit allows, and may not leave it to eager."""
    return isinstance(error, getattr(torch._dynamo.exc, "FailOnRecompileLimitHit", ()))


def is_broken_promise(error: BaseException) -> bool:
    """A size was promised to stay open, such as by mark_dynamic, and the code needs its value."""
    from torch.fx.experimental import symbolic_shapes

    return isinstance(error, getattr(symbolic_shapes, "ConstraintViolationError", ()))


def cause(error: BaseException) -> BaseException:
    """What was raised inside a compiler that Dynamo called, instead of Dynamo's own wrapping of it."""
    while (inner := getattr(error, "inner_exception", None)) is not None:
        error = inner
    return error


def awaited() -> tuple[type[BaseException], ...]:
    """The exceptions that Dynamo waits for from a backend: to trace anew, to leave a frame to eager, or to break the graph."""
    from torch._dynamo import exc
    from torch.fx.experimental import symbolic_shapes

    return (
        exc.TorchDynamoException,
        *exc.exceptions_allowed_to_be_fallback,
        symbolic_shapes.GuardOnDataDependentSymNode,
        symbolic_shapes.ConstraintViolationError,
    )


def user_frames(error: BaseException) -> list[traceback.FrameSummary]:
    """The user's frames at the place that Dynamo was tracing when it raised, outermost first; empty for other exceptions."""
    stack = getattr(error, "real_stack", None)
    return list(stack) if stack else []
