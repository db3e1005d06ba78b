"""Builds one loop nest at a time: broadcasting loads, typed values, one store; then puts the loops in memory order and merges them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Literal, cast

import torch

from compiler.ir import (
    Apply,
    Buffer,
    Constant,
    DType,
    Line,
    Load,
    Nest,
    Number,
    OpenNumber,
    Over,
    Position,
    Reduce,
    Ref,
    Scan,
    Store,
    Value,
)
from compiler.sizes import Size, Sym, hint, is_one, plain, same

StrideMap = Callable[[tuple[Size, ...]], tuple[Size, ...]]
ReduceOp = Literal["sum", "prod", "max", "min", "any", "all", "argmax", "argmin"]
ScanOp = Literal["sum", "prod", "logaddexp", "max", "min", "lastmax", "lastmin"]
HALF = ("float16", "bfloat16")
FLOATS = ("float64", "float32", *HALF)


@dataclass(slots=True)
class NestBuilder:
    """Collects the lines of a nest over parallel ``loops`` (the output's shape, unless said otherwise) and ``reduction`` loops."""

    loops: tuple[Size, ...]
    reduction: tuple[Size, ...] = ()
    origin: int = 0
    filled: Mapping[str, OpenNumber] = field(default_factory=dict)
    lines: list[Line] = field(default_factory=list)

    @property
    def depth(self) -> int:
        return len(self.loops) + len(self.reduction)

    def dtype(self, value: Value) -> DType:
        return self.lines[value].dtype

    def add(self, line: Line) -> Value:
        """The position of an equal earlier line, or of this one, added now."""
        if isinstance(line, Load | Position | Apply) and line in self.lines:  # not constants: 0.0 == -0.0, nan != nan
            return self.lines.index(line)
        self.lines.append(line)
        return len(self.lines) - 1

    def broadcast(self, ref: Ref) -> tuple[Size, ...]:
        """Strides over the parallel loops with which ``ref`` is read as if expanded to their shape."""
        missing = len(self.loops) - len(ref.shape)
        strides = (0,) * missing + tuple(
            0 if repeats(size, loop) else stride for size, stride, loop in zip(ref.shape, ref.strides, self.loops[missing:], strict=True)
        )
        return strides + (0,) * len(self.reduction)

    def load(self, ref: Ref, dtype: str, *, mask: Value | None = None, other: Number = 0) -> Value:
        return self.load_at(ref, dtype, ref.offset, self.broadcast(ref), mask=mask, other=other)

    def load_at(
        self,
        ref: Ref,
        dtype: str,
        offset: Size,
        strides: Sequence[Size],
        *,
        indirect: tuple[tuple[Value, Size], ...] = (),
        mask: Value | None = None,
        other: Number = 0,
    ) -> Value:
        """The element at that address. ``filled`` says which buffers hold one number everywhere: nobody need read that from memory."""
        if mask is None and ref.buffer in self.filled:
            return self.constant(self.filled[ref.buffer], dtype)
        along = tuple(map(plain, strides))
        computed = tuple((value, plain(stride)) for value, stride in indirect)
        return self.add(Load(ref.buffer, plain(offset), along, cast(DType, dtype), computed, mask, other, self.origin))

    def constant(self, value: OpenNumber, dtype: str) -> Value:
        """The number as the dtype holds it: rounded, wrapped, or made true or false; an open size is converted by the kernel."""
        if isinstance(value, Sym):
            return self.cast(self.add(Constant(value, "int64", self.origin)), dtype)
        if dtype in HALF:
            value = torch.tensor(value, dtype=getattr(torch, dtype)).item()
        elif dtype in FLOATS:
            value = float(value)
        elif dtype == "bool":
            value = bool(value)
        else:
            value = int(value)
        return self.add(Constant(value, cast(DType, dtype), self.origin))

    def position(self, strides: Sequence[Size], offset: Size = 0) -> Value:
        return self.add(Position(offset, tuple(strides), "int64", self.origin))

    def loop(self, axis: int) -> Value:
        """The loop variable of that parallel axis."""
        return self.position([int(k == axis) for k in range(self.depth)])

    def apply(self, op: str, *args: Value, dtype: str) -> Value:
        return self.add(Apply(op, args, cast(DType, dtype), self.origin))

    def cast(self, value: Value, dtype: str) -> Value:
        return value if self.dtype(value) == dtype else self.apply("cast", value, dtype=dtype)

    def computing(self, value: Value) -> Value:
        """The value in the precision in which arithmetic is done: float32 for 16-bit floats."""
        return self.cast(value, "float32") if self.dtype(value) in HALF else value

    def within(self, axis_value: Value, low: Size, high: Size) -> Value:
        """Whether ``low <= value < high``."""
        above = self.apply("ge", axis_value, self.constant(low, "int64"), dtype="bool")
        below = self.apply("lt", axis_value, self.constant(high, "int64"), dtype="bool")
        return self.apply("logical_and", above, below, dtype="bool")

    def reduce(self, op: ReduceOp, value: Value) -> Value:
        dtype = "int64" if op.startswith("arg") else self.dtype(value)
        return self.add(Reduce(op, value, dtype, self.origin))

    def scan(self, op: ScanOp, value: Value) -> Value:
        return self.add(Scan(op, value, "int64" if op.startswith("last") else self.dtype(value), self.origin))

    def store(
        self,
        buffer: Buffer,
        value: Value,
        *,
        offset: Size = 0,
        strides: Sequence[Size] | None = None,
        indirect: tuple[tuple[Value, Size], ...] = (),
        over: Over = "",
    ) -> None:
        value = self.cast(value, buffer.dtype)
        along = tuple(buffer.strides if strides is None else strides)
        sizes = (*self.loops, *self.reduction)
        along = (*along, *(0 for _ in range(len(sizes) - len(along))))
        along = tuple(0 if is_one(size) else plain(stride) for size, stride in zip(sizes, along, strict=True))
        indirect = tuple((index, plain(stride)) for index, stride in indirect)
        self.lines.append(Store(buffer.name, plain(offset), along, value, cast(DType, buffer.dtype), self.origin, indirect, over))

    def nest(self, name: str, op: str) -> Nest:
        return in_memory_order(Nest(name, op, self.loops, self.reduction, tuple(self.lines), self.origin))


def with_axis(ref: Ref) -> Ref:
    """A tensor without axes as one of a single element, which ops along an axis take it for."""
    return ref if ref.shape else Ref(ref.buffer, (1,), (1,), ref.offset)


def repeats(size: Size, loop: Size) -> bool:
    """Whether an axis of this size is repeated along a loop: it has one element, or is one that the loop walks."""
    return is_one(size) or (isinstance(size, Sym) and size != loop and same(size, 1))


def with_loops(nest: Nest, loops: Sequence[Size], reduction: Sequence[Size], sources: Sequence[int | None]) -> Nest:
    """The nest on other loops: new loop k is old loop ``sources[k]``; None: a loop on which nothing depends."""

    def moved(strides: tuple[Size, ...]) -> tuple[Size, ...]:
        return tuple(0 if source is None else strides[source] for source in sources)

    return replace(nest, loops=tuple(loops), reduction=tuple(reduction), body=tuple(restride(line, moved) for line in nest.body))


def restride(line: Line, moved: StrideMap) -> Line:
    if isinstance(line, Load | Position | Store):
        return replace(line, strides=moved(line.strides))
    return line


def in_memory_order(nest: Nest) -> Nest:
    """Parallel loops by falling stride of the store, loops of size one dropped, neighbours merged where every address allows it.

    Parallel loops keep their order where it decides which write stays, reduction loops where the position of the extremum is asked for;
    else these go by falling stride of the first load.
    """
    sizes = (*nest.loops, *nest.reduction)
    outer = len(nest.loops)
    store = nest.store
    parallel = [axis for axis in range(outer) if not is_one(sizes[axis])]
    if not nest.writes_in_order:
        parallel.sort(key=lambda axis: -abs(hint(store.strides[axis])) if store.strides[axis] else 0)
    reduced = [axis for axis in range(outer, len(sizes)) if not is_one(sizes[axis])]
    first = next(nest.loads(), None)
    if first is not None and not any(isinstance(line, Reduce) and line.op.startswith("arg") for line in nest.body):
        reduced.sort(key=lambda axis: -abs(hint(first.strides[axis])))
    ordered = with_loops(nest, [sizes[axis] for axis in parallel], [sizes[axis] for axis in reduced], [*parallel, *reduced])
    return merged(ordered)


def merged(nest: Nest) -> Nest:
    """Neighbouring loops made one where every address is linear across them."""
    sizes = (*nest.loops, *nest.reduction)
    outer = len(nest.loops)
    accesses = [line.strides for line in nest.body if isinstance(line, Load | Position | Store)]
    keep: list[int] = []
    size_of: dict[int, Size] = {}
    for axis, size in enumerate(sizes):
        before = keep[-1] if keep else None
        if before is not None and axis != outer and all(strides[before] == strides[axis] * size for strides in accesses):
            keep[-1] = axis
            size_of[axis] = size_of[before] * size
        else:
            keep.append(axis)
            size_of[axis] = size
    loops = [size_of[axis] for axis in keep if axis < outer]
    reduction = [size_of[axis] for axis in keep if axis >= outer]
    return with_loops(nest, loops, reduction, keep)


def row_major(sizes: Sequence[Size]) -> tuple[Size, ...]:
    """The strides of a contiguous tensor of that shape."""
    return tuple(prod(sizes[axis + 1 :]) for axis in range(len(sizes)))
