"""Rows for arithmetic: sums, products, quotients, rounding, extrema, powers, and the pieces of floats."""

from __future__ import annotations

import torch
from torch import Tensor

from compiler.ops.row import FLOAT, NUMBER, Kind, Row, Template

SELF_OTHER = ("self", "other")
# C++ promotes small integers to int, and signed overflow is undefined there: computed as unsigned and narrowed, they wrap as in eager.
WRAPPING = "({{t}})((uint64_t){{0}} {0} (uint64_t){{1}})"


def wrapping(sign: str, on_bool: str = "") -> dict[str, str]:
    return {"float": f"{{0}} {sign} {{1}}", "int": WRAPPING.format(sign), "bool": on_bool or f"{{0}} {sign} {{1}}"}


def floor_divide_float(a: Tensor, b: Tensor) -> Tensor:
    return torch.div(a, b, rounding_mode="floor")


def powers(a: Tensor, b: Tensor) -> Tensor:
    """Integers raised to a negative power are 0, but for 1 and -1, as in eager for tensors (a negative Python number raises there)."""
    return torch.pow(a, b)


def power(name: str, exponent: float, triton: Template, cpp: Template, kinds: tuple[Kind, ...]) -> Row:
    def reference(base: Tensor, _: Tensor) -> Tensor:
        return torch.pow(base, exponent)

    return Row(
        name, ("self", "exponent"), ("aten.pow.Tensor_Scalar",), triton, cpp, reference, when={"exponent": exponent}, kinds=kinds,
        domain=((-4, 4), (exponent, exponent)),
    )  # fmt: skip


SQUARE_ROOT: Template = {"float64": "tl.sqrt({0})", "float32": "tl.sqrt_rn({0})"}
QUOTIENT: Template = {
    "float64": "({0} / {1})",
    "float32": "tl.div_rn({0}, {1})",
}
FLOOR_QUOTIENT: Template = {
    # Python's: what the remainder leaves is divided exactly, then rounded to the nearest integer; a zero divisor divides as usual.
    "float64": "fuselab_floor_divide({0}, {1})",
    "float32": "fuselab_floor_divide({0}, {1})",
    "int": "tl.where((({0} % {1}) != 0) & (({0} < 0) != ({1} < 0)), {0} // {1} - 1, {0} // {1})",
}

