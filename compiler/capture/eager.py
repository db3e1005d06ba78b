"""The ``eager`` stage: which ATen ops one uncompiled call of a region dispatches, one kernel after the other, forward and backward."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map, tree_map_only

from compiler.capture.listing import describe
from compiler.capture.origins import OriginTable
from compiler.observe.own_kernels import launched_kernel
from compiler.recorder import Draft
from compiler.trace import Kernel, Part

MAX_CALLS = 20_000
MAX_KERNELS = 5_000
ALLOCATES = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"}
ASKS = {"sym_size", "sym_stride", "sym_numel", "sym_storage_offset", "layout"}
PARTS: dict[Part, str] = {"forward": "Dispatched ops", "backward": "Dispatched ops of the backward pass"}


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
    part: Part = "forward"

    @property
    def kernel(self) -> bool:
        """Whether it launches a kernel: what moves nothing launches none."""
        return bool(self.read or self.written)


def tensors_in(values: object) -> list[torch.Tensor]:
    if isinstance(values, torch.Tensor):
        return [values]
    if isinstance(values, dict):
        return tensors_in(list(values.values()))
    return [tensor for item in values for tensor in tensors_in(item)] if isinstance(values, list | tuple) else []


def no_leaves(inputs: Sequence[Any]) -> list[Any]:
    """Copies of those that require gradients, since a graph may write to its inputs in place, and nobody may write to a leaf."""
    return [value.clone() if isinstance(value, torch.Tensor) and value.requires_grad else value for value in inputs]


def size_of(tensors: Sequence[torch.Tensor]) -> int:
    """The bytes of the elements that these tensors show, each storage once; an expanded dimension has one element."""
    seen: dict[tuple[int, int], int] = {}
    for tensor in (one.values() if one.is_nested and one.layout == torch.jagged else one for one in tensors):
        count = 1
        for size, stride in zip(tensor.shape, tensor.stride() if tensor.layout == torch.strided else (1,) * tensor.dim(), strict=True):
            count *= size if stride or not size else 1
        seen[id(tensor.untyped_storage()) if tensor.layout != torch.strided else tensor.data_ptr(), count] = count * tensor.element_size()
    return sum(seen.values())


class _Recording(TorchDispatchMode):  # type: ignore[misc]  # torch has no types here
    """Notes each op that reaches the dispatcher below autograd, and those inside of higher-order ones such as ``torch.cond``."""

    supports_higher_order_operators = True

    def __init__(self, keep: bool) -> None:
        super().__init__()
        self.keep = keep
        self.calls: list[OpCall] = []
        self.node = ""
        self.part: Part = "forward"

    def __torch_dispatch__(self, func: Any, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:  # noqa: ANN401
        kwargs = kwargs or {}
        if not isinstance(func, torch._ops.OpOverload):
            return self._higher_order(func, args, kwargs)
        read = tensors_in([args, kwargs])
        inputs = ", ".join(describe(tensor).rpartition(" ")[0] for tensor in read)
        result = func(*args, **kwargs)
        if len(self.calls) < MAX_CALLS:
            written = [tensor.detach() for tensor in tensors_in(result)]
            free = moves_nothing(func, read, written)
            again = _again(func, args, kwargs) if self.keep and not free else None
            sizes = (0, 0) if free else (size_of(read), size_of(written))
            output = ", ".join(describe(tensor).rpartition(" ")[0] for tensor in written)
            self.calls.append(OpCall(str(func), self.node, inputs, output, *sizes, again, self.part))
        return result

    def _higher_order(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401  # a HigherOrderOperator
        """Runs the op's own Python code and the functions that it is given, with each op inside noted."""

        def inside(function: Callable[..., Any]) -> Callable[..., Any]:
            def noted(*values: Any) -> Any:  # noqa: ANN401  # as the function
                with self:
                    return function(*values)

            return noted

        eagerly = op.py_kernels[torch._C.DispatchKey.CompositeExplicitAutograd]
        if kernel := launched_kernel(op, kwargs):  # which of its tensors a kernel writes, only its own code says: they count as read once
            read = tensors_in(kwargs["kwargs"])
            inputs = ", ".join(describe(tensor).rpartition(" ")[0] for tensor in read)
            self.calls.append(OpCall(f"triton.{kernel}", self.node, inputs, "", size_of(read), 0, None, self.part))
            return eagerly(*args, **kwargs)
        if op is torch.ops.higher_order.cond:  # its code asserts that no mode is on, and does nothing but choose
            args, kwargs = tree_map(lambda value: inside(value) if isinstance(value, torch.nn.Module) else value, (args, kwargs))
            return eagerly(*args, **kwargs)
        with self:
            return eagerly(*args, **kwargs)


def moves_nothing(func: Any, read: Sequence[torch.Tensor], written: Sequence[torch.Tensor]) -> bool:  # noqa: ANN401  # an OpOverload
    """Whether the op only gives another view of memory, or memory that it does not write, or asks for a tensor's shape."""
    if any(argument.alias_info and not argument.alias_info.is_write for argument in func._schema.arguments):
        return True
    if func.overloadpacket.__name__ in ALLOCATES | ASKS:
        return True
    storages = {storage for tensor in read if (storage := _storage(tensor)) is not None}
    return not func._schema.is_mutable and bool(written) and all(_storage(tensor) in storages for tensor in written)


