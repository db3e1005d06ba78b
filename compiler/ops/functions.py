"""Rows for the functions of analysis: exponentials, logarithms, trigonometry, and what is put together from them."""

from __future__ import annotations

import torch

from compiler.ops.arithmetic import SQUARE_ROOT
from compiler.ops.row import FLOAT, Row, Template, unary

EXACT_RSQRT: Template = {"float64": "1.0 / tl.sqrt({0})", "float32": "tl.rsqrt({0})"}

ROWS: tuple[Row, ...] = (
    unary("exp", "tl.exp({0})", "std::exp({0})", torch.exp),
    unary("exp2", "libdevice.exp2({0})", "std::exp2({0})", torch.exp2),
    unary("expm1", "libdevice.expm1({0})", "std::expm1({0})", torch.expm1),
    unary("log", "tl.log({0})", "std::log({0})", torch.log, domain=(-0.1, 9)),
    unary("log2", "tl.log2({0})", "std::log2({0})", torch.log2, domain=(-0.1, 9)),
    unary("log10", "libdevice.log10({0})", "std::log10({0})", torch.log10, domain=(-0.1, 9)),
    unary("log1p", "libdevice.log1p({0})", "std::log1p({0})", torch.log1p, domain=(-1.1, 9)),
    unary("sqrt", SQUARE_ROOT, "std::sqrt({0})", torch.sqrt, domain=(-0.1, 9)),
    unary("rsqrt", EXACT_RSQRT, "({t})1 / std::sqrt({0})", torch.rsqrt, domain=(-0.1, 9)),
    unary("sin", "tl.sin({0})", "std::sin({0})", torch.sin),
    unary("cos", "tl.cos({0})", "std::cos({0})", torch.cos),
    unary("tan", "libdevice.tan({0})", "std::tan({0})", torch.tan, domain=(-1.4, 1.4)),
    unary("asin", "libdevice.asin({0})", "std::asin({0})", torch.asin, domain=(-1.1, 1.1)),
    unary("acos", "libdevice.acos({0})", "std::acos({0})", torch.acos, domain=(-1.1, 1.1)),
    unary("atan", "libdevice.atan({0})", "std::atan({0})", torch.atan),
    unary("sinh", "libdevice.sinh({0})", "std::sinh({0})", torch.sinh),
    unary("cosh", "libdevice.cosh({0})", "std::cosh({0})", torch.cosh),
    unary("tanh", "libdevice.tanh({0})", "std::tanh({0})", torch.tanh),
    unary("asinh", "libdevice.asinh({0})", "std::asinh({0})", torch.asinh),
    unary("acosh", "libdevice.acosh({0})", "std::acosh({0})", torch.acosh, domain=(0.9, 9)),
    unary("atanh", "libdevice.atanh({0})", "std::atanh({0})", torch.atanh, domain=(-1.1, 1.1)),
    unary("deg2rad", "{0} * 0.017453292519943295", "{0} * ({t})0.017453292519943295", torch.deg2rad, domain=(-360, 360)),
    unary("rad2deg", "{0} * 57.29577951308232", "{0} * ({t})57.29577951308232", torch.rad2deg),
    unary("sinc", "tl.where({0} == 0, 1.0, tl.sin({0} * 3.141592653589793) / ({0} * 3.141592653589793))",
        "({0} == 0 ? ({t})1 : std::sin({0} * ({t})3.141592653589793) / ({0} * ({t})3.141592653589793))", torch.sinc),
    Row("logit", ("self",), ("aten.logit.default", "aten.special_logit.default"), "tl.log({0} / (1.0 - {0}))",
        "std::log({0} / (({t})1 - {0}))", torch.logit, when={"eps": None}, promote="float", kinds=FLOAT, domain=((-0.1, 1.1),)),
    Row("logit_clamped", ("self", "eps"), ("aten.logit.default", "aten.special_logit.default"), "fuselab_logit({0}, {1})",
        "fuselab::logit({0}, {1})", lambda a, eps: torch.logit(torch.where(a < eps, eps, torch.where(a > 1 - eps, 1 - eps, a))),
        promote="float", kinds=FLOAT, domain=((-0.1, 1.1), (0.001, 0.4))),
    unary("sigmoid", "1.0 / (1.0 + tl.exp(-{0}))", "({t})1 / (({t})1 + std::exp(-{0}))", torch.sigmoid,
        aten=("aten.sigmoid.default", "aten.special_expit.default")),
    Row("atan2", ("self", "other"), ("aten.atan2.default",), "libdevice.atan2({0}, {1})", "std::atan2({0}, {1})", torch.atan2,
        promote="float", kinds=FLOAT),
    Row("logaddexp", ("self", "other"), ("aten.logaddexp.default",),
        "tl.where({0} == {1}, {0} + 0.6931471805599453, tl.maximum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)"
        " + libdevice.log1p(tl.exp(-tl.abs({0} - {1}))))",
        "({0} == {1} ? {0} + ({t})0.6931471805599453 : fuselab::maximum({0}, {1}) + std::log1p(std::exp(-std::fabs({0} - {1}))))",
        torch.logaddexp, kinds=FLOAT),
    Row("logaddexp2", ("self", "other"), ("aten.logaddexp2.default",),
        "tl.where({0} == {1}, {0} + 1.0, tl.maximum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)"
        " + libdevice.log1p(tl.exp2(-tl.abs({0} - {1}))) * 1.4426950408889634)",
        "({0} == {1} ? {0} + ({t})1 : fuselab::maximum({0}, {1}) + std::log1p(std::exp2(-std::fabs({0} - {1}))) * ({t})1.4426950408889634)",
        torch.logaddexp2, kinds=FLOAT),
    Row("xlogy", ("self", "other"), ("aten.xlogy.Tensor", "aten.xlogy.Scalar_Other", "aten.xlogy.Scalar_Self"),
        "tl.where({1} != {1}, {1}, tl.where({0} == 0, 0.0, {0} * tl.log({1})))",
        "({1} != {1} ? {1} : {0} == 0 ? ({t})0 : {0} * std::log({1}))", torch.xlogy, promote="float", kinds=FLOAT,
        domain=((-4, 4), (-0.1, 9))),
    Row("xlog1py", ("self", "other"), ("aten.special_xlog1py.default", "aten.special_xlog1py.other_scalar",
        "aten.special_xlog1py.self_scalar"), "tl.where({1} != {1}, {1}, tl.where({0} == 0, 0.0, {0} * libdevice.log1p({1})))",
        "({1} != {1} ? {1} : {0} == 0 ? ({t})0 : {0} * std::log1p({1}))", torch.special.xlog1py, promote="float", kinds=FLOAT,
        domain=((-4, 4), (-1.1, 9))),
    unary("entr", "tl.where({0} != {0}, {0}, tl.where({0} > 0, -{0} * tl.log({0}), tl.where({0} == 0, 0.0, float('-inf'))))",
        "({0} != {0} ? {0} : {0} > 0 ? -{0} * std::log({0}) : {0} == 0 ? ({t})0 : -({t})INFINITY)", torch.special.entr,
        aten=("aten.special_entr.default",)),
)  # fmt: skip
