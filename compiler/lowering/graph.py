"""Walks an ATen graph node by node and collects buffers and steps; each op finds its rule in ``RULES``, in the op table, or becomes an
extern call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, cast

import torch
from torch.fx import Node

from compiler.errors import CompileError, Unsupported
from compiler.ir import DTYPES, Argument, Buffer, Extern, Graph, OpenNumber, Ref, Step, Symbol, Value, item_bytes
from compiler.lowering.nests import NestBuilder, row_major
from compiler.lowering.split import split_reduction
from compiler.sizes import Binding, Size, Sym
from compiler.target import Target
from compiler.trace import Decision, Origin, Scalar

CONTIGUOUS = (("memory_format", Symbol("torch.contiguous_format")),)
Result = Ref | Symbol | OpenNumber | None | tuple["Result", ...]
Rule = Callable[["Lowering", Node], Result]
RULES: dict[str, Rule] = {}
RESERVED = {"torch", "triton", "tl", "libdevice", "math", "call", "args", "kernels", "constants", "main"}


def lowers(*overloads: str) -> Callable[[Rule], Rule]:
    """Registers the rule for ATen overloads such as ``aten.cat.default``; a second rule for one of them is an error at import."""

    def register(rule: Rule) -> Rule:
        for overload in overloads:
            if overload in RULES:
                raise ValueError(f"{overload} has two lowering rules")
            RULES[overload] = rule
        return rule

    return register


def overload_name(target: object) -> str:
    """``aten.add.Tensor`` for the OpOverload; the plain name of anything else that a graph can call."""
    return str(target) if isinstance(target, torch._ops.OpOverload) else getattr(target, "__name__", str(target))


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


class TracedSizes(Protocol):
    """The open sizes of the graph that is being lowered; ``compiler.observe.open_sizes`` has them."""

    def size(self, value: object) -> Size: ...

    def python(self, value: object) -> str: ...

    def specialise(self, name: str) -> None: ...


@dataclass(slots=True)
class Lowering:
    """The state of lowering one graph. ``results`` maps FX nodes to views of buffers, numbers, or tuples of them."""

    target: Target
    retarget: bool
    results: dict[Node, Result] = field(default_factory=dict)
    buffers: dict[str, Buffer] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    constants: dict[str, Any] = field(default_factory=dict)
    decisions: list[Decision] = field(default_factory=list)
    origins: list[Origin] = field(default_factory=list)
    origin: int = 0
    storages: dict[int, tuple[str, Size]] = field(default_factory=dict)
    copies: dict[Ref, Ref] = field(default_factory=dict)
    filled: dict[str, OpenNumber] = field(default_factory=dict)
    sizes: TracedSizes | None = None
    symbols: list[Binding] = field(default_factory=list)

    # -- buffers and views

    def device(self, meta: torch.Tensor) -> str:
        return "cuda" if self.retarget and self.target.is_gpu else meta.device.type

    def must_be_here(self, device: str, what: str) -> None:
        """Raises Unsupported for memory that the kernels cannot use, such as that of meta tensors, which have none."""
        if device != ("cuda" if self.target.is_gpu else "cpu"):
            raise Unsupported("loops", f"{what} is on {device}, but the kernels are for {self.target.name}")

    def fresh_name(self, name: str) -> str:
        if name in self.buffers or name in RESERVED:
            name = next(f"{name}_{k}" for k in range(1, len(self.buffers) + 2) if f"{name}_{k}" not in self.buffers)
        return name

    def size(self, value: object) -> Size:
        """A size of PyTorch's as one of ours."""
        if isinstance(value, Sym):
            return value
        if isinstance(value, torch.SymInt) and self.sizes is not None:
            return self.sizes.size(value)
        if isinstance(value, torch.SymInt):
            raise CompileError("loops", f"the size {value} is symbolic", hint="compile with dynamic=False")
        return int(cast(int, value))

    def shape(self, meta: torch.Tensor) -> tuple[Size, ...]:
        return tuple(map(self.size, meta.shape))

    def strides(self, meta: torch.Tensor) -> tuple[Size, ...]:
        return tuple(map(self.size, meta.stride()))

    def offset(self, meta: torch.Tensor) -> Size:
        return self.size(meta.storage_offset())

    def buffer(self, name: str, meta: torch.Tensor) -> Buffer:
        """A new buffer laid out as eager lays out ``meta``."""
        shape, layout = self.shape(meta), str(meta.layout).removeprefix("torch.")
        strides = self.strides(meta) if layout == "strided" else row_major(shape)
        return self.new_buffer(name, dtype_name(meta.dtype), shape, strides, self.device(meta), layout)

    def new_buffer(
        self, name: str, dtype: str, shape: Sequence[Size], strides: Sequence[Size], device: str, layout: str = "strided"
    ) -> Buffer:
        made = Buffer(self.fresh_name(name), dtype, tuple(map(self.size, shape)), tuple(map(self.size, strides)), device, layout)
        self.buffers[made.name] = made
        return made

    def own(self, buffer: Buffer, meta: torch.Tensor) -> Ref:
        """Remember that ``meta``'s storage is this buffer, so that later views of it are found; the view of the whole buffer."""
        if buffer.layout == "strided":
            self.storages[meta.untyped_storage()._cdata] = buffer.name, self.offset(meta)
        return self.whole(buffer)

    def whole(self, buffer: Buffer) -> Ref:
        return Ref(buffer.name, buffer.shape, buffer.strides)

    def placed(self, buffer: Buffer, before: Size, meta: torch.Tensor) -> Ref | None:
        """``meta`` as a view of the buffer that begins ``before`` of its elements into ``meta``'s storage, or None."""
        if meta.layout != torch.strided or buffer.layout != "strided" or meta.is_conj() or meta.is_neg():
            return None
        dtype = dtype_name(meta.dtype)
        if dtype == buffer.dtype:
            return Ref(buffer.name, self.shape(meta), self.strides(meta), self.offset(meta) - before)
        start = in_items_of(before, buffer.dtype, dtype)
        return None if start is None else Ref(buffer.name, self.shape(meta), self.strides(meta), self.offset(meta) - start, dtype)

    def view(self, meta: object) -> Ref | None:
        """``meta`` as a strided view of a buffer that exists already, or None."""
        if not isinstance(meta, torch.Tensor) or meta.layout != torch.strided:
            return None
        known = self.storages.get(meta.untyped_storage()._cdata)
        return None if known is None else self.placed(self.buffers[known[0]], known[1], meta)

    def seen_through(self, node: Node, meta: object) -> Ref | None:
        """``meta`` as a view of the operand of the node that it shares storage with, or else of a buffer that exists already, or None.

        The operand goes first: inputs of a graph, such as the gradients of several views, may share storage in their descriptions, and
        come as tensors of their own when it runs.
        """
        if not isinstance(meta, torch.Tensor) or meta.layout != torch.strided:
            return None
        storage = meta.untyped_storage()._cdata
        for operand in node.all_input_nodes:
            base = operand.meta.get("val")
            if isinstance(base, torch.Tensor) and base.layout == torch.strided and base.untyped_storage()._cdata == storage:
                found = self.view_of(operand, meta)
                if found is not None:
                    return found
        return self.view(meta)

    def view_of(self, operand: object, meta: object) -> Ref | None:
        """``meta`` as a view of an operand, whatever storage is on record for it, or None.

        AOTAutograd makes one node of equal ones, and views of those that are gone still name their storage.
        """
        base = operand.meta.get("val") if isinstance(operand, Node) else None
        ref = self.results.get(operand) if isinstance(operand, Node) else None
        if not isinstance(ref, Ref) or not isinstance(base, torch.Tensor) or not isinstance(meta, torch.Tensor):
            return None
        buffer = self.buffers[ref.buffer]
        if base.layout != torch.strided:
            return None
        before = in_items_of(self.offset(base) - ref.offset, ref.dtype or buffer.dtype, buffer.dtype)
        found = None if before is None else self.placed(buffer, before, meta)
        if found is not None and before is not None:
            self.storages.setdefault(meta.untyped_storage()._cdata, (ref.buffer, before))
        return found

    # -- trying a rule

    def mark(self) -> tuple[int, int, int, int]:
        return len(self.steps), len(self.decisions), len(self.buffers), len(self.storages)

    def undo(self, mark: tuple[int, int, int, int]) -> None:
        """Forget what a rule did before it gave up."""
        steps, decisions, buffers, storages = mark
        del self.steps[steps:]
        del self.decisions[decisions:]
        while len(self.buffers) > buffers:
            self.buffers.popitem()
        while len(self.storages) > storages:
            self.storages.popitem()

    # -- what rules ask for

    def meta(self, node: Node) -> torch.Tensor:
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor):
            raise Unsupported("loops", "the result is not one tensor", op=overload_name(node.target))
        return value

    def ref(self, node: object) -> Ref:
        """The tensor that an FX argument stands for, in a dtype that nests can compute with."""
        result = self.results.get(node) if isinstance(node, Node) else None
        if not isinstance(result, Ref):
            raise Unsupported("loops", "an operand is not a tensor")
        if self.dtype(result) not in DTYPES:
            raise Unsupported("loops", f"loops have no arithmetic for {self.dtype(result)}")
        buffer = self.buffers[result.buffer]
        if buffer.layout != "strided":
            raise Unsupported("loops", f"an operand's layout is {buffer.layout}")
        self.must_be_here(buffer.device, "an operand")
        return self.as_it_is_seen(cast(Node, node), result) if result.dtype else result

    def as_it_is_seen(self, node: Node, seen: Ref) -> Ref:
        """A copy of memory that is seen as another dtype, for loops, which know a buffer by one."""
        known = self.copies.get(seen)
        if known is not None and known.buffer in self.buffers:
            return known
        name = self.fresh_name(f"{node.name}_copy")
        made = self.temporary(name, seen.dtype, seen.shape)
        reason = "Memory is read as another dtype: loops know a buffer by one dtype, and PyTorch's own kernel copies it."
        op = overload_name(node.target)
        self.steps.append(
            Extern(name, op, "torch.ops.aten.clone.default", (seen,), CONTIGUOUS, (name,), True, "ATen", "unsupported", reason, self.origin)
        )
        numbers: dict[str, Scalar] = {"op": op, "library": "ATen"}
        self.decisions.append(
            Decision(subject=name, verdict="extern", rule="unsupported", reason=reason, numbers=numbers, origins=(self.origin,))
        )
        self.copies[seen] = self.whole(made)
        return self.copies[seen]

    def dtype(self, ref: Ref) -> str:
        return ref.dtype or self.buffers[ref.buffer].dtype

    def number(self, argument: object) -> OpenNumber:
        if isinstance(argument, Node):
            argument = self.results.get(argument)
        if isinstance(argument, bool | int | float | Sym):
            return argument
        raise Unsupported("loops", f"a number is needed, not {argument!r}")

    def whole_number(self, argument: object) -> Size:
        """A size, or a number that is used as one."""
        number = self.number(argument)
        return number if isinstance(number, Sym) else int(number)

    def builder(self, loops: Sequence[Size], reduction: Sequence[Size] = ()) -> NestBuilder:
        return NestBuilder(tuple(map(self.size, loops)), tuple(map(self.size, reduction)), self.origin, self.filled)

    def finish(self, node: Node, builder: NestBuilder, value: Value) -> Ref:
        """Store ``value`` as the node's result, laid out and typed as eager's."""
        meta = self.meta(node)
        buffer = self.output(node.name, meta)
        builder.store(buffer, value)
        self.emit(builder, buffer.name, overload_name(node.target))
        return self.own(buffer, meta)

    def output(self, name: str, meta: torch.Tensor) -> Buffer:
        if dtype_name(meta.dtype) not in DTYPES:
            raise Unsupported("loops", f"loops have no arithmetic for {dtype_name(meta.dtype)}")
        self.must_be_here(self.device(meta), "the result")
        if meta.layout != torch.strided:
            raise Unsupported("loops", f"the result's layout is {meta.layout}")
        return self.buffer(name, meta)

    def emit(self, builder: NestBuilder, name: str, op: str) -> None:
        """Add the nest, in two steps where a long reduction with few results would leave the GPU idle."""
        nest = builder.nest(name, op)
        split = split_reduction(nest, self.buffers, self.target)
        if split is None:
            self.steps.append(nest)
            return
        partial, final, buffer, decision = split
        self.buffers[buffer.name] = buffer
        self.steps += [partial, final]
        self.decisions.append(decision)

    def temporary(self, name: str, dtype: str, shape: Sequence[Size]) -> Buffer:
        """A contiguous buffer for a value that the ATen graph has no node for."""
        is_open = any(isinstance(size, Sym) for size in shape)
        strides = row_major(shape) if is_open else torch.empty(cast("tuple[int, ...]", tuple(shape)), device="meta").stride()
        return self.new_buffer(name, dtype, shape, strides, "cuda" if self.target.is_gpu else "cpu")

    # -- extern calls

    def argument(self, value: object) -> Argument:
        match value:
            case Node():
                return self.result_argument(self.results[value])
            case torch.dtype() | torch.layout() | torch.memory_format():
                return Symbol(str(value))
            case torch.device():
                return Symbol(f"torch.device('{'cuda' if self.retarget and self.target.is_gpu else value.type}')")
            case torch._ops.OpOverload():
                return Symbol(f"torch.ops.{value}")
            case list() | tuple():
                return tuple(self.argument(item) for item in value)
            case slice():
                return Symbol(repr(value))
            case bool() | int() | float() | str() | None | Sym():
                return value
            case torch.SymInt():
                return self.size(value)
            case complex():
                return Symbol(repr(value))
            case _:
                raise CompileError("loops", f"an argument of type {type(value).__name__} cannot be passed on", hint="report this program")

    def result_argument(self, result: Result) -> Argument:
        return tuple(self.result_argument(item) for item in result) if isinstance(result, tuple) else result

    def extern(self, node: Node, library: str, rule: str, reason: str) -> Result:
        """A call of the op itself."""
        value = node.meta.get("val")
        single = isinstance(value, torch.Tensor)
        metas = [value] if single else list(value) if isinstance(value, list | tuple) else []
        if value is not None and not metas and not isinstance(value, list | tuple):
            raise CompileError("loops", "the result is a number that is only known when the program runs", op=overload_name(node.target))
        results: list[Result] = []
        names: list[str | None] = []
        for position, meta in enumerate(metas):
            if isinstance(meta, torch.Tensor):
                buffer = self.buffer(node.name if single else f"{node.name}_{position}", meta)
                results.append(self.own(buffer, meta))
                names.append(buffer.name)
            else:
                results.append(None)
                names.append(None)
        kwargs = tuple((name, self.argument(item)) for name, item in node.kwargs.items())
        arguments = tuple(self.argument(item) for item in node.args)
        op = overload_name(node.target)
        call = copying(node.target)
        self.steps.append(Extern(node.name, op, call, arguments, kwargs, tuple(names), single, library, rule, reason, self.origin))
        facts: dict[str, Scalar] = {"op": op, "library": library}
        decision = Decision(subject=node.name, verdict="extern", rule=rule, reason=reason, numbers=facts, origins=(self.origin,))
        self.decisions.append(decision)
        return results[0] if single else tuple(results)

    def graph(self, inputs: Sequence[str | None], outputs: Sequence[Ref | Symbol | OpenNumber | None]) -> Graph:
        """The finished graph, without nests whose results nobody reads.

        Such results of calls have no name: a library may leave them out, whatever its description says.
        """
        used = {output.buffer for output in outputs if isinstance(output, Ref)}
        kept: list[Step] = []
        for step in reversed(self.steps):
            if isinstance(step, Extern):
                step = replace(step, outputs=tuple(name if name in used else None for name in step.outputs))
                used |= {ref.buffer for ref in step.refs()}
            elif step.store.buffer in used:
                used |= {line.buffer for line in step.loads()}
            else:
                continue
            kept.append(step)
        tensors = tuple(name for name, value in self.constants.items() if isinstance(value, torch.Tensor))
        steps = tuple(kept[::-1])
        symbols = tuple(self.symbols)
        return Graph(self.buffers, tuple(inputs), tensors, steps, tuple(outputs), tuple(self.origins), symbols)


def in_items_of(elements: Size, dtype: str, other: str) -> Size | None:
    """So many elements of a dtype, counted in elements of another; None where they may end inside one."""
    have, want = item_bytes(dtype), item_bytes(other)
    if have % want == 0:
        return elements * (have // want)
    return None if isinstance(elements, Sym) or elements * have % want else elements * have // want


def copying(target: object) -> str:
    """The call of an op, in its ``_copy`` form where it is a view that loops cannot express, such as a reinterpretation of complex
    numbers.
    """
    if not isinstance(target, torch._ops.OpOverload):
        return f"torch.ops.higher_order.{overload_name(target)}"
    namespace, packet, overload = str(target).split(".")
    copy = getattr(torch.ops.aten, f"{packet}_copy", None) if namespace == "aten" else None
    if copy is not None and any(result.alias_info is not None for result in target._schema.returns):
        return f"torch.ops.aten.{packet}_copy.{overload if overload in copy.overloads() else 'default'}"
    return f"torch.ops.{target}"


@dataclass(frozen=True, slots=True)
class Lowered:
    """``constants`` holds the tensors and inner graphs that the loop IR names."""

    graph: Graph
    constants: Mapping[str, Any]
    decisions: tuple[Decision, ...]
