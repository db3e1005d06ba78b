"""Which op, and which line of the visitor's, an exception that nobody foresaw is laid to: found in the frames that it passed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType

import torch
from torch.fx import GraphModule, Node, Tracer

from compiler.errors import CompileError
from compiler.spans import SNIPPET, spans
from compiler.trace import Origin

REPORT = "This is a fault of the compiler: please report it."
OF_EAGER = "Eager PyTorch raises this: the program or its inputs have to change."
UNDERIVED = re.compile(
    r"derivative for '?([\w:]+?)(?:'|: \w+'| is).*not implemented"
    r"|the function '(\w+)' is not differentiable"
    r"|Trying to backward through ([\w.:]+) but no autograd formula"
)
NO_GRADIENT = "PyTorch has no gradient for this op, and eager raises in backward(). Keep gradients away from it: detach() or no_grad()."
NOT_REGISTERED = "Give the op a gradient with torch.library.register_autograd, or keep gradients away from it: detach() or no_grad()."
FORESEEN = (
    (
        re.compile("Inference tensors cannot be saved for backward"),
        "A region that records gradients was called in inference mode, which PyTorch refuses under any compiler. Call it under "
        "torch.no_grad() instead, or compile one function for training and another for inference mode.",
    ),
)
"""What PyTorch raises for every compiler, and what to do about it."""

PYTORCH = os.path.dirname(torch.__file__) + os.sep
OURS = os.path.dirname(__file__) + os.sep
TRACED = "fuselab_traced_at"
"""The attribute of an exception under which ``remember_stack`` keeps the visitor's stack."""


@dataclass(frozen=True, slots=True)
class Place:
    """``line`` is 0 and ``op`` empty where they are not known; ``file`` is the file's name, empty for a submitted snippet."""

    op: str = ""
    line: int = 0
    column: int = 0
    file: str = ""


def blamed(stage: str, error: BaseException) -> CompileError:
    """The exception as one of this stage's, with its place; the caller chains the cause."""
    place = place_of(error)
    return CompileError(
        stage,
        f"{type(error).__name__}: {error}"[:3_000],
        line=place.line,
        column=place.column,
        op=place.op,
        hint=foreseen(error) or (OF_EAGER if stage == "eager" else REPORT),
        file=place.file,
    )


def foreseen(error: BaseException) -> str:
    """What to do about an error that PyTorch raises for every compiler, "" for others."""
    text = str(error)
    if underived := UNDERIVED.search(text):
        return NOT_REGISTERED if underived[3] else NO_GRADIENT
    return next((hint for said, hint in FORESEEN if said.search(text)), "")


def complete(error: CompileError, cause: BaseException) -> None:
    """Gives an error the place that it lacks, from the frames that ``cause`` passed."""
    if error.line and error.op:
        return
    place = place_of(cause)
    error.op = error.op or place.op
    if not error.line:
        error.line, error.column, error.file = place.line, place.column, place.file


def remember_stack(error: BaseException, stack_trace: str) -> None:
    """Keeps the visitor's stack with an exception, where whoever knows it will have forgotten it when the exception is caught."""
    if stack_trace and not hasattr(error, TRACED):
        setattr(error, TRACED, stack_trace)


def place_of(error: BaseException) -> Place:
    """The op whose call failed, and the visitor's line that led to it."""
    found = list(frames(error))
    underived = UNDERIVED.search(str(error))
    if underived and (place := _derived(next(name for name in underived.groups() if name), found)):
        return place
    node = _lowered(found) or _node(found)
    origin = _origin(found)
    op = _overload(found) or (_target(node) if node else "") or (origin.op if origin else "")
    stack = getattr(error, TRACED, "") or (node.meta.get("stack_trace") if node else "") or _forward_stack(found) or ""
    place = placed_at(str(stack))
    if place.line or origin is None:
        return Place(op, place.line, place.column, place.file)
    return Place(op, origin.line, origin.column)


def placed_at(stack_trace: str) -> Place:
    """The innermost frame of a formatted stack that is the visitor's."""
    known = spans(stack_trace)
    own = [one for one in known if one[0] == SNIPPET] or [one for one in known if not one[0].startswith((PYTORCH, OURS))] or known
    if not own:
        return Place()
    file, span = own[-1]
    return Place(line=span.line, column=span.column, file="" if file == SNIPPET else os.path.basename(file))


def frames(error: BaseException) -> Iterator[FrameType]:
    """The frames that an exception passed, innermost first; those of its cause lie deeper."""
    chain: list[FrameType] = []
    one: BaseException | None = error
    for _ in range(10):
        if one is None:
            break
        trace = one.__traceback__
        while trace is not None:
            chain.append(trace.tb_frame)
            trace = trace.tb_next
        one = one.__cause__
    yield from reversed(chain)


def _derived(name: str, found: list[FrameType]) -> Place | None:
    """The op of this name in the graph that was traced when its gradient was asked for, or in the one that was to be traced."""
    name = name.replace("::", ".").removeprefix("aten.").removesuffix(".default")
    graphs = [value.graph for frame in found for value in frame.f_locals.values() if isinstance(value, Tracer | GraphModule)]
    for node in (node for graph in graphs for node in reversed(graph.nodes) if node.op.startswith("call")):
        op = _target(node)
        bare = op.removeprefix("aten.")
        if name in (bare, bare.rpartition(".")[0]):
            place = placed_at(str(node.meta.get("stack_trace") or ""))
            return Place(op if "." in op else f"aten.{op}", place.line, place.column, place.file)
    return None


def _lowered(found: list[FrameType]) -> Node | None:
    """The node that our own code was at: in its outermost frame, since inner ones look at the node's operands."""
    own = [frame for frame in found if frame.f_code.co_filename.startswith(OURS)]
    nodes = [value for frame in own for value in frame.f_locals.values() if isinstance(value, Node) and value.op.startswith("call")]
    return nodes[-1] if nodes else None


def _node(found: list[FrameType]) -> Node | None:
    """The node that an interpreter of PyTorch's was at."""
    for frame in found:
        for value in frame.f_locals.values():
            if isinstance(value, Node) and value.op.startswith("call"):
                return value
    return None


def _overload(found: list[FrameType]) -> str:
    """The innermost op that was called."""
    for frame in found:
        for value in frame.f_locals.values():
            if isinstance(value, torch._ops.OpOverload):
                return str(value)
    return ""


def _target(node: Node) -> str:
    return str(node.target) if isinstance(node.target, str | torch._ops.OpOverload) else str(getattr(node.target, "__name__", node.target))


def _forward_stack(found: list[FrameType]) -> str:
    """Where the forward pass called what a backward pass written in Python failed for."""
    for frame in found:
        context = frame.f_locals.get("ctx")
        if isinstance(context, torch.autograd.function.FunctionCtx):
            metadata = getattr(context, "metadata", None)
            return "".join(metadata.get("traceback_", ())) if isinstance(metadata, dict) else ""
    return ""


def _origin(found: list[FrameType]) -> Origin | None:
    """The origin of the step of the loop IR that our own code was at, in the table of the graph that it belongs to."""
    place: int | None = None
    for frame in found:
        if not frame.f_code.co_filename.startswith(OURS):
            continue
        values = list(frame.f_locals.values())
        if place is None:
            place = next((one for value in values if isinstance(one := getattr(value, "origin", None), int)), None)
        for value in values if place is not None else ():
            table = getattr(value, "origins", None) or getattr(getattr(value, "graph", None), "origins", None)
            if isinstance(table, tuple) and place is not None and place < len(table) and isinstance(table[place], Origin):
                known: Origin = table[place]
                return known
    return None
