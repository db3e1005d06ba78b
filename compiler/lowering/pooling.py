"""Pooling with small windows: the window is written out, so that a result is elementwise code and can be fused like any other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import cast

import torch
from torch.fx import Node

from compiler.errors import Unsupported
from compiler.ir import Number, Ref, Value
from compiler.lowering.graph import Lowering, lowers, overload_name
from compiler.lowering.nests import FLOATS, HALF, NestBuilder
from compiler.lowering.pointwise import bound_arguments
from compiler.sizes import Size, proved

LARGEST_WINDOW = 27
"""Elements: 3 x 3 x 3. Longer bodies cost more registers and compile time than a library's call does."""


def per_axis(value: object, axes: int, default: Sequence[int]) -> tuple[int, ...]:
    """A pooling parameter as one number for each axis; an empty list means the default, one number means the same for all."""
    listed = [value] if isinstance(value, int) else [known(item) for item in cast(Sequence[object], value or ())]
    if not listed:
        return tuple(default)
    return tuple(listed) * axes if len(listed) == 1 else tuple(listed)


def known(item: object) -> int:
    if not isinstance(item, int):
        raise Unsupported("loops", "the windows depend on a size that is left open")
    return int(item)


@dataclass(frozen=True, slots=True)
class Windows:
    """The windows that slide over the last axes of ``source``; ``out`` is the number of windows along each."""

    source: Ref
    out: tuple[Size, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]

    @property
    def lead(self) -> int:
        """How many axes stand before those that are pooled."""
        return len(self.source.shape) - len(self.kernel)

    @property
    def sizes(self) -> tuple[Size, ...]:
        return self.source.shape[self.lead :]

    @property
    def lengths(self) -> tuple[int, ...]:
        """From the first to the last element of a window along each axis, both included."""
        return tuple((size - 1) * step + 1 for size, step in zip(self.kernel, self.dilation, strict=True))

    def places(self) -> Iterator[tuple[int, ...]]:
        return product(*(range(size) for size in self.kernel))

    def start(self, place: Sequence[int]) -> tuple[int, ...]:
        """Where the element of that place in the first window lies, along each axis."""
        return tuple(at * step - pad for at, step, pad in zip(place, self.dilation, self.padding, strict=True))

    def position(self, builder: NestBuilder, axis: int, first: int) -> Value:
        """The coordinate along a pooled axis of the element that lies at ``first`` in the first window."""
        strides: list[Size] = [0] * builder.depth
        strides[self.lead + axis] = self.stride[axis]
        return builder.position(strides, first)

    def inside(self, builder: NestBuilder, place: Sequence[int]) -> Value | None:
        """Whether the element of that place exists; None if it always does."""
        mask: Value | None = None
        for axis, first in enumerate(self.start(place)):
            last = first + (self.out[axis] - 1) * self.stride[axis]
            if first >= 0 and proved(self.sizes[axis] - last):
                continue
            within = builder.within(self.position(builder, axis, first), 0, self.sizes[axis])
            mask = within if mask is None else builder.apply("logical_and", mask, within, dtype="bool")
        return mask

    def load(self, lowering: Lowering, builder: NestBuilder, place: Sequence[int], mask: Value | None, other: Number) -> Value:
        along = self.source.strides[self.lead :]
        offset = self.source.offset + sum(first * stride for first, stride in zip(self.start(place), along, strict=True))
        strides = (*self.source.strides[: self.lead], *(step * stride for step, stride in zip(self.stride, along, strict=True)))
        return builder.load_at(self.source, lowering.dtype(self.source), offset, strides, mask=mask, other=other)

    def flat(self, builder: NestBuilder, place: Sequence[int]) -> Value:
        """The place in the flattened pooled axes of the source, which max pooling gives as its index."""
        weights = [prod(self.sizes[axis + 1 :]) for axis in range(len(self.sizes))]
        strides = [0] * self.lead + [step * weight for step, weight in zip(self.stride, weights, strict=True)]
        return builder.position(strides, sum(first * weight for first, weight in zip(self.start(place), weights, strict=True)))


