"""Rows for questions and bits: comparisons, logic, classification of floats, bitwise ops and shifts."""

from __future__ import annotations

import torch

from compiler.ops.row import INT, WHOLE, Reference, Row, Template

SELF_OTHER = ("self", "other")


def comparison(name: str, sign: str, reference: Reference) -> Row:
    return Row(
        name,
        SELF_OTHER,
        (f"aten.{name}.Tensor", f"aten.{name}.Scalar"),
        f"{{0}} {sign} {{1}}",
        f"{{0}} {sign} {{1}}",
        reference,
        promote="bool",
    )


def question(name: str, triton: Template, cpp: Template, reference: Reference, *operands: str) -> Row:
    """A predicate of any number."""
    return Row(name, operands or ("self",), (f"aten.{name}.default",), triton, cpp, reference, promote="bool")


def bitwise(name: str, sign: str, reference: Reference) -> Row:
    overloads = tuple(f"aten.bitwise_{name}.{overload}" for overload in ("Tensor", "Scalar", "Scalar_Tensor"))
    return Row(
        f"bitwise_{name}",
        SELF_OTHER,
        overloads,
        f"{{0}} {sign} {{1}}",
        f"{{0}} {sign} {{1}}",
        reference,
        kinds=WHOLE,
        domain=((-100, 100),),
    )


def shift(name: str, triton: Template, cpp: Template, reference: Reference) -> Row:
    overloads = tuple(f"aten.bitwise_{name}_shift.{overload}" for overload in ("Tensor", "Tensor_Scalar", "Scalar_Tensor"))
    others = (f"aten.__{name[0]}shift__.Tensor", f"aten.__{name[0]}shift__.Scalar")
    return Row(f"bitwise_{name}_shift", SELF_OTHER, (*overloads, *others), triton, cpp, reference, kinds=INT, domain=((-100, 100), (0, 6)))


NEVER = "{0} != {0}"
ALWAYS = "{0} == {0}"

ROWS: tuple[Row, ...] = (
    comparison("eq", "==", torch.eq),
    comparison("ne", "!=", torch.ne),
    comparison("lt", "<", torch.lt),
    comparison("le", "<=", torch.le),
    comparison("gt", ">", torch.gt),
    comparison("ge", ">=", torch.ge),
    question("logical_and", {"float": "({0} != 0) & ({1} != 0)", "int": "({0} != 0) & ({1} != 0)", "bool": "{0} & {1}"},
        "({0} != 0) & ({1} != 0)", torch.logical_and, *SELF_OTHER),
    question("logical_or", {"float": "({0} != 0) | ({1} != 0)", "int": "({0} != 0) | ({1} != 0)", "bool": "{0} | {1}"},
        "({0} != 0) | ({1} != 0)", torch.logical_or, *SELF_OTHER),
    question("logical_xor", {"float": "({0} != 0) ^ ({1} != 0)", "int": "({0} != 0) ^ ({1} != 0)", "bool": "{0} ^ {1}"},
        "({0} != 0) != ({1} != 0)", torch.logical_xor, *SELF_OTHER),
    question("logical_not", "{0} == 0", "{0} == 0", torch.logical_not),
    question("isnan", "{0} != {0}", {"float": "{0} != {0}", "int": "false", "bool": "false"}, torch.isnan),
    question("isinf", {"float": "tl.abs({0}) == float('inf')", "int": NEVER, "bool": NEVER}, {"float": "std::fabs({0}) == ({t})INFINITY",
        "int": "false", "bool": "false"}, torch.isinf),
    question("isfinite", {"float": "tl.abs({0}) < float('inf')", "int": ALWAYS, "bool": ALWAYS}, {"float": "std::fabs({0}) < ({t})INFINITY",
        "int": "true", "bool": "true"}, torch.isfinite),
    question("isposinf", {"float": "{0} == float('inf')", "int": NEVER, "bool": NEVER}, {"float": "{0} == ({t})INFINITY", "int": "false",
        "bool": "false"}, torch.isposinf),
    question("isneginf", {"float": "{0} == float('-inf')", "int": NEVER, "bool": NEVER}, {"float": "{0} == -({t})INFINITY", "int": "false",
        "bool": "false"}, torch.isneginf),
    question("signbit", {"float64": "{0}.to(tl.int64, bitcast=True) < 0", "float32": "{0}.to(tl.int32, bitcast=True) < 0", "int": "{0} < 0",
        "bool": NEVER}, {"float": "(bool)std::signbit({0})", "int": "{0} < 0", "bool": "false"}, torch.signbit),
    bitwise("and", "&", torch.bitwise_and),
    bitwise("or", "|", torch.bitwise_or),
    bitwise("xor", "^", torch.bitwise_xor),
    Row("bitwise_not", ("self",), ("aten.bitwise_not.default",), {"int": "~{0}", "bool": "{0} == 0"}, {"int": "~{0}", "bool": "!{0}"},
        torch.bitwise_not, kinds=WHOLE, domain=((-100, 100),)),
    # A shift by a negative number or by all bits leaves nothing but the sign.
    shift("left", "tl.where(({1} < 0) | ({1} >= {bits}), 0, {0} << {1})",
        "(({1} < 0) | ({1} >= {bits}) ? ({t})0 : ({t})((uint64_t){0} << ({1} & {last})))", torch.bitwise_left_shift),
    shift("right", {"int": "{0} >> tl.where(({1} < 0) | ({1} >= {bits}), {last}, {1})", "uint8": "tl.where({1} >= 8, 0, {0} >> {1})"},
        {"int": "({t})({0} >> (({1} < 0) | ({1} >= {bits}) ? ({t}){last} : {1}))", "uint8": "({1} >= 8 ? 0 : {0} >> {1})"},
        torch.bitwise_right_shift),
)  # fmt: skip
