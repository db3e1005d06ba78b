"""Literals, names and helper functions in Triton, and how wide its integers must be."""

from __future__ import annotations

import keyword
import re
from collections.abc import Collection, Sequence
from math import isfinite, isnan

from compiler.codegen.reductions import HELPER_NAMES, reduction_helpers
from compiler.codegen.templates import dtype_class
from compiler.ir import Number
from compiler.ops import triton_prelude
from compiler.sizes import Size, Sym, hint, proved, unnamed

_WIDE = 2**31
_RESERVED = re.compile(r"[xyr]|tl|triton|libdevice|BLOCK|ROW|lane|start|[xyr]_mask|mask|([ijrv]|best|at|acc|carry|from|run|place)\d.*")


def triton_number(value: Number, dtype: str) -> str:
    """A Python literal that Triton reads as exactly this number."""
    kind = dtype_class(dtype)
    if kind == "bool":
        return str(bool(value))
    if kind == "int":
        return str(int(value))
    number = float(value)
    if isfinite(number):
        return repr(number)
    return 'float("nan")' if isnan(number) else f'float("{"-" if number < 0 else ""}inf")'


def triton_helpers(code: str) -> list[str]:
    """The functions that kernels call beside Triton's own."""
    called = triton_prelude(code).strip()
    return [*(text.strip() for text in reduction_helpers(code)), *([called] if called else [])]


def parameter_names(arguments: Sequence[str], taken: Collection[str] = ()) -> tuple[str, ...]:
    """What the kernel calls its buffers: their own names where Python and the rest of the kernel allow it."""
    names: list[str] = []
    for argument in arguments:
        name = re.sub(r"\W", "_", argument)
        while (
            _RESERVED.fullmatch(name)
            or name in HELPER_NAMES
            or keyword.iskeyword(name)
            or name[:1].isdigit()
            or name in names
            or name in taken
        ):
            name = f"ptr_{name}"
        names.append(name)
    return tuple(names)


def blocks(size: Size, block: int) -> Size:
    """How many blocks cover that many elements."""
    return (size + (block - 1)) // block


def needs_64_bits(counts: Sequence[Size]) -> bool:
    """Whether one of the counts does not fit into 32 bits. Where all open ones do at present, guards see to it that they do."""
    if any(hint(count) >= _WIDE for count in counts):
        return True
    known: list[Size] = []
    for count in sorted((unnamed(count) for count in counts if isinstance(count, Sym)), key=hint, reverse=True):
        if not any(proved(larger - count + 1) for larger in known):
            known.append(count)
            if count >= _WIDE:
                return True
    return False
