"""Ops that write to computed places, or over a part of a tensor: a copy of the tensor, then a nest that writes over it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch.fx import Node

from compiler.errors import Unsupported
from compiler.ir import Buffer, Over, Ref, Value
from compiler.lowering.graph import Lowering, lowers, overload_name
from compiler.lowering.index import chosen_shape, gathered, index_refs, place, wrapped
from compiler.lowering.nests import NestBuilder, with_axis
from compiler.lowering.pointwise import bound_arguments
from compiler.sizes import known

NO_ATOMIC = ("bfloat16", "bool", "int8", "uint8", "int16")
"""What GPUs cannot add to in memory as one step."""

JOINS: dict[str, Over] = {"None": "set", "prod": "mul", "amax": "max", "amin": "min", "sum": "add", "mean": ""}
"""The ways of ``scatter_reduce``; without one, values are replaced."""


def begun(lowering: Lowering, node: Node, base: Ref, over: Over) -> Buffer:
    """The node's result as a copy of ``base``, to be written over."""
    dtype = lowering.dtype(base)
    if over in ("mul", "max", "min") and (dtype == "bool" or lowering.target.is_gpu):
        raise Unsupported("loops", "joining values in memory otherwise than by adding them is not one step")
    if over == "add" and (dtype == "bool" or (lowering.target.is_gpu and dtype in NO_ATOMIC)):
        raise Unsupported("loops", f"adding to {dtype} in memory is not one step")
    buffer = lowering.output(node.name, lowering.meta(node))
    builder = lowering.builder(buffer.shape)
    builder.store(buffer, builder.load(base, dtype))
    lowering.emit(builder, f"{buffer.name}_before", f"{overload_name(node.target)}, the copy")
    return buffer


def ended(lowering: Lowering, node: Node, builder: NestBuilder, buffer: Buffer) -> Ref:
    lowering.emit(builder, buffer.name, overload_name(node.target))
    return lowering.own(buffer, lowering.meta(node))


def valued(lowering: Lowering, builder: NestBuilder, value: object, dtype: str) -> Value:
    """A number, or the element of a tensor that is broadcast over the builder's loops."""
    if isinstance(value, Node) and isinstance(lowering.results.get(value), Ref):
        ref = lowering.ref(value)
        return builder.cast(builder.load(ref, lowering.dtype(ref)), dtype)
    return builder.constant(lowering.number(value), dtype)


@lowers("aten.scatter.src", "aten.scatter.value", "aten.scatter_add.default", "aten.scatter_reduce.two")
def lower_scatter(lowering: Lowering, node: Node) -> Ref:
    """The element at each point of the index goes where the index says along one axis."""
    arguments = bound_arguments(node)
    over: Over = "add" if "scatter_add" in overload_name(node.target) else JOINS[str(arguments.get("reduce"))]
    if not arguments.get("include_self", True) or over == "":
        raise Unsupported("loops", f"what is joined is not {arguments['reduce']} with the operand")
    base, index = lowering.ref(arguments["self"]), with_axis(lowering.ref(arguments["index"]))
    dtype = lowering.dtype(base)
    buffer = begun(lowering, node, base, over)
    if 0 in index.shape:  # which may then have any number of axes
        return lowering.own(buffer, lowering.meta(node))
    target = with_axis(lowering.whole(buffer))
    axis = wrapped(arguments["dim"], len(target.shape))
    builder = lowering.builder(index.shape)
    source = arguments.get("src")
    if source is not None:
        ref = with_axis(lowering.ref(source))
        value = builder.cast(builder.load_at(ref, lowering.dtype(ref), ref.offset, ref.strides), dtype)
    else:
        value = valued(lowering, builder, arguments["value"], dtype)
    at = place(lowering, builder, index, index.strides, target.shape[axis])
    strides = [0 if k == axis else stride for k, stride in enumerate(target.strides)]
    builder.store(buffer, value, strides=strides, indirect=((at, target.strides[axis]),), over=over)
    return ended(lowering, node, builder, buffer)


@lowers("aten.index_put.default", "aten._unsafe_index_put.default")
def lower_index_put(lowering: Lowering, node: Node) -> Ref:
    arguments = bound_arguments(node)
    base, listed = lowering.ref(arguments["self"]), cast("Sequence[Node | None]", arguments["indices"])
    over: Over = "add" if arguments.get("accumulate") else "set"
    masked = _where(lowering, node, base, listed, arguments["values"], over)
    if masked is not None:
        return masked
    indices = index_refs(lowering, listed)
    buffer = begun(lowering, node, base, over)
    target = lowering.whole(buffer)
    builder = lowering.builder(chosen_shape(target, indices)[0])
    value = valued(lowering, builder, arguments["values"], buffer.dtype)
    found = gathered(lowering, builder, target, indices, "_unsafe" not in overload_name(node.target))
    builder.store(buffer, value, strides=found.strides, indirect=found.indirect, over=over)
    return ended(lowering, node, builder, buffer)


def _where(lowering: Lowering, node: Node, base: Ref, listed: Sequence[Node | None], values: object, over: Over) -> Ref | None:
    """One mask and one value: a choice at every element, which needs no count of the true ones."""
    if len(listed) != 1 or listed[0] is None or over == "add" or not isinstance(lowering.results.get(cast(Node, values)), Ref):
        return None
    value = lowering.ref(values)
    if any(size != 1 for size in value.shape):
        return None
    mask = lowering.ref(listed[0])
    if lowering.dtype(mask) != "bool":
        return None
    missing = len(base.shape) - len(mask.shape)
    aligned = Ref(mask.buffer, mask.shape + (1,) * missing, mask.strides + (0,) * missing, mask.offset)
    builder, dtype = lowering.builder(base.shape), lowering.dtype(base)
    new = builder.cast(builder.load_at(value, lowering.dtype(value), value.offset, (0,) * len(base.shape)), dtype)
    chosen = builder.apply("where", builder.load(aligned, "bool"), new, builder.load(base, dtype), dtype=dtype)
    return lowering.finish(node, builder, chosen)


@lowers("aten.diagonal_scatter.default", "aten.as_strided_scatter.default")
def lower_part(lowering: Lowering, node: Node) -> Ref:
    """A view of the tensor is written over; where it lies follows from a view of a tensor of the same layout."""
    arguments = bound_arguments(node)
    base, source = lowering.ref(node.args[0]), lowering.ref(node.args[1])
    buffer = begun(lowering, node, base, "set")
    layout = torch.empty_strided(known(buffer.shape), known(buffer.strides), device="meta")
    if "diagonal" in overload_name(node.target):
        offset, first, second = (int(lowering.number(arguments[name])) for name in ("offset", "dim1", "dim2"))
        part = layout.diagonal(offset, first, second)
    else:
        if buffer.strides != base.strides or base.offset or arguments.get("storage_offset") is None:
            raise Unsupported("loops", "the layout of the operand is not that of the result")
        size, stride = ([int(lowering.number(item)) for item in cast("Sequence[object]", arguments[name])] for name in ("size", "stride"))
        part = layout.as_strided(size, stride, int(lowering.number(arguments["storage_offset"])))
    builder = lowering.builder(part.shape)
    value = builder.load(source, lowering.dtype(source))
    builder.store(buffer, value, offset=int(part.storage_offset()), strides=part.stride(), over="set")
    return ended(lowering, node, builder, buffer)
