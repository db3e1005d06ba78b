"""How each reduction accumulates in C++: its start, one step, its OpenMP clause, and its result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from compiler.codegen.templates import HALVES
from compiler.ir import Reduce, Scan
from compiler.ops import SCANS

Write = Callable[..., None]
INTEGERS = {
    "int64": (-(2**63), 2**63 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "int8": (-128, 127),
    "uint8": (0, 255),
}
_KINDS = {"float64": "double", "float32": "float", "float16": "float", "bfloat16": "float", "bool": "int32_t"}


@dataclass(frozen=True, slots=True)
class Fold:
    """``kind`` is the C++ type of the accumulator ``NAME_acc``, ``result_kind`` that of the value. An indexed fold has ``NAME_at`` too."""

    op: str
    kind: str
    result_kind: str
    start: str
    clause: str
    half: str = ""

    @property
    def indexed(self) -> bool:
        return self.op in ("argmax", "argmin")

    @property
    def wide(self) -> Fold:
        """The same, with an accumulator that takes many values, or sums of many, without losing the last digits of a float."""
        return replace(self, kind="double") if self.op in ("sum", "prod") and self.kind == "float" else self

    def declare(self, write: Write, name: str, origin: int) -> None:
        write(f"{self.kind} {name}_acc = {self.start};", origin)
        if self.indexed:
            write(f"int64_t {name}_at = 0;", origin)

    def declare_tile(self, write: Write, name: str, width: int, origin: int) -> None:
        write(f"alignas(64) {self.kind} {name}_acc[{width}];", origin)
        if self.indexed:
            write(f"alignas(64) int64_t {name}_at[{width}];", origin)

    def start_tile(self, write: Write, name: str, origin: int) -> None:
        write(f"{name}_acc[j] = {self.start};", origin)
        if self.indexed:
            write(f"{name}_at[j] = 0;", origin)

    def step(self, name: str, value: str, at: str, lane: str = "") -> str:
        """One more value; ``value`` is an expression, or the name of a partial accumulator of the same kind."""
        acc = f"{name}_acc{lane}"
        if value.endswith("_part"):
            value += "_acc"
        match self.op:
            case "sum":
                return f"{acc} += {value};"
            case "prod":
                return f"{acc} *= {value};"
            case "any":
                return f"{acc} |= {self.truth(value)};"
            case "all":
                return f"{acc} &= {self.truth(value)};"
            case "max" | "min":
                function = "larger" if self.op == "max" else "smaller"
                return f"{acc} = {function}<{self.kind}>({value}, {acc});"
            case _:
                sign = ">" if self.op == "argmax" else "<"
                better = f"({value} {sign} {acc} || ({value} != {value} && {acc} == {acc}))"
                return f"{name}_at{lane} = {better} ? {at} : {name}_at{lane}; {acc} = {better} ? {value} : {acc};"

    @staticmethod
    def truth(value: str) -> str:
        return f"(int32_t)({value} != 0)"

    def result(self, name: str, lane: str = "") -> str:
        if self.indexed:
            return f"{name}_at{lane}"
        text = f"{name}_acc{lane}"
        if self.half:
            return f"round_{self.half}({text})"
        return f"{text} != 0" if self.result_kind == "bool" and self.kind != "bool" else text

    def finish(self, write: Write, name: str, origin: int) -> None:
        write(f"const {self.result_kind} {name} = {self.result(name)};", origin)


def fold_of(line: Reduce, dtype: str) -> Fold:
    """The accumulation of a reduction over values of ``dtype``."""
    op = line.op
    if dtype == "bool" and op in ("max", "min"):
        op = "any" if op == "max" else "all"
    kind = _KINDS.get(dtype, f"{dtype}_t")
    if op in ("sum", "prod"):
        kind = _KINDS.get(line.dtype, f"{line.dtype}_t")
    infinity = "__builtin_inff()" if kind == "float" else "__builtin_inf()"
    low, high = (f"-{infinity}", infinity) if kind in ("float", "double") else _limits(dtype)
    floating = kind in ("float", "double")
    start, clause = {
        "sum": ("0", "+"), "prod": ("1", "*"), "any": ("0", "|"), "all": ("1", "&"),
        "max": (low, "larger" if floating else "max"), "min": (high, "smaller" if floating else "min"),
        "argmax": (low, ""), "argmin": (high, ""),
    }[op]  # fmt: skip
    if op in ("any", "all"):
        kind = "int32_t"
    half = line.dtype if line.dtype in ("float16", "bfloat16") else ""
    result_kind = "bool" if line.dtype == "bool" else _KINDS.get(line.dtype, f"{line.dtype}_t")
    return Fold(op, kind, result_kind, start, clause, half)


def _limits(dtype: str) -> tuple[str, str]:
    low, high = INTEGERS.get(dtype, (0, 1))
    return (f"(-{high}LL - 1)" if low < 0 else str(low)), f"{high}LL"


@dataclass(frozen=True, slots=True)
class RunningFold(Fold):
    """A running reduction, whose value is asked for after every step. One element comes after the other: no SIMD, no chunks."""

    @property
    def indexed(self) -> bool:
        return SCANS[self.op].indexed

    def step(self, name: str, value: str, at: str, lane: str = "") -> str:
        acc = f"{name}_acc{lane}"
        told = SCANS[self.op].cpp.format(acc, value)
        if not self.indexed:
            return f"{acc} = {told};"
        return f"if ({told}) {{ {acc} = {value}; {name}_at{lane} = {at}; }}"


def running_of(line: Scan, dtype: str) -> RunningFold:
    """The accumulation of a running reduction over values of ``dtype``, in float64 where eager's is: sums and products."""
    kind = "double" if line.op in ("sum", "prod") and _KINDS.get(dtype) == "float" else _KINDS.get(dtype, f"{dtype}_t")
    start = SCANS[line.op].identity("float32" if dtype in HALVES else dtype)
    infinity = {float("inf"): "__builtin_inf()", float("-inf"): "-__builtin_inf()"}
    text = infinity.get(start) or (f"({start + 1}LL - 1)" if start < -(2**31) else f"{start}")
    return RunningFold(line.op, kind, _KINDS.get(line.dtype, f"{line.dtype}_t"), text, "")