ROWS: tuple[Row, ...] = (
    Row("add", SELF_OTHER, ("aten.add.Tensor", "aten.add.Scalar"), {"float": "{0} + {1}", "int": "{0} + {1}", "bool": "{0} | {1}"},
        wrapping("+", "{0} | {1}"), torch.add, when={"alpha": 1}),
    Row("add_scaled", ("self", "other", "alpha"), ("aten.add.Tensor", "aten.add.Scalar"), "{0} + {1} * {2}", {"float": "{0} + {1} * {2}",
        "int": "({t})((uint64_t){0} + (uint64_t){1} * (uint64_t){2})"}, lambda a, b, alpha: a + b * alpha, kinds=NUMBER),
    Row("sub", SELF_OTHER, ("aten.sub.Tensor", "aten.sub.Scalar"), "{0} - {1}", wrapping("-"), torch.sub, when={"alpha": 1}, kinds=NUMBER),
    Row("sub_scaled", ("self", "other", "alpha"), ("aten.sub.Tensor", "aten.sub.Scalar"), "{0} - {1} * {2}", {"float": "{0} - {1} * {2}",
        "int": "({t})((uint64_t){0} - (uint64_t){1} * (uint64_t){2})"}, lambda a, b, alpha: a - b * alpha, kinds=NUMBER),
    Row("sub", ("other", "self"), ("aten.rsub.Tensor", "aten.rsub.Scalar"), "{0} - {1}", wrapping("-"), torch.sub, when={"alpha": 1},
        kinds=NUMBER),
    Row("sub_scaled", ("other", "self", "alpha"), ("aten.rsub.Tensor", "aten.rsub.Scalar"), "{0} - {1} * {2}", {"float": "{0} - {1} * {2}",
        "int": "({t})((uint64_t){0} - (uint64_t){1} * (uint64_t){2})"}, lambda a, b, alpha: a - b * alpha, kinds=NUMBER),
    Row("mul", SELF_OTHER, ("aten.mul.Tensor", "aten.mul.Scalar"), {"float": "{0} * {1}", "int": "{0} * {1}", "bool": "{0} & {1}"},
        wrapping("*", "{0} & {1}"), torch.mul),
    Row("truediv", SELF_OTHER, ("aten.div.Tensor", "aten.div.Scalar", "aten.true_divide.Tensor", "aten.true_divide.Scalar"), QUOTIENT,
        "{0} / {1}", torch.true_divide, promote="float", kinds=FLOAT),
    Row("truediv", SELF_OTHER, ("aten.div.Tensor_mode", "aten.div.Scalar_mode"), QUOTIENT, "{0} / {1}", torch.true_divide,
        when={"rounding_mode": None}, promote="float", kinds=FLOAT),
    Row("floor_divide", SELF_OTHER, ("aten.div.Tensor_mode", "aten.div.Scalar_mode"), FLOOR_QUOTIENT,
        {"float": "fuselab::floor_divide({0}, {1})", "int": "fuselab::floor_quotient({0}, {1})"}, floor_divide_float,
        when={"rounding_mode": "floor"}, kinds=NUMBER, domain=((-90, 90), (1, 9))),
    Row("floor_divide", SELF_OTHER, ("aten.floor_divide.default", "aten.floor_divide.Scalar"), FLOOR_QUOTIENT,
        {"float": "fuselab::floor_divide({0}, {1})", "int": "fuselab::floor_quotient({0}, {1})"}, floor_divide_float, kinds=NUMBER,
        domain=((-90, 90), (1, 9))),
    Row("trunc_divide", SELF_OTHER, ("aten.div.Tensor_mode", "aten.div.Scalar_mode"), {"float64": "fuselab_trunc({0} / {1})",
        "float32": "fuselab_trunc(tl.div_rn({0}, {1}))", "int": "{0} // {1}"}, {"float": "std::trunc({0} / {1})",
        "int": "fuselab::quotient({0}, {1})"}, lambda a, b: torch.div(a, b, rounding_mode="trunc"), when={"rounding_mode": "trunc"},
        kinds=NUMBER, domain=((-90, 90), (1, 9))),
    Row("fmod", SELF_OTHER, ("aten.fmod.Tensor", "aten.fmod.Scalar"), {"float": "libdevice.fmod({0}, {1})", "int": "{0} % {1}"},
        {"float": "std::fmod({0}, {1})", "int": "fuselab::truncated_remainder({0}, {1})"}, torch.fmod, kinds=NUMBER,
        domain=((-90, 90), (1, 9))),
    Row("remainder", SELF_OTHER, ("aten.remainder.Tensor", "aten.remainder.Scalar", "aten.remainder.Scalar_Tensor"),
        {"float": "fuselab_remainder({0}, {1})",
        "int": "tl.where((({0} % {1}) != 0) & (({0} < 0) != ({1} < 0)), {0} % {1} + {1}, {0} % {1})"},
        {"float": "fuselab::remainder({0}, {1})", "int": "fuselab::floor_remainder({0}, {1})"}, torch.remainder, kinds=NUMBER,
        domain=((-90, 90), (1, 9))),
    Row("neg", ("self",), ("aten.neg.default",), "-{0}", {"float": "-{0}", "int": "({t})(0 - (uint64_t){0})"}, torch.neg, kinds=NUMBER),
    Row("abs", ("self",), ("aten.abs.default",), {"float": "tl.abs({0})", "int": "tl.abs({0})", "uint8": "{0}", "bool": "{0}"},
        {"float": "std::fabs({0})", "int": "({t})({0} < 0 ? 0 - (uint64_t){0} : (uint64_t){0})", "bool": "{0}"},
        lambda a: a if a.dtype == torch.bool else a.abs()),
    Row("identity", ("self",), ("aten.positive.default",), "{0}", "{0}", lambda a: a.clone(), opmath=False),
    Row("identity", ("value",), ("aten.fill.Scalar",), "{0}", "{0}", lambda a: a.clone(), promote="keep", opmath=False),
    Row("square", ("self",), ("aten.square.default",), "{0} * {0}", {"float": "{0} * {0}", "int": "({t})((uint64_t){0} * (uint64_t){0})"},
        lambda a: a * a, kinds=NUMBER),
    Row("reciprocal", ("self",), ("aten.reciprocal.default",), {"float64": "1.0 / {0}", "float32": "tl.div_rn(1.0, {0})"}, "({t})1 / {0}",
        torch.reciprocal, promote="float", kinds=FLOAT),
    Row("sign", ("self",), ("aten.sign.default", "aten.sgn.default"),
        {"float": "tl.where({0} > 0, 1.0, tl.where({0} < 0, -1.0, 0.0)).to({t})", "int": "({0} > 0).to({t}) - ({0} < 0).to({t})",
        "bool": "{0}"}, {"float": "({t})({0} > 0) - ({t})({0} < 0)", "int": "({0} > 0) - ({0} < 0)", "bool": "{0}"}, torch.sign),
    Row("maximum", SELF_OTHER, ("aten.maximum.default", "aten.max.other"),
        {"float": "tl.maximum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)", "int": "tl.maximum({0}, {1})", "bool": "{0} | {1}"},
        {"float": "(({0} > {1}) | ({0} != {0}) ? {0} : {1})", "int": "({0} > {1} ? {0} : {1})", "bool": "{0} | {1}"}, torch.maximum),
    Row("minimum", SELF_OTHER, ("aten.minimum.default", "aten.min.other"),
        {"float": "tl.minimum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)", "int": "tl.minimum({0}, {1})", "bool": "{0} & {1}"},
        {"float": "(({0} < {1}) | ({0} != {0}) ? {0} : {1})", "int": "({0} < {1} ? {0} : {1})", "bool": "{0} & {1}"}, torch.minimum),
    Row("fmax", SELF_OTHER, ("aten.fmax.default",), {"float": "tl.maximum({0}, {1})", "int": "tl.maximum({0}, {1})", "bool": "{0} | {1}"},
        {"float": "(({0} > {1}) | ({1} != {1}) ? {0} : {1})", "int": "({0} > {1} ? {0} : {1})", "bool": "{0} | {1}"}, torch.fmax),
    Row("fmin", SELF_OTHER, ("aten.fmin.default",), {"float": "tl.minimum({0}, {1})", "int": "tl.minimum({0}, {1})", "bool": "{0} & {1}"},
        {"float": "(({0} < {1}) | ({1} != {1}) ? {0} : {1})", "int": "({0} < {1} ? {0} : {1})", "bool": "{0} & {1}"}, torch.fmin),
    Row("clamp", ("self", "min", "max"), ("aten.clamp.default", "aten.clamp.Tensor", "aten.clip.default", "aten.clip.Tensor"),
        {"float": "tl.minimum(tl.maximum({0}, {1}, propagate_nan=tl.PropagateNan.ALL), {2}, propagate_nan=tl.PropagateNan.ALL)",
        "int": "tl.minimum(tl.maximum({0}, {1}), {2})"}, {"float": "fuselab::minimum(fuselab::maximum({0}, {1}), {2})",
        "int": "fuselab::minimum(fuselab::maximum({0}, {1}), {2})"}, lambda a, low, high: torch.minimum(torch.maximum(a, low), high),
        kinds=NUMBER, domain=((-4, 4), (-2, 0), (1, 3))),
    Row("maximum", ("self", "min"), ("aten.clamp.default", "aten.clamp.Tensor", "aten.clip.default", "aten.clip.Tensor"), "", "",
        torch.maximum, when={"max": None}),
    Row("minimum", ("self", "max"), ("aten.clamp.default", "aten.clamp.Tensor", "aten.clip.default", "aten.clip.Tensor"), "", "",
        torch.minimum, when={"min": None}),
    Row("maximum", ("self", "min"), ("aten.clamp_min.default", "aten.clamp_min.Tensor"), "", "", torch.maximum),
    Row("minimum", ("self", "max"), ("aten.clamp_max.default", "aten.clamp_max.Tensor"), "", "", torch.minimum),
    Row("floor", ("self",), ("aten.floor.default",), {"float": "tl.floor({0})", "int": "{0}"}, {"float": "std::floor({0})", "int": "{0}"},
        lambda a: torch.floor(a), kinds=NUMBER),
    Row("ceil", ("self",), ("aten.ceil.default",), {"float": "tl.ceil({0})", "int": "{0}"}, {"float": "std::ceil({0})", "int": "{0}"},
        lambda a: torch.ceil(a), kinds=NUMBER),
    Row("trunc", ("self",), ("aten.trunc.default", "aten.fix.default"), {"float": "fuselab_trunc({0})", "int": "{0}"},
        {"float": "std::trunc({0})", "int": "{0}"}, lambda a: torch.trunc(a), kinds=NUMBER),
    Row("round", ("self",), ("aten.round.default",), {"float": "fuselab_round({0})", "int": "{0}"},
        {"float": "std::nearbyint({0})", "int": "{0}"}, lambda a: torch.round(a), kinds=NUMBER),
    Row("frac", ("self",), ("aten.frac.default",), "{0} - fuselab_trunc({0})", "{0} - std::trunc({0})", torch.frac, kinds=FLOAT),
    Row("lerp", ("self", "end", "weight"), ("aten.lerp.Scalar", "aten.lerp.Tensor"),
        "tl.where(tl.abs({2}) < 0.5, {0} + {2} * ({1} - {0}), {1} - ({1} - {0}) * (1.0 - {2}))",
        "(std::fabs({2}) < ({t})0.5 ? {0} + {2} * ({1} - {0}) : {1} - ({1} - {0}) * (({t})1 - {2}))", torch.lerp, kinds=FLOAT),
    Row("addcmul", ("self", "tensor1", "tensor2", "value"), ("aten.addcmul.default",), "{0} + {3} * {1} * {2}",
        {"float": "{0} + {3} * {1} * {2}", "int": "({t})((uint64_t){0} + (uint64_t){3} * (uint64_t){1} * (uint64_t){2})"},
        lambda a, b, c, v: a + v * b * c, kinds=NUMBER),
    Row("addcdiv", ("self", "tensor1", "tensor2", "value"), ("aten.addcdiv.default",), {"float64": "{0} + {3} * ({1} / {2})",
        "float32": "{0} + {3} * tl.div_rn({1}, {2})"}, "{0} + {3} * ({1} / {2})", lambda a, b, c, v: a + v * (b / c), kinds=FLOAT),
    Row("fma", ("self", "other", "third"), (), "tl.fma({0}, {1}, {2})", "std::fma({0}, {1}, {2})",
        lambda a, b, c: (a.double() * b.double() + c.double()).to(a.dtype), kinds=FLOAT),
    Row("copysign", SELF_OTHER, ("aten.copysign.Tensor", "aten.copysign.Scalar"),
        {"float32": "tl.where({1}.to(tl.int32, bitcast=True) < 0, -tl.abs({0}), tl.abs({0}))",
        "float64": "tl.where({1}.to(tl.int64, bitcast=True) < 0, -tl.abs({0}), tl.abs({0}))"}, "std::copysign({0}, {1})", torch.copysign,
        promote="float", kinds=FLOAT),
    Row("hypot", SELF_OTHER, ("aten.hypot.default",), "libdevice.hypot({0}, {1})", "std::hypot({0}, {1})", torch.hypot, kinds=FLOAT),
    # The powers that eager computes without pow; the exponent stays an operand, since it decides the dtype.
    power("pow_2", 2, "{0} * {0}", {"float": "{0} * {0}", "int": "({t})((uint64_t){0} * (uint64_t){0})"}, NUMBER),
    power("pow_3", 3, "{0} * {0} * {0}",
        {"float": "{0} * {0} * {0}", "int": "({t})((uint64_t){0} * (uint64_t){0} * (uint64_t){0})"}, NUMBER),
    power("pow_half", 0.5, SQUARE_ROOT, "std::sqrt({0})", FLOAT),
    power("pow_minus_half", -0.5, {"float64": "1.0 / tl.sqrt({0})", "float32": "tl.rsqrt({0})"}, "({t})1 / std::sqrt({0})", FLOAT),
    power("pow_minus_1", -1, {"float64": "1.0 / {0}", "float32": "tl.div_rn(1.0, {0})"}, "({t})1 / {0}", FLOAT),
    power("pow_minus_2", -2, {"float64": "1.0 / ({0} * {0})", "float32": "tl.div_rn(1.0, {0} * {0})"}, "({t})1 / ({0} * {0})", FLOAT),
    Row("pow", ("self", "exponent"), ("aten.pow.Tensor_Tensor", "aten.pow.Tensor_Scalar", "aten.pow.Scalar"),
        {"float": "libdevice.pow({0}, {1})", "int": "fuselab_int_pow({0}, {1})"}, {"float": "std::pow({0}, {1})",
        "int": "fuselab::int_pow({0}, {1})"}, powers, kinds=NUMBER, domain=((0, 4), (-3, 3))),
    Row("heaviside", ("self", "values"), ("aten.heaviside.default",), {"float": "tl.where({0} == 0, {1}, ({0} > 0).to({t}))",
        "int": "tl.where({0} == 0, {1}, ({0} > 0).to({t}))", "bool": "{0} | {1}"}, "({0} == 0 ? {1} : ({t})({0} > 0))", torch.heaviside),
    Row("where", ("condition", "self", "other"), ("aten.where.self", "aten.where.ScalarOther", "aten.where.ScalarSelf"),
        "tl.where({0}, {1}, {2})", "({0} ? {1} : {2})", torch.where, opmath=False),
    Row("where", ("mask", "value", "self"), ("aten.masked_fill.Scalar",), "", "", torch.where, opmath=False),
)  # fmt: skip
