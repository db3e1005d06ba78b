"""Ops that move elements: joining, padding, scattering slices, flipping, repeating, and reading at computed places. Views need no rule:
they are addresses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from torch.fx import Node

from compiler.errors import Unsupported
from compiler.ir import Ref, Value
from compiler.lowering.graph import Lowering, dtype_name, lowers, overload_name
from compiler.lowering.nests import NestBuilder, repeats, with_axis
from compiler.lowering.pointwise import bound_arguments
from compiler.sizes import Size, Sym, is_one, same


def wrapped(axis: object, rank: int) -> int:
    return int(cast(int, axis)) % rank if rank else 0


@lowers("aten.cat.default")
def lower_cat(lowering: Lowering, node: Node) -> Ref:
    """Each operand is copied into its slice of the result by a nest of its own, which can be fused with whatever made the operand."""
    arguments = bound_arguments(node)
    meta = lowering.meta(node)
    parts = [lowering.ref(item) for item in cast(Sequence[Node], arguments["tensors"])]
    parts = [part for part in parts if part.shape != (0,)] or parts[:1]
    axis = wrapped(arguments["dim"], len(meta.shape))
    buffer = lowering.output(node.name, meta)
    start: Size = 0
    for position, part in enumerate(parts):
        builder = lowering.builder(part.shape)
        builder.store(buffer, builder.load(part, lowering.dtype(part)), offset=start * buffer.strides[axis])
        lowering.emit(builder, f"{buffer.name}_{position}", overload_name(node.target))
        start += part.shape[axis]
    return lowering.own(buffer, meta)


@lowers("aten.constant_pad_nd.default")
def lower_pad(lowering: Lowering, node: Node) -> Ref:
    """Elements outside the source are the fill value; negative padding crops."""
    arguments = bound_arguments(node)
    source, meta = lowering.ref(node.args[0]), lowering.meta(node)
    pads = [lowering.whole_number(item) for item in cast(Sequence[object], arguments["pad"])]
    builder = lowering.builder(meta.shape)
    offset, mask = source.offset, None
    for axis, size in enumerate(source.shape):
        pair = 2 * (len(source.shape) - 1 - axis)
        before, after = (pads[pair], pads[pair + 1]) if pair + 1 < len(pads) else (0, 0)
        offset -= before * source.strides[axis]
        if may_be_positive(before) or may_be_positive(after):
            inside = builder.within(builder.loop(axis), before, before + size)
            mask = inside if mask is None else builder.apply("logical_and", mask, inside, dtype="bool")
    fill = arguments.get("value")
    other = 0 if fill is None else lowering.number(fill)
    if isinstance(other, Sym):
        raise Unsupported("loops", "what is padded with is a size that is left open")
    if lowering.dtype(source) == "bool":
        other = bool(other)
    value = builder.load_at(source, lowering.dtype(source), offset, source.strides, mask=mask, other=other)
    return lowering.finish(node, builder, value)


def may_be_positive(size: Size) -> bool:
    return isinstance(size, Sym) or size > 0


@lowers("aten.slice_scatter.default")
def lower_slice_scatter(lowering: Lowering, node: Node) -> Ref:
    arguments = bound_arguments(node)
    base, source = lowering.ref(node.args[0]), lowering.ref(node.args[1])
    axis = wrapped(arguments["dim"], len(base.shape))
    size = base.shape[axis]
    start = 0 if arguments["start"] is None else lowering.whole_number(arguments["start"])
    start = max(0, start + size) if start < 0 else min(start, size)
    step = int(lowering.number(arguments["step"]))
    if step != 1:
        return interleaved(lowering, node, base, source, axis, start, step)
    return overlaid(lowering, node, base, source, axis, start, start + source.shape[axis])


@lowers("aten.select_scatter.default")
def lower_select_scatter(lowering: Lowering, node: Node) -> Ref:
    arguments = bound_arguments(node)
    base, source = lowering.ref(node.args[0]), lowering.ref(node.args[1])
    axis = wrapped(arguments["dim"], len(base.shape))
    place = lowering.whole_number(arguments["index"])
    place = place + base.shape[axis] if place < 0 else place
    shape = (*source.shape[:axis], 1, *source.shape[axis:])
    strides = (*source.strides[:axis], 0, *source.strides[axis:])
    return overlaid(lowering, node, base, Ref(source.buffer, shape, strides, source.offset), axis, place, place + 1)


def overlaid(lowering: Lowering, node: Node, base: Ref, source: Ref, axis: int, start: Size, stop: Size) -> Ref:
    """``base`` with ``source`` in its place along ``axis`` from ``start`` to ``stop``."""
    builder = lowering.builder(base.shape)
    inside = builder.within(builder.loop(axis), start, stop)
    offset = source.offset - start * source.strides[axis]
    dtype = lowering.dtype(base)
    new = builder.cast(builder.load_at(source, lowering.dtype(source), offset, source.strides, mask=inside), dtype)
    old = builder.load(base, dtype)
    return lowering.finish(node, builder, builder.apply("where", inside, new, old, dtype=dtype))


def interleaved(lowering: Lowering, node: Node, base: Ref, source: Ref, axis: int, start: Size, step: int) -> Ref:
    """``base`` with ``source`` at each ``step``-th place along ``axis`` from ``start`` on."""
    builder = lowering.builder(base.shape)
    dtype = lowering.dtype(base)
    ahead = builder.position([int(k == axis) for k in range(len(base.shape))], -start)
    every = builder.constant(step, "int64")
    number = builder.apply("floor_divide", ahead, every, dtype="int64")
    on_step = builder.apply("eq", builder.apply("mul", number, every, dtype="int64"), ahead, dtype="bool")
    inside = builder.apply("logical_and", on_step, builder.within(number, 0, source.shape[axis]), dtype="bool")
    strides = [0 if k == axis else stride for k, stride in enumerate(source.strides)]
    along = ((number, source.strides[axis]),)
    new = builder.load_at(source, lowering.dtype(source), source.offset, strides, mask=inside, indirect=along)
    old = builder.load(base, dtype)
    return lowering.finish(node, builder, builder.apply("where", inside, builder.cast(new, dtype), old, dtype=dtype))


@lowers("aten.flip.default")
def lower_flip(lowering: Lowering, node: Node) -> Ref:
    source = with_axis(lowering.ref(node.args[0]))
    axes = {wrapped(axis, len(source.shape)) for axis in cast(Sequence[int], node.args[1])}
    offset = source.offset + sum((source.shape[axis] - 1) * source.strides[axis] for axis in axes)
    strides = [-stride if axis in axes else stride for axis, stride in enumerate(source.strides)]
    builder = lowering.builder(source.shape)
    return lowering.finish(node, builder, builder.load_at(source, lowering.dtype(source), offset, strides))


@lowers("aten.repeat.default")
def lower_repeat(lowering: Lowering, node: Node) -> Ref:
    """Each axis becomes two loops: the copy and the element within it."""
    source, meta = lowering.ref(node.args[0]), lowering.meta(node)
    times = [lowering.whole_number(item) for item in cast(Sequence[object], node.args[1])]
    missing = len(times) - len(source.shape)
    sizes, strides = (1,) * missing + source.shape, (0,) * missing + source.strides
    buffer = lowering.output(node.name, meta)
    loops = [item for pair in zip(times, sizes, strict=True) for item in pair]
    builder = lowering.builder(loops)
    read = [item for stride in strides for item in (0, stride)]
    write = [item for axis, size in enumerate(sizes) for item in (buffer.strides[axis] * size, buffer.strides[axis])]
    builder.store(buffer, builder.load_at(source, lowering.dtype(source), source.offset, read), strides=write)
    lowering.emit(builder, buffer.name, overload_name(node.target))
    return lowering.own(buffer, meta)


# -- reading at computed places


def place(
    lowering: Lowering, builder: NestBuilder, index: Ref, strides: Sequence[Size], size: Size, *, wraps: bool = False, checked: bool = True
) -> Value:
    """The int64 index at the loops' point; negative ones count from the end where the op says so, and none may be out of range."""
    if not size and 0 not in builder.loops:
        raise Unsupported("loops", "the operand has no elements to choose from")
    limit = builder.constant(size, "int64")
    value = builder.cast(builder.load_at(index, lowering.dtype(index), index.offset, strides), "int64")
    if wraps:
        negative = builder.apply("lt", value, builder.constant(0, "int64"), dtype="bool")
        from_end = builder.apply("add", value, limit, dtype="int64")
        value = builder.apply("where", negative, from_end, value, dtype="int64")
    return builder.apply("index_within", value, limit, dtype="int64") if checked else value


