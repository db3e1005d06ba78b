"""The ``eager`` stage: which ATen ops one uncompiled call of a region dispatches, one kernel after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.utils._python_dispatch import TorchDispatchMode

from compiler.capture.listing import describe
from compiler.capture.origins import OriginTable
from compiler.recorder import Draft

MAX_CALLS = 20_000


@dataclass(frozen=True, slots=True)
class OpCall:
    """One dispatched op: its name, the node of Dynamo's graph that needed it, and what it must read and write once, in bytes."""

    op: str
    node: str
    inputs: str
    output: str
    read: int
    written: int
    again: Callable[[], object] | None


def tensors_in(values: object) -> list[torch.Tensor]:
    if isinstance(values, torch.Tensor):
        return [values]
    if isinstance(values, dict):
        return tensors_in(list(values.values()))
    return [tensor for item in values for tensor in tensors_in(item)] if isinstance(values, list | tuple) else []


def size_of(tensors: Sequence[torch.Tensor]) -> int:
    """The bytes of the elements that these tensors show, each storage once; an expanded dimension has one element."""
    seen: dict[tuple[int, int], int] = {}
    for tensor in tensors:
        count = 1
        for size, stride in zip(tensor.shape, tensor.stride() if tensor.layout == torch.strided else (1,) * tensor.dim(), strict=True):
            count *= size if stride or not size else 1
        seen[id(tensor.untyped_storage()) if tensor.layout != torch.strided else tensor.data_ptr(), count] = count * tensor.element_size()
    return sum(seen.values())


class _Recording(TorchDispatchMode):  # type: ignore[misc]  # torch has no types here
    """Notes each op that reaches the dispatcher below autograd."""

    def __init__(self, keep: bool) -> None:
        super().__init__()
        self.keep = keep
        self.calls: list[OpCall] = []
        self.node = ""

    def __torch_dispatch__(self, func: Any, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:  # noqa: ANN401
        kwargs = kwargs or {}
        read = tensors_in([args, kwargs])
        inputs = ", ".join(describe(tensor).rpartition(" ")[0] for tensor in read)
        result = func(*args, **kwargs)
        if len(self.calls) < MAX_CALLS:
            written = tensors_in(result)
            view = any(argument.alias_info and not argument.alias_info.is_write for argument in func._schema.arguments)
            detached = [tensor.detach() for tensor in written]
            again = _again(func, args, kwargs) if self.keep and not view and not func._schema.is_mutable else None
            sizes = (0, 0) if view else (size_of(read), size_of(detached))
            output = ", ".join(describe(tensor).rpartition(" ")[0] for tensor in written)
            self.calls.append(OpCall(str(func), self.node, inputs, output, *sizes, again))
        return result


def _again(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[[], object]:  # noqa: ANN401  # an OpOverload
    return lambda: func(*args, **kwargs)


class _Following(torch.fx.Interpreter):  # type: ignore[misc]  # torch has no types here
    """Runs a graph and tells the recording which node it is at."""

    def __init__(self, gm: GraphModule, recording: _Recording) -> None:
        super().__init__(gm)
        self.recording = recording

    def run_node(self, n: Node) -> Any:  # noqa: ANN401  # any value
        self.recording.node = n.name
        return super().run_node(n)


def eager_calls(gm: GraphModule, inputs: Sequence[Any], *, keep: bool = False) -> list[OpCall]:
    """The ops of one eager call, in order. ``keep``: each can be run again, on the tensors that it had."""
    recording = _Recording(keep)
    with recording:
        _Following(gm, recording).run(*inputs)
    return recording.calls


def describe_eager(draft: Draft, gm: GraphModule, origins: OriginTable, calls: Sequence[OpCall]) -> None:
    """Fills in the stage: one line an op."""
    nodes = [node.name for node in gm.graph.nodes]
    places = {name: place for place, name in enumerate(nodes)}
    draft.origins = [origins[name] for name in nodes]
    lines, marks = [], []
    for call in calls:
        moved = f"reads {call.read:,} writes {call.written:,} bytes" if call.read or call.written else "a view: moves nothing"
        lines.append(f"{call.op}({call.inputs}) -> {call.output or 'nothing'}  # {moved}")
        marks.append((places[call.node],) if call.node in places else ())
    draft.section("Dispatched ops", "\n".join(lines) or "None.", "python", marks)
    work = [call for call in calls if call.read or call.written]
    draft.facts |= {
        "ops": len(calls),
        "kernels": len(work),
        "views": len(calls) - len(work),
        "bytes_read": sum(call.read for call in work),
        "bytes_written": sum(call.written for call in work),
    }
