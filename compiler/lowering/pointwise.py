"""Elementwise ops: everything is read from the table in ``ops.py``; nothing here knows a single op, but for those that change dtype or
layout only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch.fx import Node

from compiler.errors import Unsupported
from compiler.ir import OpenNumber, Ref, Value
from compiler.lowering.graph import Lowering, dtype_name, lowers, overload_name
from compiler.lowering.nests import FLOATS, HALF, NestBuilder
from compiler.ops import ATEN, OPS, Row
from compiler.sizes import Sym

Operand = Ref | OpenNumber


def bound_arguments(node: Node) -> dict[str, object]:
    """The node's arguments by the names of the op's schema, defaults included."""
    assert isinstance(node.target, torch._ops.OpOverload)
    bound: dict[str, object] = {}
    for position, parameter in enumerate(node.target._schema.arguments):
        if position < len(node.args) and not parameter.kwarg_only:
            bound[parameter.name] = node.args[position]
        elif parameter.name in node.kwargs:
            bound[parameter.name] = node.kwargs[parameter.name]
        elif parameter.has_default_value():
            bound[parameter.name] = parameter.default_value
    return bound


def matching_row(node: Node, arguments: dict[str, object]) -> Row | None:
    """The row whose conditions and operands fit the arguments."""
    for row in ATEN.get(overload_name(node.target), ()):
        fixed = all(arguments.get(name) == value for name, value in row.when.items())
        if fixed and all(arguments.get(name) is not None for name in row.operands):
            return row
    return None


def lower_pointwise(lowering: Lowering, node: Node) -> Ref | None:
    """The op as a nest if the table has it, else None.

    Raises Unsupported when an operand or the result has a dtype that loops cannot compute with.
    """
    arguments = bound_arguments(node)
    row = matching_row(node, arguments)
    if row is None:
        return None
    if row.only_cpp and lowering.target.is_gpu:
        raise Unsupported("loops", row.only_cpp)
    operands = [operand(lowering, arguments[name]) for name in row.operands]
    builder = lowering.builder(lowering.meta(node).shape)
    values = [load(lowering, builder, item) for item in operands]
    value = apply_row(lowering, builder, row, operands, values, dtype_name(lowering.meta(node).dtype))
    return lowering.finish(node, builder, value)


def operand(lowering: Lowering, argument: object) -> Operand:
    if isinstance(argument, Node) and isinstance(lowering.results.get(argument), Ref):
        return lowering.ref(argument)
    return lowering.number(argument)


def load(lowering: Lowering, builder: NestBuilder, item: Operand) -> Value | OpenNumber:
    return builder.load(item, lowering.dtype(item)) if isinstance(item, Ref) else item


def promoted(lowering: Lowering, operands: Sequence[Operand]) -> str:
    """The dtype that eager computes the operands in: a dimensioned tensor outranks a 0-d tensor, which outranks a number, category by
    category.
    """
    ranked: list[torch.dtype | None] = [None, None, None]
    for item in operands:
        if isinstance(item, Ref):
            rank, dtype = (0 if item.shape else 1), getattr(torch, lowering.dtype(item))
        else:
            rank, dtype = (
                2,
                torch.bool if isinstance(item, bool) else torch.int64 if isinstance(item, int | Sym) else torch.get_default_dtype(),
            )
        before = ranked[rank]
        ranked[rank] = dtype if before is None else torch.promote_types(before, dtype)
    winner: torch.dtype | None = None
    for dtype in ranked:
        if winner is None:
            winner = dtype
        elif dtype is not None and not winner.is_floating_point and (winner == torch.bool or dtype.is_floating_point):
            winner = torch.promote_types(winner, dtype)
    assert winner is not None
    return dtype_name(winner)


def apply_row(
    lowering: Lowering, builder: NestBuilder, row: Row, operands: Sequence[Operand], values: Sequence[Value | OpenNumber], result: str
) -> Value:
    """The op of ``row`` on loaded operands, cast to the dtype and precision that eager computes it in."""
    chosen = row.name == "where"
    dtype = promoted(lowering, operands[1:] if chosen else operands)
    if row.promote == "float" and dtype not in FLOATS:
        dtype = dtype_name(torch.get_default_dtype())
    if row.opmath and dtype in HALF:
        dtype = "float32"
    dtypes = [dtype] * len(operands)
    if chosen:
        dtypes[0] = "bool"
    if row.promote == "keep":
        dtypes = [lowering.dtype(item) if isinstance(item, Ref) else result for item in operands]
        dtype = result
    if kind(dtypes[-1]) not in row.kinds and "any" not in row.kinds:
        raise Unsupported("loops", f"{row.name} has no code for {dtypes[-1]}")
    cast_values: list[Value] = []
    for item, value, wanted in zip(operands, values, dtypes, strict=True):
        cast_values.append(builder.cast(cast(Value, value), wanted) if isinstance(item, Ref) else builder.constant(value, wanted))
    return builder.apply(row.name, *cast_values, dtype="bool" if row.promote == "bool" else dtype)


def kind(dtype: str) -> str:
    return "float" if dtype in FLOATS else "bool" if dtype == "bool" else "int"


@lowers(
    "aten._to_copy.default", "prims.convert_element_type.default", "aten.clone.default", "aten.lift_fresh_copy.default",
    "aten.contiguous.default", "aten.expand_copy.default", "aten.view_copy.default", "aten._unsafe_view.default",
)  # fmt: skip
def lower_copy(lowering: Lowering, node: Node) -> Ref:
    """The same values in the dtype and layout of the result."""
    source = lowering.ref(node.args[0])
    meta = lowering.meta(node)
    if lowering.shape(meta) != source.shape:
        raise Unsupported("loops", "the copy has another shape")
    builder = lowering.builder(meta.shape)
    return lowering.finish(node, builder, builder.load(source, lowering.dtype(source)))


@lowers("aten.copy.default")
def lower_overwrite(lowering: Lowering, node: Node) -> Ref:
    """The second operand, expanded to the shape and cast to the dtype of the first."""
    source = lowering.ref(node.args[1])
    builder = lowering.builder(lowering.meta(node).shape)
    return lowering.finish(node, builder, builder.load(source, lowering.dtype(source)))


@lowers("prims.fma.default")
def lower_fma(lowering: Lowering, node: Node) -> Ref:
    """``a * b + c``, rounded once; Dynamo writes ``addcmul_`` so."""
    operands = [operand(lowering, argument) for argument in node.args]
    builder, dtype = lowering.builder(lowering.meta(node).shape), dtype_name(lowering.meta(node).dtype)
    values = [load(lowering, builder, item) for item in operands]
    return lowering.finish(node, builder, apply_row(lowering, builder, OPS["fma"], operands, values, dtype))


@lowers("aten.frexp.Tensor")
def lower_frexp(lowering: Lowering, node: Node) -> tuple[Ref, ...]:
    """The mantissa and the exponent, each in a nest of its own."""
    source = lowering.ref(node.args[0])
    results: list[Ref] = []
    for place, part in enumerate(("mantissa", "exponent")):
        meta = cast("tuple[torch.Tensor, ...]", node.meta["val"])[place]
        builder = lowering.builder(meta.shape)
        value = apply_row(lowering, builder, OPS[f"frexp_{part}"], [source], [load(lowering, builder, source)], dtype_name(meta.dtype))
        buffer = lowering.output(f"{node.name}_{place}", meta)
        builder.store(buffer, value)
        lowering.emit(builder, buffer.name, overload_name(node.target))
        results.append(lowering.own(buffer, meta))
    return tuple(results)
