"""Rows for activation functions of neural networks and for the ops that autograd uses as their derivatives."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from compiler.ops.row import FLOAT, NUMBER, Row, Template

GRAD_SELF = ("grad_output", "self")
ZERO_TO_SIX = (
    "tl.minimum(tl.maximum({0} + 3.0, 0.0, propagate_nan=tl.PropagateNan.ALL), 6.0, propagate_nan=tl.PropagateNan.ALL)",
    "fuselab::minimum(fuselab::maximum({0} + ({t})3, ({t})0), ({t})6)",
)
# tanh(softplus(x)) without cancellation: with n = e^x (e^x + 2) it is n / (n + 2).
MISH = ("(tl.exp({0}) * (tl.exp({0}) + 2.0))", "(std::exp({0}) * (std::exp({0}) + ({t})2))")
INNER = (
    "(0.7978845608028654 * ({x} + 0.044715 * {x} * {x} * {x}))",
    "(({{t}})0.7978845608028654 * ({x} + ({{t}})0.044715 * {x} * {x} * {x}))",
)


def pointwise(name: str, operands: tuple[str, ...], triton: Template, cpp: Template, reference: object, **rest: object) -> Row:
    return Row(name, operands, (f"aten.{name}.default",), triton, cpp, reference, **{"kinds": FLOAT, **rest})  # type: ignore[arg-type]


def inner(language: int, operand: str) -> str:
    return INNER[language].format(x=operand)


ROWS: tuple[Row, ...] = (
    pointwise("relu", ("self",), "tl.maximum({0}, 0, propagate_nan=tl.PropagateNan.ALL)", "({0} < 0 ? ({t})0 : {0})", torch.relu,
        kinds=NUMBER),
    pointwise("relu6", ("self",),
        "tl.minimum(tl.maximum({0}, 0.0, propagate_nan=tl.PropagateNan.ALL), 6.0, propagate_nan=tl.PropagateNan.ALL)",
        "fuselab::minimum(fuselab::maximum({0}, ({t})0), ({t})6)", F.relu6),
    pointwise("leaky_relu", ("self", "negative_slope"), "tl.where({0} > 0, {0}, {0} * {1})", "({0} > 0 ? {0} : {0} * {1})",
        lambda a, slope: torch.where(a > 0, a, a * slope)),
    pointwise("leaky_relu_backward", (*GRAD_SELF, "negative_slope"), "tl.where({1} > 0, {0}, {0} * {2})", "({1} > 0 ? {0} : {0} * {2})",
        lambda g, a, slope: torch.where(a > 0, g, g * slope)),
    Row("prelu", ("self", "weight"), ("aten._prelu_kernel.default",), "tl.where({0} > 0, {0}, {0} * {1})", "({0} > 0 ? {0} : {0} * {1})",
        lambda a, weight: torch.where(a > 0, a, a * weight), kinds=FLOAT),
    pointwise("threshold", ("self", "threshold", "value"), "tl.where({0} <= {1}, {2}, {0})", "({0} <= {1} ? {2} : {0})",
        lambda a, limit, value: torch.where(a <= limit, value, a), kinds=NUMBER),
    pointwise("threshold_backward", (*GRAD_SELF, "threshold"), "tl.where({1} <= {2}, 0, {0})", "({1} <= {2} ? ({t})0 : {0})",
        lambda g, a, limit: torch.where(a <= limit, torch.zeros_like(g), g), kinds=NUMBER),
    pointwise("gelu", ("self",), "{0} * 0.5 * (1.0 + tl.erf({0} * 0.7071067811865476))",
        "{0} * ({t})0.5 * (({t})1 + std::erf({0} * ({t})0.7071067811865476))", F.gelu, when={"approximate": "none"}),
    Row("gelu_tanh", ("self",), ("aten.gelu.default",), f"{{0}} * 0.5 * (1.0 + libdevice.tanh{inner(0, '{0}')})",
        f"{{0}} * ({{t}})0.5 * (({{t}})1 + std::tanh{inner(1, '{0}')})", lambda a: F.gelu(a, approximate="tanh"),
        when={"approximate": "tanh"}, kinds=FLOAT),
    pointwise("gelu_backward", GRAD_SELF,
        "{0} * (0.5 * (1.0 + tl.erf({1} * 0.7071067811865476)) + {1} * tl.exp(-0.5 * {1} * {1}) * 0.3989422804014327)",
        "{0} * (({t})0.5 * (({t})1 + std::erf({1} * ({t})0.7071067811865476))"
        " + {1} * std::exp(({t})-0.5 * {1} * {1}) * ({t})0.3989422804014327)",
        torch.ops.aten.gelu_backward.default, when={"approximate": "none"}),
    Row("gelu_tanh_backward", GRAD_SELF, ("aten.gelu_backward.default",), "{0} * fuselab_gelu_tanh_slope({1})",
        "{0} * fuselab::gelu_tanh_slope({1})", lambda g, a: torch.ops.aten.gelu_backward.default(g, a, approximate="tanh"),
        when={"approximate": "tanh"}, kinds=FLOAT),
    pointwise("silu", ("self",), "{0} / (1.0 + tl.exp(-{0}))", "{0} / (({t})1 + std::exp(-{0}))", F.silu),
    pointwise("silu_backward", GRAD_SELF, "{0} / (1.0 + tl.exp(-{1})) * (1.0 + {1} * (1.0 - 1.0 / (1.0 + tl.exp(-{1}))))",
        "{0} / (({t})1 + std::exp(-{1})) * (({t})1 + {1} * (({t})1 - ({t})1 / (({t})1 + std::exp(-{1}))))",
        torch.ops.aten.silu_backward.default),
    pointwise("mish", ("self",), f"tl.where({{0}} > 20, {{0}}, {{0}} * ({MISH[0]} / ({MISH[0]} + 2.0)))",
        f"({{0}} > 20 ? {{0}} : {{0}} * ({MISH[1]} / ({MISH[1]} + ({{t}})2)))", F.mish),
    pointwise("mish_backward", GRAD_SELF, "{0} * fuselab_mish_slope({1})", "{0} * fuselab::mish_slope({1})",
        torch.ops.aten.mish_backward.default),
    pointwise("softplus", ("self", "beta", "threshold"), "tl.where({0} * {1} > {2}, {0}, libdevice.log1p(tl.exp({0} * {1})) / {1})",
        "({0} * {1} > {2} ? {0} : std::log1p(std::exp({0} * {1})) / {1})",
        lambda a, beta, limit: torch.where(a * beta > limit, a, torch.log1p(torch.exp(a * beta)) / beta),
        domain=((-4, 4), (0.5, 2), (1, 20))),
    pointwise("softplus_backward", (*GRAD_SELF, "beta", "threshold"),
        "tl.where({1} * {2} > {3}, {0}, {0} * tl.exp({1} * {2}) / (tl.exp({1} * {2}) + 1.0))",
        "({1} * {2} > {3} ? {0} : {0} * std::exp({1} * {2}) / (std::exp({1} * {2}) + ({t})1))",
        lambda g, a, beta, limit: torch.where(a * beta > limit, g, g * torch.exp(a * beta) / (torch.exp(a * beta) + 1)),
        domain=((-4, 4), (-4, 4), (0.5, 2), (1, 20))),
    pointwise("log_sigmoid", ("self",), "tl.minimum({0}, 0.0, propagate_nan=tl.PropagateNan.ALL) - libdevice.log1p(tl.exp(-tl.abs({0})))",
        "fuselab::minimum({0}, ({t})0) - std::log1p(std::exp(-std::fabs({0})))", F.logsigmoid),
    pointwise("log_sigmoid_backward", GRAD_SELF, "{0} * (1.0 / (1.0 + tl.exp({1})))", "{0} * (({t})1 / (({t})1 + std::exp({1})))",
        lambda g, a: g * torch.sigmoid(-a)),
    pointwise("sigmoid_backward", ("grad_output", "output"), "{0} * (1.0 - {1}) * {1}", "{0} * (({t})1 - {1}) * {1}",
        torch.ops.aten.sigmoid_backward.default),
    pointwise("tanh_backward", ("grad_output", "output"), "{0} * (1.0 - {1} * {1})", "{0} * (({t})1 - {1} * {1})",
        torch.ops.aten.tanh_backward.default),
    pointwise("hardtanh", ("self", "min_val", "max_val"),
        {"float": "tl.minimum(tl.maximum({0}, {1}, propagate_nan=tl.PropagateNan.ALL), {2}, propagate_nan=tl.PropagateNan.ALL)",
        "int": "tl.minimum(tl.maximum({0}, {1}), {2})"}, "fuselab::minimum(fuselab::maximum({0}, {1}), {2})",
        lambda a, low, high: torch.minimum(torch.maximum(a, low), high), kinds=NUMBER, domain=((-4, 4), (-2, 0), (1, 3))),
    pointwise("hardtanh_backward", (*GRAD_SELF, "min_val", "max_val"), "tl.where(({1} > {2}) & ({1} < {3}), {0}, 0.0)",
        "(({1} > {2}) & ({1} < {3}) ? {0} : ({t})0)", lambda g, a, low, high: torch.where((a > low) & (a < high), g, torch.zeros_like(g)),
        domain=((-4, 4), (-4, 4), (-2, 0), (1, 3))),
    pointwise("hardsigmoid", ("self",), f"{ZERO_TO_SIX[0]} / 6.0", f"{ZERO_TO_SIX[1]} / ({{t}})6", F.hardsigmoid),
    pointwise("hardsigmoid_backward", GRAD_SELF, "tl.where(({1} > -3) & ({1} < 3), {0} * 0.16666666666666666, 0.0)",
        "(({1} > -3) & ({1} < 3) ? {0} * ({t})0.16666666666666666 : ({t})0)", torch.ops.aten.hardsigmoid_backward.default),
    pointwise("hardswish", ("self",), f"{{0}} * {ZERO_TO_SIX[0]} / 6.0", f"{{0}} * {ZERO_TO_SIX[1]} / ({{t}})6", F.hardswish),
    pointwise("hardswish_backward", GRAD_SELF, "tl.where({1} <= -3, 0.0, tl.where({1} >= 3, {0}, {0} * ({1} / 3.0 + 0.5)))",
        "({1} <= -3 ? ({t})0 : {1} >= 3 ? {0} : {0} * ({1} / ({t})3 + ({t})0.5))", torch.ops.aten.hardswish_backward.default),
    pointwise("elu", ("self", "alpha", "scale", "input_scale"), "tl.where({0} > 0, {0} * {2}, libdevice.expm1({0} * {3}) * {1} * {2})",
        "({0} > 0 ? {0} * {2} : std::expm1({0} * {3}) * {1} * {2})",
        lambda a, alpha, scale, rate: torch.where(a > 0, a * scale, torch.expm1(a * rate) * alpha * scale), domain=((-4, 4), (0.5, 2))),
    pointwise("celu", ("self", "alpha"), "tl.where({0} > 0, {0}, libdevice.expm1({0} / {1}) * {1})",
        "({0} > 0 ? {0} : std::expm1({0} / {1}) * {1})", lambda a, alpha: torch.where(a > 0, a, torch.expm1(a / alpha) * alpha),
        domain=((-4, 4), (0.5, 2))),
    pointwise("selu", ("self",), "tl.where({0} > 0, {0} * 1.0507009873554805, libdevice.expm1({0}) * 1.7580993408473766)",
        "({0} > 0 ? {0} * ({t})1.0507009873554805 : std::expm1({0}) * ({t})1.7580993408473766)", F.selu),
    Row("elu_backward", ("grad_output", "self_or_result", "alpha", "scale", "input_scale"), ("aten.elu_backward.default",),
        "tl.where({1} > 0, {0} * {3}, {0} * {4} * {2} * {3} * tl.exp({1} * {4}))",
        "({1} > 0 ? {0} * {3} : {0} * {4} * {2} * {3} * std::exp({1} * {4}))",
        lambda g, a, alpha, scale, rate: torch.where(a > 0, g * scale, g * rate * alpha * scale * torch.exp(a * rate)),
        when={"is_result": False}, kinds=FLOAT, domain=((-4, 4), (-4, 4), (0.5, 2))),
    Row("elu_backward_of_result", ("grad_output", "self_or_result", "alpha", "scale", "input_scale"), ("aten.elu_backward.default",),
        "tl.where({1} > 0, {0} * {3}, {0} * {4} * ({1} + {2} * {3}))", "({1} > 0 ? {0} * {3} : {0} * {4} * ({1} + {2} * {3}))",
        lambda g, a, alpha, scale, rate: torch.where(a > 0, g * scale, g * rate * (a + alpha * scale)), when={"is_result": True},
        kinds=FLOAT, domain=((-4, 4), (-4, 4), (0.5, 2))),
    pointwise("softshrink", ("self", "lambd"), "tl.where({0} > {1}, {0} - {1}, tl.where({0} < -{1}, {0} + {1}, {0} * 0.0))",
        "({0} > {1} ? {0} - {1} : {0} < -{1} ? {0} + {1} : {0} * ({t})0)",
        lambda a, edge: torch.where(a > edge, a - edge, torch.where(a < -edge, a + edge, a * 0)), domain=((-4, 4), (0, 2))),
    pointwise("softshrink_backward", (*GRAD_SELF, "lambd"), "tl.where(({1} < -{2}) | ({1} > {2}), {0}, 0.0)",
        "(({1} < -{2}) | ({1} > {2}) ? {0} : ({t})0)", lambda g, a, edge: torch.where((a < -edge) | (a > edge), g, torch.zeros_like(g)),
        domain=((-4, 4), (-4, 4), (0, 2))),
    pointwise("hardshrink", ("self", "lambd"), "tl.where(({0} >= -{1}) & ({0} <= {1}), 0.0, {0})",
        "(({0} >= -{1}) & ({0} <= {1}) ? ({t})0 : {0})", lambda a, edge: torch.where((a >= -edge) & (a <= edge), torch.zeros_like(a), a),
        domain=((-4, 4), (0, 2))),
    pointwise("hardshrink_backward", ("grad_out", "self", "lambd"), "tl.where(({1} < -{2}) | ({1} > {2}), {0}, 0.0)",
        "(({1} < -{2}) | ({1} > {2}) ? {0} : ({t})0)", lambda g, a, edge: torch.where((a < -edge) | (a > edge), g, torch.zeros_like(g)),
        domain=((-4, 4), (-4, 4), (0, 2))),
    pointwise("logit_backward", GRAD_SELF, "tl.where(({1} < 0) | ({1} > 1), float('nan'), {0} / ({1} * (1.0 - {1})))",
        "(({1} < 0) | ({1} > 1) ? ({t})NAN : {0} / ({1} * (({t})1 - {1})))", lambda g, a: torch.ops.aten.logit_backward.default(g, a),
        when={"eps": None}, domain=((-4, 4), (0, 1))),
    Row("dropout_backward", ("grad_output", "mask", "scale"), ("aten.native_dropout_backward.default",), "{0} * {1} * {2}",
        "{0} * {1} * {2}", lambda g, kept, scale: g * kept * scale, kinds=FLOAT, domain=((-4, 4), (0, 1), (1, 2))),
)  # fmt: skip