@lowers("aten.gather.default")
def lower_gather(lowering: Lowering, node: Node) -> Ref:
    source, index = (with_axis(lowering.ref(argument)) for argument in (node.args[0], node.args[2]))
    axis = wrapped(node.args[1], len(source.shape))
    builder = lowering.builder(index.shape)
    if 0 in index.shape:  # which may then have any number of axes
        return lowering.finish(node, builder, builder.constant(0, lowering.dtype(source)))
    at = place(lowering, builder, index, index.strides, source.shape[axis])
    strides = [0 if k == axis else stride for k, stride in enumerate(source.strides)]
    value = builder.load_at(source, lowering.dtype(source), source.offset, strides, indirect=((at, source.strides[axis]),))
    return lowering.finish(node, builder, value)


@lowers("aten.index_select.default")
def lower_index_select(lowering: Lowering, node: Node) -> Ref:
    source, index = (with_axis(lowering.ref(argument)) for argument in (node.args[0], node.args[2]))
    axis = wrapped(node.args[1], len(source.shape))
    builder = lowering.builder([index.shape[0] if k == axis else size for k, size in enumerate(source.shape)])
    along = [index.strides[0] if k == axis else 0 for k in range(len(source.shape))]
    at = place(lowering, builder, index, along, source.shape[axis])
    strides = [0 if k == axis else stride for k, stride in enumerate(source.strides)]
    value = builder.load_at(source, lowering.dtype(source), source.offset, strides, indirect=((at, source.strides[axis]),))
    return lowering.finish(node, builder, value)