def windows(lowering: Lowering, node: Node, axes: int, result: torch.Tensor) -> Windows:
    arguments = bound_arguments(node)
    kernel = per_axis(arguments["kernel_size"], axes, ())
    made = Windows(
        lowering.ref(node.args[0]),
        tuple(map(lowering.size, result.shape[-axes:])),
        kernel,
        per_axis(arguments.get("stride"), axes, kernel),
        per_axis(arguments.get("padding"), axes, (0,) * axes),
        per_axis(arguments.get("dilation", 1), axes, (1,) * axes),
    )
    if prod(kernel) > LARGEST_WINDOW:
        raise Unsupported("loops", f"a window of {prod(kernel)} elements is too long to be written out")
    return made


def lowest(dtype: str) -> Number:
    """What every number of that dtype is at least."""
    return float("-inf") if dtype in FLOATS else torch.iinfo(getattr(torch, dtype)).min


@lowers("aten.max_pool2d_with_indices.default", "aten.max_pool3d_with_indices.default")
def lower_max_pool(lowering: Lowering, node: Node) -> tuple[Ref, Ref]:
    """The largest element of each window and its place; the first of equal ones, the last NaN, as in eager."""
    axes = 3 if "3d" in overload_name(node.target) else 2
    values, places = cast("tuple[torch.Tensor, torch.Tensor]", node.meta["val"])
    over = windows(lowering, node, axes, values)
    if lowering.dtype(over.source) == "bool":
        raise Unsupported("loops", "the largest of truth values")
    results = []
    for number, meta in enumerate((values, places)):
        builder = lowering.builder(meta.shape)
        largest, at = _largest(lowering, builder, over)
        buffer = lowering.output(f"{node.name}_{number}", meta)
        builder.store(buffer, at if number else largest)
        lowering.emit(builder, buffer.name, overload_name(node.target))
        results.append(lowering.own(buffer, meta))
    return results[0], results[1]


def _largest(lowering: Lowering, builder: NestBuilder, over: Windows) -> tuple[Value, Value]:
    """The value and the place, both running through the window in memory order."""
    source_dtype = lowering.dtype(over.source)
    least = lowest(source_dtype)
    dtype = "float32" if source_dtype in HALF else source_dtype
    best, at = builder.constant(least, dtype), _first_place(builder, over)
    for place in over.places():
        mask = over.inside(builder, place)
        value = builder.computing(over.load(lowering, builder, place, mask, least))
        better = builder.apply("gt", value, best, dtype="bool")
        if dtype in FLOATS:
            better = builder.apply("logical_or", better, builder.apply("ne", value, value, dtype="bool"), dtype="bool")
        best = builder.apply("where", better, value, best, dtype=dtype)
        at = builder.apply("where", better, over.flat(builder, place), at, dtype="int64")
    return best, at


