"""A Triton kernel taken down level by level: each level's text with marks into the origins, and what the machine code needs."""

from __future__ import annotations

import hashlib
import re
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

from compiler.assembly.lines import Lines, amdgcn_lines, llvm_lines, mlir_lines, ptx_lines, sass_lines
from compiler.assembly.occupancy import occupancy
from compiler.codegen.sources import KernelSource
from compiler.codegen.writer import Marks
from compiler.errors import CompileError
from compiler.runtime.build import run_tool
from compiler.runtime.cache import KernelCache
from compiler.runtime.triton_private import compile_stages, file_name, tool
from compiler.sizes import hint
from compiler.target import Target
from compiler.trace import Scalar

LANGUAGES = {"ttir": "mlir", "ttgir": "mlir", "llir": "llvm", "ptx": "ptx", "sass": "sass"}
_READERS = {"ttir": mlir_lines, "ttgir": mlir_lines, "llir": llvm_lines, "ptx": ptx_lines, "amdgcn": amdgcn_lines}


Steps = Iterator[tuple[str, str | bytes, dict[str, Any]]]

PARSING = threading.Lock()
"""Triton's first step parses Python, and CPython's parser counts its depth for all threads together: two at once end in a SystemError."""


@dataclass(frozen=True, slots=True)
class Level:
    """One level of one kernel. ``stage`` is a stage name of the trace; ``facts`` of the last level hold registers, memory and occupancy."""

    kernel: str
    stage: str
    language: str
    text: str
    marks: Marks
    millis: float
    facts: dict[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Assembly:
    """All levels of one kernel."""

    kernel: str
    levels: tuple[Level, ...]

    def level(self, stage: str) -> Level | None:
        return next((level for level in self.levels if level.stage == stage), None)

    @property
    def facts(self) -> dict[str, Scalar]:
        return self.levels[-1].facts


def marks_of(lines: Lines, source: KernelSource) -> Marks:
    """Lines of the source (from 1) become the origins that those lines were written for."""
    count = len(source.marks)
    return tuple(source.marks[line - 1] if line is not None and 0 < line <= count else () for line in lines)


def assemble_stepwise(
    source: KernelSource, target: Target, cache: KernelCache | None = None, steps: Steps | None = None
) -> Iterator[Level]:
    """TTIR, TTGIR, LLVM IR, PTX, then SASS (on AMD: LLVM IR, then the machine's ISA as ``sass``), each as soon as it exists.

    ``steps`` are Triton's, where the kernel is compiled in another way than our own.

    Raises CompileError that names the level at which Triton or ptxas gave up.
    """
    file, start, stage = file_name(source), time.perf_counter(), ""
    steps = compile_stages(source, target) if steps is None else steps
    while True:
        try:
            with nullcontext() if stage else PARSING:
                name, product, metadata = next(steps)
        except StopIteration:
            return
        except Exception as error:  # Triton raises whatever its passes raise; the visitor gets it as a failed stage
            raise CompileError(_following(stage), f"{source.name}: {type(error).__name__}: {str(error)[-1500:]}") from error
        millis = (time.perf_counter() - start) * 1e3
        if name in ("ttir", "ttgir", "llir", "ptx"):
            stage = name
            text, lines = _READERS[name](str(product), file)
            yield Level(source.name, name, LANGUAGES[name], text, marks_of(lines, source), millis)
        elif name == "amdgcn":
            text, lines = amdgcn_lines(str(product), file)
            facts = _amd_facts(str(product), metadata, source, target)
            yield Level(source.name, "sass", "asm", text, marks_of(lines, source), millis, facts)
            return  # the binary would add nothing to show
        elif name == "cubin" and isinstance(product, bytes):
            sass, usage = _disassemble(product, cache)
            text, lines = sass_lines(sass, file)
            facts = _nvidia_facts(text, usage, metadata, source, target)
            yield Level(source.name, "sass", "sass", text, marks_of(lines, source), (time.perf_counter() - start) * 1e3, facts)
        start = time.perf_counter()


def _following(stage: str) -> str:
    order = ("", "ttir", "ttgir", "llir", "ptx", "sass", "sass")
    return order[order.index(stage) + 1]


def assemble(source: KernelSource, target: Target, cache: KernelCache | None = None) -> Assembly:
    return Assembly(source.name, tuple(assemble_stepwise(source, target, cache)))


def assemble_many(sources: Iterable[KernelSource], target: Target, cache: KernelCache | None = None, threads: int = 2) -> Iterator[Level]:
    """The levels of several kernels as they come; ptxas and nvdisasm of one kernel run while Triton works on the next.

    Levels of one kernel come in order; kernels are interleaved. An error of one kernel is raised after the others are done.
    """
    kernels = [source for source in sources if source.language == "triton"]
    if threads < 2 or len(kernels) < 2:
        for source in kernels:
            yield from assemble_stepwise(source, target, cache)
        return
    from queue import SimpleQueue

    queue: SimpleQueue[Level | Exception | None] = SimpleQueue()

    def run(source: KernelSource) -> None:
        try:
            for level in assemble_stepwise(source, target, cache):
                queue.put(level)
        except Exception as error:  # carried over to the caller's thread
            queue.put(error)
        queue.put(None)

    failed: Exception | None = None
    with ThreadPoolExecutor(threads) as pool:
        for source in kernels:
            pool.submit(run, source)
        running = len(kernels)
        while running:
            item = queue.get()
            if item is None:
                running -= 1
            elif isinstance(item, Exception):
                failed = failed or item
            else:
                yield item
    if failed:
        raise failed


def _disassemble(cubin: bytes, cache: KernelCache | None) -> tuple[str, str]:
    """What nvdisasm and cuobjdump print of a cubin, through the cache if there is one."""

    def run() -> bytes:
        with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
            file.write(cubin)
            file.flush()
            usage = run_tool([tool("cuobjdump"), "--dump-resource-usage", file.name], "sass")
            sass = run_tool([tool("nvdisasm"), "-ndf", "-gi", "-c", file.name], "sass")
        return f"{usage}\0{sass}".encode()

    printed = run() if cache is None else cache.read(cache.get(hashlib.sha256(cubin).hexdigest()[:40], ".sass", run).path)
    usage, _, sass = printed.decode().partition("\0")
    return sass, usage


def _nvidia_facts(sass: str, usage: str, metadata: dict[str, Any], source: KernelSource, target: Target) -> dict[str, Scalar]:
    numbers = {name: int(value) for name, value in re.findall(r"\b(REG|STACK|SHARED|LOCAL):(\d+)", usage)}
    shared = int(metadata.get("shared") or 0)
    found = occupancy(target, numbers.get("REG", 0), source.warps, shared)
    return {
        "registers": numbers.get("REG", 0),
        "stack_bytes": numbers.get("STACK", 0) + numbers.get("LOCAL", 0),
        "spill_stores": len(re.findall(r"\bSTL\b", sass)),
        "spill_loads": len(re.findall(r"\bLDL\b", sass)),
        "shared_bytes": shared,
        **_launch_facts(source, target, found.blocks, found.fraction, found.limit),
        "instructions": len(re.findall(r"^\s*/\*[0-9a-f]{4,}\*/(?!\s+NOP)", sass, re.MULTILINE)),
    }


def _amd_facts(text: str, metadata: dict[str, Any], source: KernelSource, target: Target) -> dict[str, Scalar]:
    numbers = {name: int(value) for name, value in re.findall(r"^\s+(?:- )?\.(\w+):\s+(\d+)\s*$", text, re.MULTILINE)}
    registers = numbers.get("vgpr_count", 0)
    shared = max(numbers.get("group_segment_fixed_size", 0), int(metadata.get("shared") or 0))
    found = occupancy(target, registers, source.warps, shared)
    return {
        "registers": registers,
        "scalar_registers": numbers.get("sgpr_count", 0),
        "stack_bytes": numbers.get("private_segment_fixed_size", 0),
        "spilled_registers": numbers.get("vgpr_spill_count", 0) + numbers.get("sgpr_spill_count", 0),
        "shared_bytes": shared,
        **_launch_facts(source, target, found.blocks, found.fraction, found.limit),
        "instructions": len(re.findall(r"^\t[a-z]\w+", text, re.MULTILINE)),
    }


def _launch_facts(source: KernelSource, target: Target, blocks: int, fraction: float, limit: str) -> dict[str, Scalar]:
    return {
        "grid": hint(source.grid),
        "warps": source.warps,
        "threads": source.warps * target.warp,
        "blocks_per_multiprocessor": blocks,
        "occupancy": round(fraction, 4),
        "occupancy_limit": limit,
    }


_WARM = KernelSource(
    name="warm",
    language="triton",
    text="import triton\nimport triton.language as tl\n\n\n@triton.jit\ndef warm(a, N: tl.constexpr):\n"
    "    x = tl.arange(0, N)\n    tl.store(a + x, tl.exp(tl.sum(tl.load(a + x), 0)))\n",
    marks=((),) * 8,
    arguments=("a",),
    parameters=("a",),
    dtypes=("float32",),
    origin=0,
    constants=(("N", 128),),
)


def warm(target: Target) -> None:
    """Compiles a tiny kernel up to PTX, so that a process forked from this one finds Triton and LLVM loaded. Starts no process."""
    for name, _, _ in compile_stages(_WARM, target):
        if name in ("ptx", "amdgcn"):
            break
