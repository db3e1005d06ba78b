"""The machine code of C++ kernels, with marks through the line table of the shared library."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence

from compiler.assembly.levels import Level
from compiler.assembly.lines import Lines, join
from compiler.codegen.sources import CppUnit, KernelSource
from compiler.runtime.build import SOURCE_NAME, Library, run_tool
from compiler.trace import Scalar

_FUNCTION = re.compile(r"^[0-9a-f]+ <([^>]+)>:$")
_PLACE = re.compile(rf"^\s*(?:inlined by |\(inlined by\) )?(?:\S*/)?{re.escape(SOURCE_NAME)}:(\d+)")
_INSTRUCTION = re.compile(r"^\s+([0-9a-f]+):\s*(\S.*)$")


def disassemble_cpp(library: Library, unit: CppUnit, kernels: Sequence[KernelSource]) -> Iterator[Level]:
    """One ``sass`` level for each C++ kernel: its function and the parts that OpenMP runs in threads."""
    start = time.perf_counter()
    names = {kernel.name: kernel for kernel in kernels if kernel.language == "cpp"}
    text = run_tool(["objdump", "-d", "-l", "--inlines", "--no-show-raw-insn", "-M", "intel", library.path], "sass")
    parts: dict[str, list[tuple[str, int | None]]] = {name: [] for name in names}
    for function, rows in _functions(text, unit):
        kernel = function.split(".")[0]
        if kernel in parts:
            parts[kernel] += [(f"{function}:", None), *rows, ("", None)]
    millis = (time.perf_counter() - start) * 1e3 / max(1, len(names))
    for name, rows in parts.items():
        code, lines = join(rows[:-1])
        yield Level(name, "sass", "asm", code, _marks(lines, unit), millis, _facts(code))


def _functions(text: str, unit: CppUnit) -> Iterator[tuple[str, list[tuple[str, int | None]]]]:
    """Each function with its instructions and the unit's line that each comes from; code inlined from the prelude counts for its caller."""
    first = min((line for _, line in unit.starts), default=0)
    name, current = "", None
    rows: list[tuple[str, int | None]] = []
    for line in text.splitlines():
        if found := _FUNCTION.match(line):
            if name:
                yield name, rows
            name, rows, current = found[1], [], None
        elif found := _PLACE.match(line):
            number = int(found[1])
            current = number if number > first else current
        elif found := _INSTRUCTION.match(line):
            rows.append((f"    {found[1]:>6}  {found[2].rstrip()}", current))
    if name:
        yield name, rows


def _marks(lines: Lines, unit: CppUnit) -> tuple[tuple[int, ...], ...]:
    return tuple(unit.marks[line - 1] if line is not None and line <= len(unit.marks) else () for line in lines)


def _facts(code: str) -> dict[str, Scalar]:
    instructions = re.findall(r"^    +[0-9a-f]+  \S", code, re.MULTILINE)
    calls = sorted(set(re.findall(r"call\s+\S+ <(_ZGV\w+?)(?:@plt)?>", code)))
    scalar = sorted({name for name in re.findall(r"call\s+\S+ <([a-z]\w+?)(?:@plt)?>", code) if not name.startswith(("omp_", "GOMP"))})
    widths = [width for width, register in ((512, "zmm"), (256, "ymm"), (128, "xmm")) if re.search(rf"\b{register}\d", code)]
    return {
        "instructions": len(instructions),
        "vector_bits": widths[0] if widths else 0,
        "vector_calls": ", ".join(calls),
        "scalar_calls": ", ".join(scalar),
    }