def _first_place(builder: NestBuilder, over: Windows) -> Value:
    """The place of the first element of the window that exists: the answer where nothing is larger than the least number."""
    total: Value | None = None
    for axis, first in enumerate(over.start([0] * len(over.kernel))):
        value = over.position(builder, axis, first)
        step = over.dilation[axis]
        for _ in range(-(first // step) if first < 0 else 0):
            negative = builder.apply("lt", value, builder.constant(0, "int64"), dtype="bool")
            moved = builder.apply("add", value, builder.constant(step, "int64"), dtype="int64")
            value = builder.apply("where", negative, moved, value, dtype="int64")
        weight = builder.constant(prod(over.sizes[axis + 1 :]), "int64")
        term = builder.apply("mul", value, weight, dtype="int64")
        total = term if total is None else builder.apply("add", total, term, dtype="int64")
    assert total is not None
    return total


@lowers("aten.avg_pool2d.default", "aten.avg_pool3d.default")
def lower_average_pool(lowering: Lowering, node: Node) -> Ref:
    """The sum of each window over how many elements count, which padding may change along the rim."""
    axes = 3 if "3d" in overload_name(node.target) else 2
    meta = lowering.meta(node)
    over = windows(lowering, node, axes, meta)
    builder = lowering.builder(meta.shape)
    if lowering.dtype(over.source) not in FLOATS:
        raise Unsupported("loops", "the average of numbers that are not real")
    total: Value | None = None
    for place in over.places():
        value = builder.computing(over.load(lowering, builder, place, over.inside(builder, place), 0.0))
        total = value if total is None else builder.apply("add", total, value, dtype=builder.dtype(total))
    assert total is not None
    arguments = bound_arguments(node)
    divisor = arguments.get("divisor_override")
    count = builder.constant(lowering.whole_number(divisor), "int64") if divisor else None
    if count is None:
        origin = [over.position(builder, axis, -pad) for axis, pad in enumerate(over.padding)]
        count = counted(builder, over, origin, bool(arguments.get("count_include_pad", True)))
    dtype = builder.dtype(total)
    return lowering.finish(node, builder, builder.apply("truediv", total, builder.cast(count, dtype), dtype=dtype))


def counted(builder: NestBuilder, over: Windows, origin: Sequence[Value], padding_counts: bool) -> Value:
    """How many elements of the window that begins at ``origin`` its average divides by."""
    count: Value | None = None
    for axis, start in enumerate(origin):
        size, pad = over.sizes[axis], over.padding[axis]
        end = builder.apply("add", start, builder.constant(over.kernel[axis], "int64"), dtype="int64")
        last = builder.constant(size + pad if padding_counts else size, "int64")
        end = builder.apply("minimum", end, last, dtype="int64")
        if not padding_counts:
            start = builder.apply("maximum", start, builder.constant(0, "int64"), dtype="int64")
        length = builder.apply("sub", end, start, dtype="int64")
        count = length if count is None else builder.apply("mul", count, length, dtype="int64")
    assert count is not None
    return count


@dataclass(frozen=True, slots=True)
class Covering:
    """One of the windows that may hold an element: its number along each axis, where it begins, and whether it exists and holds it."""

    window: tuple[Value, ...]
    origin: tuple[Value, ...]
    mask: Value

    def load(self, lowering: Lowering, builder: NestBuilder, ref: Ref, other: Number) -> Value:
        """What ``ref``, which has one element for each window, holds for this one."""
        lead = len(ref.shape) - len(self.window)
        indirect = tuple(zip(self.window, ref.strides[lead:], strict=True))
        strides = [*ref.strides[:lead], *(0 for _ in self.window)]
        return builder.load_at(ref, lowering.dtype(ref), ref.offset, strides, indirect=indirect, mask=self.mask, other=other)


def coverings(lowering: Lowering, node: Node, builder: NestBuilder, axes: int, gradient: Ref) -> tuple[Windows, list[Covering]]:
    """The windows of a pooling whose gradient is ``gradient`` that may hold the element at the builder's loops, in falling order."""
    arguments = bound_arguments(node)
    kernel = per_axis(arguments["kernel_size"], axes, ())
    stride = per_axis(arguments["stride"], axes, kernel)
    padding = per_axis(arguments["padding"], axes, (0,) * axes)
    dilation = per_axis(arguments.get("dilation", 1), axes, (1,) * axes)
    source = Ref("", tuple(builder.loops), (0,) * len(builder.loops))
    over = Windows(source, gradient.shape[-axes:], kernel, stride, padding, dilation)
    back = tuple(-(-length // step) for length, step in zip(over.lengths, stride, strict=True))
    if prod(back) > LARGEST_WINDOW:
        raise Unsupported("loops", f"{prod(back)} windows hold an element, too many to be written out")
    return over, [_covering(builder, over, steps) for steps in product(*(range(size) for size in back))]


def _covering(builder: NestBuilder, over: Windows, back: Sequence[int]) -> Covering:
    """The window ``back`` windows before the last one that begins at or before the element."""
    mask: Value | None = None
    windows, origin = [], []
    for axis, steps in enumerate(back):
        moved = builder.position([int(k == over.lead + axis) for k in range(builder.depth)], over.padding[axis])
        stride = builder.constant(over.stride[axis], "int64")
        window = builder.apply("floor_divide", moved, stride, dtype="int64")
        window = builder.apply("sub", window, builder.constant(steps, "int64"), dtype="int64")
        begin = builder.apply("mul", window, stride, dtype="int64")
        ahead = builder.apply("sub", moved, begin, dtype="int64")
        reached = builder.apply("lt", ahead, builder.constant(over.lengths[axis], "int64"), dtype="bool")
        if over.dilation[axis] > 1:
            between = builder.apply("remainder", ahead, builder.constant(over.dilation[axis], "int64"), dtype="int64")
            falls_on = builder.apply("eq", between, builder.constant(0, "int64"), dtype="bool")
            reached = builder.apply("logical_and", reached, falls_on, dtype="bool")
        exists = builder.apply("logical_and", builder.within(window, 0, over.out[axis]), reached, dtype="bool")
        mask = exists if mask is None else builder.apply("logical_and", mask, exists, dtype="bool")
        windows.append(window)
        origin.append(builder.apply("sub", begin, builder.constant(over.padding[axis], "int64"), dtype="int64"))
    assert mask is not None
    return Covering(tuple(windows), tuple(origin), mask)


@lowers("aten.avg_pool2d_backward.default", "aten.avg_pool3d_backward.default")
def lower_average_pool_backward(lowering: Lowering, node: Node) -> Ref:
    """Each element gathers its share from every window that holds it."""
    arguments = bound_arguments(node)
    gradient, axes = lowering.ref(node.args[0]), 3 if "3d" in overload_name(node.target) else 2
    builder = lowering.builder(lowering.meta(node).shape)
    over, covering = coverings(lowering, node, builder, axes, gradient)
    divisor = arguments.get("divisor_override")

    def share(one: Covering) -> Value:
        value = builder.computing(one.load(lowering, builder, gradient, 0.0))
        if divisor:
            count = builder.constant(lowering.whole_number(divisor), "int64")
        else:
            count = counted(builder, over, one.origin, bool(arguments["count_include_pad"]))
        dtype = builder.dtype(value)
        return builder.apply("truediv", value, builder.cast(count, dtype), dtype=dtype)

    return lowering.finish(node, builder, gathered(builder, covering, share, lowering.dtype(gradient)))


@lowers("aten.max_pool2d_with_indices_backward.default", "aten.max_pool3d_with_indices_backward.default")
def lower_max_pool_backward(lowering: Lowering, node: Node) -> Ref:
    """Each element gathers the gradient of every window that chose it."""
    gradient, axes = lowering.ref(node.args[0]), 3 if "3d" in overload_name(node.target) else 2
    indices = lowering.ref(bound_arguments(node)["indices"])
    builder = lowering.builder(lowering.meta(node).shape)
    over, covering = coverings(lowering, node, builder, axes, gradient)
    weights = [prod(over.sizes[axis + 1 :]) for axis in range(axes)]
    own = builder.position([0] * over.lead + weights)

    def share(one: Covering) -> Value:
        chosen = builder.apply("eq", one.load(lowering, builder, indices, -1), own, dtype="bool")
        value = builder.computing(one.load(lowering, builder, gradient, 0.0))
        return builder.apply("where", chosen, value, builder.constant(0.0, builder.dtype(value)), dtype=builder.dtype(value))

    return lowering.finish(node, builder, gathered(builder, covering, share, lowering.dtype(gradient)))


def gathered(builder: NestBuilder, covering: Sequence[Covering], share: Callable[[Covering], Value], dtype: str) -> Value:
    """The sum of the shares from the windows that there are."""
    wide = "float32" if dtype in HALF else dtype
    total = builder.constant(0.0, wide)
    for one in covering:
        added = builder.apply("add", total, share(one), dtype=wide)
        total = builder.apply("where", one.mask, added, total, dtype=wide)
    return total
