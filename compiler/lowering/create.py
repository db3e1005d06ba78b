"""Tensors made from nothing: constants, ranges, and random numbers drawn from a seed that the default generator gives at each call."""

from __future__ import annotations

from torch.fx import Node

from compiler.errors import Unsupported
from compiler.ir import Extern, Ref, Symbol, Value
from compiler.lowering.graph import Lowering, dtype_name, lowers, overload_name
from compiler.lowering.nests import NestBuilder, row_major
from compiler.lowering.pointwise import bound_arguments
from compiler.sizes import Sym


@lowers("aten.full.default", "aten.full_like.default", "aten.new_full.default")
def lower_full(lowering: Lowering, node: Node) -> Ref:
    return constant(lowering, node, bound_arguments(node)["fill_value"])


@lowers("aten.scalar_tensor.default")
def lower_scalar_tensor(lowering: Lowering, node: Node) -> Ref:
    return constant(lowering, node, node.args[0])


@lowers("aten.zeros.default", "aten.zeros_like.default", "aten.new_zeros.default")
def lower_zeros(lowering: Lowering, node: Node) -> Ref:
    return constant(lowering, node, 0)


@lowers(
    "aten.empty.memory_format", "aten.empty_like.default", "aten.empty_permuted.default", "aten.empty_strided.default",
    "aten.new_empty.default", "aten.new_empty_strided.default",
)  # fmt: skip
def lower_empty(lowering: Lowering, node: Node) -> Ref:
    """What the memory holds is left open: zeros, which nobody computes where all of it is written over."""
    return constant(lowering, node, 0)


@lowers("aten.ones.default", "aten.ones_like.default", "aten.new_ones.default")
def lower_ones(lowering: Lowering, node: Node) -> Ref:
    return constant(lowering, node, 1)


def constant(lowering: Lowering, node: Node, value: object) -> Ref:
    meta = lowering.meta(node)
    builder = lowering.builder(meta.shape)
    number = lowering.number(value)
    result = lowering.finish(node, builder, builder.constant(number, dtype_name(meta.dtype)))
    lowering.filled[result.buffer] = number
    return result


@lowers("aten.arange.start_step")
def lower_arange(lowering: Lowering, node: Node) -> Ref:
    """``start + step * i``, computed in int64 or float64 and rounded once; integers count from and by numbers without their fractions."""
    arguments = bound_arguments(node)
    return arithmetic_sequence(lowering, node, arguments["start"], arguments["step"])


@lowers("aten.arange.default")
def lower_arange_end(lowering: Lowering, node: Node) -> Ref:
    return arithmetic_sequence(lowering, node, 0, 1)


@lowers("aten.arange.start")
def lower_arange_start(lowering: Lowering, node: Node) -> Ref:
    return arithmetic_sequence(lowering, node, node.args[0], 1)


@lowers("prims.iota.default")
def lower_iota(lowering: Lowering, node: Node) -> Ref:
    return arithmetic_sequence(lowering, node, node.kwargs["start"], node.kwargs["step"])


def arithmetic_sequence(lowering: Lowering, node: Node, start: object, step: object) -> Ref:
    first, by = lowering.number(start), lowering.number(step)
    meta = lowering.meta(node)
    if not meta.dtype.is_floating_point:
        first, by = (number if isinstance(number, Sym) else int(number) for number in (first, by))
    builder = lowering.builder(meta.shape)
    if isinstance(first, int | Sym) and isinstance(by, int | Sym):
        return lowering.finish(node, builder, builder.position([by], first))
    step_index = builder.cast(builder.position([1]), "float64")
    scaled = builder.apply("mul", step_index, builder.constant(by, "float64"), dtype="float64")
    return lowering.finish(node, builder, builder.apply("add", scaled, builder.constant(first, "float64"), dtype="float64"))


# -- random numbers

SEED_REASON = "The seed comes from PyTorch's default generator, so that torch.manual_seed decides the numbers."


def seed(lowering: Lowering, node: Node, builder: NestBuilder) -> Value:
    """The value of a fresh seed: a buffer of one int64, filled by an extern call."""
    device = "cuda" if lowering.target.is_gpu else "cpu"
    buffer = lowering.new_buffer(f"{node.name}_seed", "int64", (), (), device)
    kwargs = (("dtype", Symbol("torch.int64")), ("device", Symbol(f"torch.device('{device}')")))
    args = (0, 2**31 - 1, ())
    op = "aten.randint.low"
    lowering.steps.append(
        Extern(buffer.name, op, f"torch.ops.{op}", args, kwargs, (buffer.name,), True, "ATen", "seed", SEED_REASON, lowering.origin)
    )
    return builder.load(lowering.whole(buffer), "int64")


def numbered(builder: NestBuilder) -> Value:
    """The element's number in row-major order: the counter of its random number."""
    return builder.position(row_major(builder.loops))


def random(lowering: Lowering, node: Node, op: str) -> tuple[NestBuilder, Value]:
    meta = lowering.meta(node)
    if dtype_name(meta.dtype) == "float64":
        raise Unsupported("loops", "random numbers are made in float32, not in float64")
    builder = lowering.builder(meta.shape)
    return builder, builder.apply(op, seed(lowering, node, builder), numbered(builder), dtype="float32")


@lowers("aten.rand.default", "aten.rand_like.default")
def lower_rand(lowering: Lowering, node: Node) -> Ref:
    builder, value = random(lowering, node, "rand")
    return lowering.finish(node, builder, value)


@lowers("aten.randn.default", "aten.randn_like.default")
def lower_randn(lowering: Lowering, node: Node) -> Ref:
    builder, value = random(lowering, node, "randn")
    return lowering.finish(node, builder, value)


@lowers("aten.bernoulli.p", "aten.bernoulli.default")
def lower_bernoulli(lowering: Lowering, node: Node) -> Ref:
    """One where a uniform number is below the probability: an argument, or the tensor itself."""
    builder, value = random(lowering, node, "rand")
    if overload_name(node.target) == "aten.bernoulli.p":
        probability = builder.constant(lowering.number(bound_arguments(node)["p"]), "float32")
    else:
        source = lowering.ref(node.args[0])
        probability = builder.cast(builder.load(source, lowering.dtype(source)), "float32")
    return lowering.finish(node, builder, builder.apply("lt", value, probability, dtype="bool"))
