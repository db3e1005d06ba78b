"""Binary search in sorted numbers, written out: as many steps as halvings are needed."""

from __future__ import annotations

from collections.abc import Sequence

from torch.fx import Node

from compiler.errors import Unsupported
from compiler.ir import Ref, Value
from compiler.lowering.graph import Lowering, lowers, overload_name
from compiler.lowering.nests import NestBuilder
from compiler.lowering.pointwise import bound_arguments
from compiler.sizes import Size, Sym, hint


@lowers("aten.bucketize.Tensor", "aten.searchsorted.Tensor")
def lower_search(lowering: Lowering, node: Node) -> Ref:
    """The first place at which each value could be inserted, or the last one; NaN counts as larger than everything."""
    arguments = bound_arguments(node)
    values = lowering.ref(arguments["self"])
    sequence = lowering.ref(arguments["boundaries" if "bucketize" in overload_name(node.target) else "sorted_sequence"])
    if arguments.get("sorter") is not None:
        raise Unsupported("loops", "the sequence is sorted by another tensor")
    if lowering.dtype(values) != lowering.dtype(sequence) or not sequence.shape:
        raise Unsupported("loops", "the sequence has another dtype than the values")
    rows: tuple[Size, ...] = sequence.strides[:-1]
    if len(sequence.shape) > 1 and sequence.shape[:-1] != values.shape[:-1]:
        raise Unsupported("loops", "the rows of the sequence are not those of the values")
    builder = lowering.builder(values.shape)
    along = [*rows, *(0 for _ in range(len(values.shape) - len(rows)))]
    value = builder.load(values, lowering.dtype(values))
    after = bool(arguments.get("right")) or arguments.get("side") == "right"
    found = searched(lowering, builder, sequence, along, builder.computing(value), "gt" if after else "ge")
    return lowering.finish(node, builder, found)


def halvings(half: Size) -> int:
    """How often a range of that many elements can be halved; of an open size, for as long as a guard on its power of two holds."""
    steps = hint(half).bit_length()
    if isinstance(half, Sym) and half >= 1 << steps:
        raise Unsupported("loops", "the sequence is longer than the steps that are written out")
    return steps


def searched(lowering: Lowering, builder: NestBuilder, sequence: Ref, along: Sequence[Size], value: Value, stops: str) -> Value:
    """How many elements come before the first that ``stops`` the value: that is greater ("gt"), or at least as great ("ge")."""
    size, step = sequence.shape[-1], sequence.strides[-1]
    if not size:
        return builder.constant(0, "int64")
    one, two = builder.constant(1, "int64"), builder.constant(2, "int64")

    def stop_at(offset: Size, indirect: tuple[tuple[Value, Size], ...], mask: Value | None) -> Value:
        element = builder.load_at(sequence, lowering.dtype(sequence), offset, along, indirect=indirect, mask=mask)
        return builder.apply(stops, builder.computing(element), value, dtype="bool")

    half = size // 2
    stop = stop_at(sequence.offset + half * step, (), None)
    low = builder.apply("where", stop, builder.constant(0, "int64"), builder.constant(half + 1, "int64"), dtype="int64")
    high = builder.apply("where", stop, builder.constant(half, "int64"), builder.constant(size, "int64"), dtype="int64")
    for _ in range(halvings(half)):
        going = builder.apply("lt", low, high, dtype="bool")
        middle = builder.apply("floor_divide", builder.apply("add", low, high, dtype="int64"), two, dtype="int64")
        stop = stop_at(sequence.offset, ((middle, step),), going)
        raised = builder.apply("logical_and", going, builder.apply("logical_not", stop, dtype="bool"), dtype="bool")
        lowered = builder.apply("logical_and", going, stop, dtype="bool")
        low = builder.apply("where", raised, builder.apply("add", middle, one, dtype="int64"), low, dtype="int64")
        high = builder.apply("where", lowered, middle, high, dtype="int64")
    return low