def _storage(tensor: torch.Tensor) -> int | None:
    return tensor.untyped_storage()._cdata if tensor.layout == torch.strided else None


def _again(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[[], object]:  # noqa: ANN401  # an OpOverload
    """The op once more; if it writes to its arguments, to copies of them, so that it disturbs no other op's."""
    if not func._schema.is_mutable:
        return lambda: func(*args, **kwargs)
    own: list[tuple[Any, Any]] = []

    def run() -> object:
        if not own:
            own.append(tree_map_only(torch.Tensor, torch.clone, (args, kwargs)))
        return func(*own[0][0], **own[0][1])

    return run


class _Following(torch.fx.Interpreter):  # type: ignore[misc]  # torch has no types here
    """Runs a graph and tells the recording which node it is at, then and again when the node's backward pass runs."""

    def __init__(self, gm: GraphModule, recording: _Recording) -> None:
        super().__init__(gm)
        self.extra_traceback = False  # the graph's text has no place in the program's error
        self.recording = recording
        self.known: set[Any] = set()

    def run_node(self, n: Node) -> Any:  # noqa: ANN401  # any value
        self.recording.node = n.name
        result = super().run_node(n)
        self._follow([tensor.grad_fn for tensor in tensors_in(result)], n.name if n.op != "placeholder" else "")
        return result

    def _follow(self, functions: Sequence[Any], name: str) -> None:
        """The gradient functions that this node made say so when they run."""
        waiting = [function for function in functions if function is not None]
        while waiting:
            function = waiting.pop()
            if function in self.known:
                continue
            self.known.add(function)
            waiting += [before for before, _ in function.next_functions if before is not None]
            if name:
                function.register_prehook(self._at(name))

    def _at(self, name: str) -> Callable[[object], None]:
        def prehook(_: object) -> None:
            self.recording.node = name

        return prehook


@dataclass(frozen=True, slots=True)
class Dispatched:
    """The ops of one call in order. ``failure``: why its backward pass could not be run, "" if it could or there is none."""

    calls: tuple[OpCall, ...]
    failure: str = ""

    def of(self, part: Part) -> list[OpCall]:
        return [call for call in self.calls if call.part == part]


def eager_calls(gm: GraphModule, inputs: Sequence[Any], *, keep: bool = False) -> Dispatched:
    """What one eager call dispatches, and its backward pass where gradients are on and asked for.

    ``keep``: each op can be run again, on the tensors that it had.
    """
    wanted = [value for value in inputs if isinstance(value, torch.Tensor) and value.requires_grad] if torch.is_grad_enabled() else []
    given = no_leaves(inputs)
    recording = _Recording(keep)
    with recording:
        results = _Following(gm, recording).run(*given)
    differentiable = [value for value in tensors_in(results) if value.requires_grad]
    if wanted and differentiable:
        ones = [torch.ones_like(value) for value in differentiable]
        recording.part, recording.node = "backward", ""
        try:
            with recording:
                torch.autograd.grad(differentiable, wanted, ones, allow_unused=True)
        except RuntimeError as error:  # autograd refuses, such as after a write to what it saved; a script need not ask for it
            return Dispatched(tuple(call for call in recording.calls if call.part == "forward"), str(error))
    return Dispatched(tuple(recording.calls))


def describe_eager(draft: Draft, gm: GraphModule, origins: OriginTable, dispatched: Dispatched) -> None:
    """Fills in the stage: one line an op, and one kernel for each that moves memory."""
    calls = dispatched.calls
    nodes = [node.name for node in gm.graph.nodes]
    places = {name: place for place, name in enumerate(nodes)}
    draft.origins = [origins[name] for name in nodes]
    for part, title in PARTS.items():
        own = dispatched.of(part)
        if not own and part == "backward":
            continue
        lines, marks = [], []
        for call in own:
            moved = f"reads {call.read:,} writes {call.written:,} bytes" if call.kernel else "moves nothing"
            lines.append(f"{call.op}({call.inputs}) -> {call.output or 'nothing'}  # {moved}")
            marks.append((places[call.node],) if call.node in places else ())
        draft.section(title, "\n".join(lines) or "None.", "python", marks)
    if dispatched.failure:
        draft.section(PARTS["backward"], f"Autograd refuses to run it: {dispatched.failure}")
    work = [call for call in calls if call.kernel]
    draft.kernels = [
        Kernel(
            name=call.op[:400],
            kind="extern",
            part=call.part,
            library="ATen",
            facts={"bytes_read": call.read, "bytes_written": call.written, "bytes": call.read + call.written},
            origins=(places[call.node],) if call.node in places else (),
        )
        for call in work[:MAX_KERNELS]
    ]
    draft.facts |= {
        "ops": len(calls),
        "kernels": len(work),
        "backward_kernels": sum(call.part == "backward" for call in work),
        "views": len(calls) - len(work),
        "bytes_read": sum(call.read for call in work),
        "bytes_written": sum(call.written for call in work),
    }
