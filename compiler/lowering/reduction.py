"""Reductions: one nest each, with float32 sums for 16-bit floats; variance as the mean of squared deviations, in two nests that fusion
joins.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from torch.fx import Node

from compiler.errors import Unsupported
from compiler.ir import Ref, Value
from compiler.lowering.graph import Lowering, dtype_name, lowers, overload_name
from compiler.lowering.nests import FLOATS, HALF, NestBuilder, ReduceOp
from compiler.lowering.pointwise import bound_arguments
from compiler.sizes import Size, Sym, largest


def reduced_axes(source: Ref, dims: object) -> tuple[int, ...]:
    """The axes named by a ``dim`` argument (None, a number, a list; an empty list means all), in rising order."""
    rank = len(source.shape)
    if dims is None or dims == [] or dims == ():
        return tuple(range(rank))
    listed = [dims] if isinstance(dims, int) else list(cast(Sequence[int], dims))
    return tuple(sorted({axis % rank for axis in listed})) if rank else ()


class Reduction:
    """A nest whose parallel loops are the kept axes of ``source`` and whose reduction loops are the reduced ones."""

    def __init__(self, lowering: Lowering, source: Ref, dims: object) -> None:
        self.lowering, self.source = lowering, source
        self.axes = reduced_axes(source, dims)
        self.kept = tuple(axis for axis in range(len(source.shape)) if axis not in self.axes)
        self.count: Size = 1
        for axis in self.axes:
            self.count *= source.shape[axis]
        loops = [source.shape[axis] for axis in self.kept]
        self.builder: NestBuilder = lowering.builder(loops, [source.shape[axis] for axis in self.axes])

    def load(self, ref: Ref | None = None) -> Value:
        """The element of ``ref`` (the source, or a tensor of its rank that may be broadcast along the reduced axes)."""
        ref = ref or self.source
        strides = [0 if ref.shape[axis] == 1 else ref.strides[axis] for axis in (*self.kept, *self.axes)]
        return self.builder.load_at(ref, self.lowering.dtype(ref), ref.offset, strides)

    def reduce(self, op: ReduceOp, value: Value) -> Value:
        """The reduction of a value; over one element that is the element itself, at position 0. Raises Unsupported for an extremum of
        nothing, for which eager has an error.
        """
        if self.count == 0 and op in ("max", "min", "argmax", "argmin"):
            raise Unsupported("loops", "nothing is there to be the largest or smallest")
        if self.count == 1:
            return self.builder.constant(0, "int64") if op.startswith("arg") else value
        return self.builder.reduce(op, value)

    def output(self, name: str, dtype: str, op: str, value: Value) -> Ref:
        """Store into a temporary of the source's rank (reduced axes of size one)."""
        shape: list[Size] = [1 if axis in self.axes else size for axis, size in enumerate(self.source.shape)]
        buffer = self.lowering.temporary(name, dtype, shape)
        self.builder.store(buffer, value, strides=[buffer.strides[axis] for axis in self.kept])
        self.lowering.emit(self.builder, buffer.name, op)
        return self.lowering.whole(buffer)

    def finish(self, node: Node, value: Value, *, result: int | None = None) -> Ref:
        """Store as the node's result (or its result number ``result``), whose kept axes come in the source's order."""
        meta = self.lowering.meta(node) if result is None else node.meta["val"][result]
        name = node.name if result is None else f"{node.name}_{result}"
        buffer = self.lowering.output(name, meta)
        keeps = len(buffer.shape) == len(self.source.shape)
        strides = [buffer.strides[axis] for axis in self.kept] if keeps else buffer.strides
        self.builder.store(buffer, value, strides=strides)
        self.lowering.emit(self.builder, buffer.name, overload_name(node.target))
        return self.lowering.own(buffer, meta)


def summed(lowering: Lowering, node: Node, source: Ref, dims: object, dtype: str, mean: bool) -> Ref:
    reduction = Reduction(lowering, source, dims)
    builder = reduction.builder
    if reduction.count == 0:
        empty = lowering.builder(lowering.meta(node).shape)
        return lowering.finish(node, empty, empty.constant(float("nan") if mean else 0, dtype))
    value = builder.computing(builder.cast(reduction.load(), dtype))
    total = reduction.reduce("sum", value)
    if mean:
        count = builder.constant(reduction.count, builder.dtype(total))
        total = builder.apply("truediv", total, count, dtype=builder.dtype(total))
    return reduction.finish(node, total)


@lowers("aten.sum.default", "aten.sum.dim_IntList", "prims.sum.default")
def lower_sum(lowering: Lowering, node: Node) -> Ref:
    dims = (bound_arguments(node).get("dim") or bound_arguments(node).get("dims")) if len(node.args) > 1 else None
    return summed(lowering, node, lowering.ref(node.args[0]), dims, dtype_name(lowering.meta(node).dtype), mean=False)


@lowers("aten.mean.default", "aten.mean.dim")
def lower_mean(lowering: Lowering, node: Node) -> Ref:
    dims = bound_arguments(node).get("dim")
    return summed(lowering, node, lowering.ref(node.args[0]), dims, dtype_name(lowering.meta(node).dtype), mean=True)


@lowers("aten.prod.default", "aten.prod.dim_int")
def lower_prod(lowering: Lowering, node: Node) -> Ref:
    reduction = Reduction(lowering, lowering.ref(node.args[0]), bound_arguments(node).get("dim"))
    builder, dtype = reduction.builder, dtype_name(lowering.meta(node).dtype)
    if reduction.count == 0:
        empty = lowering.builder(lowering.meta(node).shape)
        return lowering.finish(node, empty, empty.constant(1, dtype))
    return reduction.finish(node, reduction.reduce("prod", builder.computing(builder.cast(reduction.load(), dtype))))


