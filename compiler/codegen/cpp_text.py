"""Types, literals and names in C++."""

from __future__ import annotations

import re
import struct
from collections.abc import Collection, Sequence
from math import isfinite, isnan

from compiler.codegen.templates import dtype_class
from compiler.ir import OpenNumber
from compiler.sizes import Sym, divisor

C_TYPES = {
    "float64": "double", "float32": "float", "float16": "float", "bfloat16": "float", "int64": "int64_t", "int32": "int32_t",
    "int16": "int16_t", "int8": "int8_t", "uint8": "uint8_t", "bool": "bool",
}  # fmt: skip
STORED = C_TYPES | {"float16": "uint16_t", "bfloat16": "uint16_t", "bool": "uint8_t"}
"""How values lie in memory; what is computed with them has ``C_TYPES``."""
_RESERVED = re.compile(r"(?:[irv]\d.*|j|width|auto|bool|break|case|catch|char|class|const|continue|default|delete|do|double|else|enum"
                       r"|explicit|extern|false|float|for|friend|goto|if|inline|int|long|namespace|new|operator|private|public|register|return|short|signed|sizeof"
                       r"|static|struct|switch|template|this|throw|true|try|typedef|union|unsigned|using|virtual|void|volatile|while|and|or|not|xor"
                       r"|larger|smaller|exp|log|sin|cos|tan|tanh|erf|pow|abs|floor|ceil|sqrt|round|trunc)")  # fmt: skip


def cpp_number(value: OpenNumber, dtype: str) -> str:
    """A C++ literal of exactly this number in this dtype; an open size, which is an int64, by its name."""
    if isinstance(value, Sym):
        return divisor(value)
    kind = dtype_class(dtype)
    if kind == "bool":
        return "true" if value else "false"
    if kind == "int":
        number = int(value)
        if number == -(2**63):
            return f"(-INT64_C({2**63 - 1}) - 1)"
        # Templates of the prelude want both arguments of one type.
        text = f"INT64_C({number})" if dtype == "int64" else str(number) if dtype == "int32" else f"({C_TYPES[dtype]}){number}"
        return f"({text})" if number < 0 or "(" in text[:1] else text
    real = float(value)
    double = dtype == "float64"
    if isnan(real):
        return f'__builtin_nan{"" if double else "f"}("")'
    if not isfinite(real) or (not double and abs(real) > 3.4028235677973366e38):
        return f"({'-' if real < 0 else ''}__builtin_inf{'' if double else 'f'}())"
    text = repr(real) if double else f"{_shortest_float(real)}f"
    return f"({text})" if text.startswith("-") else text


def _shortest_float(number: float) -> str:
    """The shortest decimal that rounds to the same float32."""
    single = struct.unpack("f", struct.pack("f", number))[0]
    for digits in range(1, 10):
        text = f"{single:.{digits}g}"
        if struct.unpack("f", struct.pack("f", float(text)))[0] == single:
            break
    return text if re.search(r"[.en]", text) else f"{text}.0"


def parameter_names(arguments: Sequence[str], taken: Collection[str] = ()) -> tuple[str, ...]:
    names: list[str] = []
    for argument in arguments:
        name = re.sub(r"\W", "_", argument)
        while _RESERVED.fullmatch(name) or name[:1].isdigit() or name in names or name in taken:
            name = f"ptr_{name}"
        names.append(name)
    return tuple(names)
