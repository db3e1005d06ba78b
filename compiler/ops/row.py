"""What one elementwise op is: which ATen overloads mean it, its dtypes, how it prints in Triton and C++, and what it must equal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from torch import Tensor

from compiler.ir import ITEM_BYTES, Number

Kind = Literal["float", "int", "bool"]
Template = str | Mapping[str, str]
Reference = Callable[..., Tensor]
Bounds = tuple[float, float]

FLOAT: tuple[Kind, ...] = ("float",)
INT: tuple[Kind, ...] = ("int",)
NUMBER: tuple[Kind, ...] = ("float", "int")
WHOLE: tuple[Kind, ...] = ("int", "bool")
ANY: tuple[Kind, ...] = ("float", "int", "bool")

TRITON_TYPES: dict[str, str] = {
    "float64": "tl.float64", "float32": "tl.float32", "float16": "tl.float16", "bfloat16": "tl.bfloat16", "int64": "tl.int64",
    "int32": "tl.int32", "int16": "tl.int16", "int8": "tl.int8", "uint8": "tl.uint8", "bool": "tl.int1",
}  # fmt: skip
CPP_TYPES: dict[str, str] = {
    "float64": "double", "float32": "float", "int64": "int64_t", "int32": "int32_t", "int16": "int16_t", "int8": "int8_t",
    "uint8": "uint8_t", "bool": "bool", "float16": "float", "bfloat16": "float",
}  # fmt: skip


def kind_of(dtype: str) -> Kind:
    return "float" if "float" in dtype else "bool" if dtype == "bool" else "int"


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """An elementwise op.

    ``operands`` names the parameters of the ATen schemas ``aten`` that become operands, in this order; ``when`` gives other parameters the
    values that they must have. ``promote``: compute in the dtype to which eager promotes the operands ("same"), in a float dtype ("float":
    integers become the default one), in the promoted dtype with a bool as result ("bool"), or take each operand as it is ("keep").
    ``opmath``: 16-bit floats are computed as float32. ``kinds`` of computing dtype exist. ``reference`` is what it must equal, on tensors
    of the computing dtype.

    The templates are ``str.format`` texts over the operands {0}, {1}, ..., the computing dtype {t} in the target language and its {bits}
    ({last}: bits less one), or a mapping of such by dtype or by kind of dtype. Operands are names or parenthesised; a result in C++ may be
    wider than its dtype and is to be assigned to a variable of that dtype. ``domain`` bounds each operand in tests. ``only_cpp`` says why
    there is no template for Triton, so that on GPUs PyTorch's own kernel is called.
    """

    name: str
    operands: tuple[str, ...]
    aten: tuple[str, ...]
    triton: Template
    cpp: Template
    reference: Reference
    when: Mapping[str, object] = field(default_factory=dict)
    promote: Literal["same", "float", "bool", "keep"] = "same"
    opmath: bool = True
    kinds: tuple[Kind, ...] = ANY
    domain: tuple[Bounds, ...] = ()
    only_cpp: str = ""

    def print(self, language: Literal["triton", "cpp"], arguments: Sequence[str], dtype: str) -> str:
        """The expression on these operands, computed in ``dtype`` (the dtype of the last operand; for a comparison not the result's)."""
        template = self.triton if language == "triton" else self.cpp
        types = TRITON_TYPES if language == "triton" else CPP_TYPES
        if not isinstance(template, str):
            template = template[dtype] if dtype in template else template[kind_of(dtype)]
        bits = 8 * ITEM_BYTES[dtype]
        return template.format(*arguments, t=types[dtype], bits=bits, last=bits - 1)

    def bounds(self, operand: int) -> Bounds:
        """The range that tests draw this operand from."""
        return self.domain[min(operand, len(self.domain) - 1)] if self.domain else (-4.0, 4.0)


@dataclass(frozen=True, slots=True, eq=False)
class ReductionRow:
    """A reduction: the number that changes nothing for each dtype, its value along one axis, the kinds of values that it takes, and its
    result's dtype (empty: that of the values).
    """

    op: str
    identity: Callable[[str], Number]
    reference: Callable[[Tensor, int], Tensor]
    kinds: tuple[Kind, ...]
    result: str = ""


def unary(
    name: str, triton: Template, cpp: Template, reference: Reference, *, domain: Bounds = (-4.0, 4.0), aten: tuple[str, ...] = ()
) -> Row:
    """A function of one float that integers are converted for, as most of mathematics is."""
    return Row(name, ("self",), aten or (f"aten.{name}.default",), triton, cpp, reference, promote="float", kinds=FLOAT, domain=(domain,))
