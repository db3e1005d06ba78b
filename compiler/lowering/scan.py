"""Running sums, products and extrema: one nest each, with the scanned axis as its reduction loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from torch.fx import Node

from compiler.ir import Ref, Value
from compiler.lowering.graph import Lowering, dtype_name, lowers, overload_name
from compiler.lowering.index import wrapped
from compiler.lowering.nests import NestBuilder, ScanOp
from compiler.lowering.pointwise import bound_arguments
from compiler.sizes import Size, Sym

OPS: dict[str, ScanOp] = {"cumsum": "sum", "cumprod": "prod", "logcumsumexp": "logaddexp"}


@lowers("aten.cumsum.default", "aten.cumprod.default", "aten.logcumsumexp.default")
def lower_running(lowering: Lowering, node: Node) -> Ref:
    """The values so far along an axis, in the dtype of the result; 16-bit floats in float32."""
    op = OPS[overload_name(node.target).split(".")[1]]
    return scanned(lowering, node, op, dtype_name(lowering.meta(node).dtype), None)


@lowers("aten.cummax.default", "aten.cummin.default")
def lower_running_extremum(lowering: Lowering, node: Node) -> tuple[Ref, Ref]:
    """The extremum so far and its place, by two nests that fusion joins."""
    which = "max" if "cummax" in overload_name(node.target) else "min"
    dtype = lowering.dtype(lowering.ref(node.args[0]))
    comparable = "uint8" if dtype == "bool" else dtype
    values = scanned(lowering, node, cast(ScanOp, which), comparable, 0)
    places = scanned(lowering, node, cast(ScanOp, f"last{which}"), comparable, 1)
    return values, places


def scanned(lowering: Lowering, node: Node, op: ScanOp, dtype: str, result: int | None) -> Ref:
    """A scan of the first operand, cast to ``dtype``, stored as the node's result (or its result number ``result``)."""
    source = lowering.ref(node.args[0])
    meta = lowering.meta(node) if result is None else node.meta["val"][result]
    buffer = lowering.output(node.name if result is None else f"{node.name}_{result}", meta)
    axis = wrapped(bound_arguments(node)["dim"], len(source.shape))
    if not source.shape or at_most_one(source.shape[axis]):  # nothing comes before the only element
        builder = lowering.builder(source.shape)
        value = builder.constant(0, "int64") if op.startswith("last") else _loaded(lowering, builder, source, source.strides, dtype)
        builder.store(buffer, value)
    else:
        kept = [k for k in range(len(source.shape)) if k != axis]
        builder = lowering.builder([source.shape[k] for k in kept], [source.shape[axis]])
        value = builder.scan(op, _loaded(lowering, builder, source, [source.strides[k] for k in (*kept, axis)], dtype))
        builder.store(buffer, value, strides=[buffer.strides[k] for k in (*kept, axis)])
    lowering.emit(builder, buffer.name, overload_name(node.target))
    return lowering.own(buffer, meta)


def at_most_one(size: Size) -> bool:
    return not isinstance(size, Sym) and size <= 1


def _loaded(lowering: Lowering, builder: NestBuilder, source: Ref, strides: Sequence[Size], dtype: str) -> Value:
    value = builder.load_at(source, lowering.dtype(source), source.offset, strides)
    return builder.computing(builder.cast(value, dtype))