@lowers("aten.amax.default", "aten.max.default", "prims.amax.default")
def lower_amax(lowering: Lowering, node: Node) -> Ref:
    return extremum(lowering, node, "max")


@lowers("aten.amin.default", "aten.min.default", "prims.amin.default")
def lower_amin(lowering: Lowering, node: Node) -> Ref:
    return extremum(lowering, node, "min")


def extremum(lowering: Lowering, node: Node, op: ReduceOp) -> Ref:
    arguments = bound_arguments(node)
    reduction = Reduction(lowering, lowering.ref(node.args[0]), arguments.get("dim", arguments.get("dims")))
    return reduction.finish(node, reduction.reduce(op, comparable(reduction)))


def comparable(reduction: Reduction) -> Value:
    """The element in a dtype that the generators compare in: 16-bit floats as float32, bool as uint8."""
    builder = reduction.builder
    value = builder.computing(reduction.load())
    return builder.cast(value, "uint8") if builder.dtype(value) == "bool" else value


@lowers("aten.argmax.default", "aten.argmin.default")
def lower_argmax(lowering: Lowering, node: Node) -> Ref:
    op: ReduceOp = "argmax" if "argmax" in overload_name(node.target) else "argmin"
    reduction = Reduction(lowering, lowering.ref(node.args[0]), bound_arguments(node).get("dim"))
    return reduction.finish(node, reduction.reduce(op, comparable(reduction)))


@lowers("aten.max.dim", "aten.min.dim")
def lower_max_with_index(lowering: Lowering, node: Node) -> tuple[Ref, Ref]:
    which = "max" if "max" in overload_name(node.target) else "min"
    source, dim = lowering.ref(node.args[0]), bound_arguments(node)["dim"]
    values, indices = Reduction(lowering, source, dim), Reduction(lowering, source, dim)
    extreme = values.finish(node, values.reduce(cast(ReduceOp, which), comparable(values)), result=0)
    place = indices.finish(node, indices.reduce(cast(ReduceOp, f"arg{which}"), comparable(indices)), result=1)
    return extreme, place


@lowers("aten.any.default", "aten.any.dim", "aten.any.dims", "aten.all.default", "aten.all.dim", "aten.all.dims")
def lower_any_all(lowering: Lowering, node: Node) -> Ref:
    op: ReduceOp = "any" if ".any." in f".{overload_name(node.target)}" else "all"
    reduction = Reduction(lowering, lowering.ref(node.args[0]), bound_arguments(node).get("dim"))
    if reduction.count == 0:
        empty = lowering.builder(lowering.meta(node).shape)
        return lowering.finish(node, empty, empty.constant(op == "all", "bool"))
    return reduction.finish(node, reduction.reduce(op, reduction.builder.cast(reduction.load(), "bool")))


def variance(lowering: Lowering, node: Node, result: int | None) -> tuple[Ref, Ref, Reduction]:
    """The variance (stored as the node's result) and the mean, kept in the precision of the computation.

    Of nothing, zero is divided by zero, which is NaN as in eager.
    """
    arguments = bound_arguments(node)
    source = lowering.ref(node.args[0])
    if lowering.dtype(source) not in FLOATS:
        raise Unsupported("loops", "the variance of numbers that are not real")
    correction = arguments.get("correction")
    divisor_less = 1.0 if correction is None else float(lowering.number(correction))
    dims = arguments.get("dim")
    op = overload_name(node.target)
    means = Reduction(lowering, source, dims)
    wide = "float32" if lowering.dtype(source) in HALF else lowering.dtype(source)
    total = means.reduce("sum", means.builder.computing(means.load()))
    mean_value = means.builder.apply("truediv", total, means.builder.constant(means.count, wide), dtype=wide)
    mean = means.output(f"{node.name}_mean", wide, f"{op}, the mean", mean_value)
    squares = Reduction(lowering, source, dims)
    builder = squares.builder
    deviation = builder.apply("sub", builder.computing(squares.load()), squares.load(mean), dtype=wide)
    square_sum = squares.reduce("sum", builder.apply("mul", deviation, deviation, dtype=wide))
    divisor = less(squares.count, divisor_less)
    value = builder.apply("truediv", square_sum, builder.constant(divisor, wide), dtype=wide)
    return squares.finish(node, value, result=result), mean, squares


def less(count: Size, correction: float) -> Size | float:
    """What the squares are divided by: never less than nothing."""
    if not isinstance(count, Sym):
        return max(0.0, count - correction)
    if correction != int(correction):
        raise Unsupported("loops", "the correction is no whole number, and the count is left open")
    return largest(count - int(correction), 0)


@lowers("aten.var.correction", "prims.var.default")
def lower_var(lowering: Lowering, node: Node) -> Ref:
    if overload_name(node.target).startswith("prims"):
        raise Unsupported("loops", "prims.var")
    return variance(lowering, node, None)[0]


@lowers("aten.var_mean.correction")
def lower_var_mean(lowering: Lowering, node: Node) -> tuple[Ref, Ref]:
    var, mean, reduction = variance(lowering, node, 0)
    meta = node.meta["val"][1]
    buffer = lowering.output(f"{node.name}_1", meta)
    source = Ref(mean.buffer, buffer.shape, _kept_strides(mean, buffer.shape, reduction))
    builder = lowering.builder(buffer.shape)
    builder.store(buffer, builder.load(source, lowering.dtype(mean)))
    lowering.emit(builder, buffer.name, overload_name(node.target))
    return var, lowering.own(buffer, meta)


def _kept_strides(mean: Ref, shape: tuple[Size, ...], reduction: Reduction) -> tuple[Size, ...]:
    return mean.strides if len(shape) == len(mean.shape) else tuple(mean.strides[axis] for axis in reduction.kept)