@lowers("aten.embedding.default")
def lower_embedding(lowering: Lowering, node: Node) -> Ref:
    table, index = lowering.ref(node.args[0]), lowering.ref(node.args[1])
    builder = lowering.builder(lowering.meta(node).shape)
    at = place(lowering, builder, index, (*index.strides, 0), table.shape[0])
    strides = (*(0 for _ in index.shape), table.strides[1])
    value = builder.load_at(table, lowering.dtype(table), table.offset, strides, indirect=((at, table.strides[0]),))
    return lowering.finish(node, builder, value)


@dataclass(frozen=True, slots=True)
class Gathered:
    """Elements chosen by integer tensors: the shape that they have, and for each its address as strides over that shape and terms."""

    shape: tuple[Size, ...]
    strides: tuple[Size, ...]
    indirect: tuple[tuple[Value, Size], ...]


def index_refs(lowering: Lowering, listed: Sequence[Node | None]) -> dict[int, Ref]:
    """The index of each axis that has one.

    Raises Unsupported for masks.
    """
    indices = {axis: lowering.ref(item) for axis, item in enumerate(listed) if item is not None}
    if any(lowering.dtype(index) in ("bool", "uint8") for index in indices.values()):
        raise Unsupported("loops", "the index is a mask, whose count of true elements decides the shape")
    return indices


def chosen_shape(source: Ref, indices: Mapping[int, Ref]) -> tuple[tuple[Size, ...], int, int]:
    """The shape of what the indices choose, and where in it the axes of the indices start and how many they are.

    The indices are broadcast together; their axes stand where the first stood if they are neighbours, else in front.
    """
    axes = sorted(indices)
    index_shape = broadcast_shape([index.shape for index in indices.values()])
    start = axes[0] if axes[-1] - axes[0] + 1 == len(axes) else 0
    kept = [size for axis, size in enumerate(source.shape) if axis not in indices]
    return (*kept[:start], *index_shape, *kept[start:]), start, len(index_shape)


def broadcast_shape(shapes: Sequence[tuple[Size, ...]]) -> tuple[Size, ...]:
    """The shape to which all of these are expanded."""
    rank = max(len(shape) for shape in shapes)
    result: list[Size] = [1] * rank
    for shape in shapes:
        for axis, size in enumerate(shape, rank - len(shape)):
            if not is_one(size) and (is_one(result[axis]) or same(result[axis], 1)):
                result[axis] = size
    return tuple(result)


def gathered(lowering: Lowering, builder: NestBuilder, source: Ref, indices: Mapping[int, Ref], checked: bool) -> Gathered:
    """Where the chosen elements of ``source`` lie; the builder's loops are their shape."""
    shape, start, rank = chosen_shape(source, indices)
    terms: list[tuple[Value, Size]] = []
    for axis, index in sorted(indices.items()):
        missing = rank - len(index.shape)
        walked = shape[start + missing : start + rank]
        own = (0,) * missing + tuple(
            0 if repeats(size, loop) else stride for size, stride, loop in zip(index.shape, index.strides, walked, strict=True)
        )
        strides = (0,) * start + own + (0,) * (len(shape) - start - rank)
        terms.append((place(lowering, builder, index, strides, source.shape[axis], wraps=True, checked=checked), source.strides[axis]))
    kept = iter([stride for axis, stride in enumerate(source.strides) if axis not in indices])
    return Gathered(shape, tuple(0 if start <= axis < start + rank else next(kept) for axis in range(len(shape))), tuple(terms))


@lowers("aten.index.Tensor", "aten._unsafe_index.Tensor")
def lower_index(lowering: Lowering, node: Node) -> Ref:
    """Integer tensors as indices. PyTorch writes the unsafe form only for indices that it has computed itself."""
    source = lowering.ref(node.args[0])
    indices = index_refs(lowering, cast("Sequence[Node | None]", node.args[1]))
    builder = lowering.builder(chosen_shape(source, indices)[0])
    found = gathered(lowering, builder, source, indices, overload_name(node.target) == "aten.index.Tensor")
    value = builder.load_at(source, lowering.dtype(source), source.offset, found.strides, indirect=found.indirect)
    return lowering.finish(node, builder, value)


@lowers("aten.tril.default", "aten.triu.default")
def lower_triangle(lowering: Lowering, node: Node) -> Ref:
    """Elements on the wrong side of the diagonal are zero."""
    source = lowering.ref(node.args[0])
    diagonal = lowering.whole_number(bound_arguments(node)["diagonal"])
    builder = lowering.builder(source.shape)
    ahead = builder.position([*(0 for _ in source.shape[:-2]), -1, 1])
    op = "le" if "tril" in overload_name(node.target) else "ge"
    inside = builder.apply(op, ahead, builder.constant(diagonal, "int64"), dtype="bool")
    dtype = dtype_name(lowering.meta(node).dtype)
    value = builder.load(source, dtype)
    return lowering.finish(node, builder, builder.apply("where", inside, value, builder.constant(0, dtype), dtype=dtype))
