"""Fused kernels as C++: OpenMP threads outside, SIMD inside, one function for each kernel, one translation unit for a program."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod

from compiler.codegen.cpp_lines import CppLines
from compiler.codegen.cpp_prelude import prelude
from compiler.codegen.cpp_reductions import Fold, RunningFold, fold_of, running_of
from compiler.codegen.cpp_text import C_TYPES, STORED, parameter_names
from compiler.codegen.sources import CppUnit, KernelSource
from compiler.codegen.space import merge_loops, transposed_loops, with_named_sizes
from compiler.codegen.writer import Marked, Writer
from compiler.ir import ITEM_BYTES, Buffer, Kernel, Phase, Reduce, Scan, Store
from compiler.sizes import Size, Sym, divisor, found, hint
from compiler.trace import Origin

PARALLEL_FROM = 32_768  # iterations from which threads pay for their start
CHUNK = 4_096  # additions that one partial sum takes
SHORT = 64  # a loop of fewer has no partial sums of its own
FAULT = """
// What went wrong since the last call, if anything.
extern "C" int kernel_fault() { return __atomic_exchange_n(&fuselab::fault, 0, __ATOMIC_RELAXED); }"""
ROWS = """
extern "C" { void* aligned_alloc(__SIZE_TYPE__, __SIZE_TYPE__) noexcept; void free(void*) noexcept; }
namespace fuselab {
struct Row {
    void* memory = nullptr;
    int64_t bytes = -1;
    ~Row() { free(memory); }
};
// Memory for one row of open length, kept by each thread until a longer one is needed.
template <int Number> inline void* row(int64_t bytes) {
    static thread_local Row kept;
    if (bytes > kept.bytes) {
        free(kept.memory);
        kept.memory = aligned_alloc(64, (bytes / 64 + 1) * 64);
        kept.bytes = bytes;
    }
    return kept.memory;
}
}"""
_MAY_FAIL = re.compile(r"fuselab::(?:within\(|(?:quotient|floor_quotient|truncated_remainder|floor_remainder)\([^,\n]*, v\d)")
TILE = 32  # elements along each axis of a tile that is read one way and written the other
STACK_BYTES = 128 * 1024


def cpp_kernel(kernel: Kernel, buffers: Mapping[str, Buffer], origins: Sequence[Origin] = ()) -> KernelSource:
    """One kernel as an ``extern "C"`` function of pointers, in the order of ``kernel.arguments``, and of the open sizes it speaks of."""
    taken = {name for size in found(kernel) for name in size.symbols()}
    parameters = parameter_names(kernel.arguments, taken)
    merged, sizes = with_named_sizes(merge_loops(kernel), parameters)
    text = _CppKernel(merged, buffers, origins, parameters, [name for name, _ in sizes]).function()
    return KernelSource(
        name=kernel.name,
        language="cpp",
        text=text.text,
        marks=text.marks,
        arguments=kernel.arguments,
        parameters=parameters,
        dtypes=tuple(buffers[name].dtype for name in kernel.arguments),
        origin=kernel.origin,
        grid=1 if isinstance(kernel.numel, Sym) else min(1, kernel.numel),
        sizes=sizes,
    )


def may_fail(kernel: KernelSource) -> bool:
    """Whether the kernel may find an index out of range, or a divisor of zero."""
    return kernel.language == "cpp" and _MAY_FAIL.search(kernel.text) is not None


def cpp_unit(kernels: Sequence[KernelSource]) -> CppUnit:
    """The kernels behind one prelude."""
    writer = Writer()
    writer.line(prelude("\n".join(kernel.text for kernel in kernels)).rstrip())
    if any("fuselab::row<" in kernel.text for kernel in kernels):
        writer.line(ROWS)
    starts: list[tuple[str, int]] = []
    for kernel in kernels:
        writer.line()
        starts.append((kernel.name, writer.position))
        writer.append(Marked(kernel.text, kernel.marks))
    if any(may_fail(kernel) for kernel in kernels):
        writer.line(FAULT)
    done = writer.finish()
    return CppUnit(done.text, done.marks, tuple(starts))


class _CppKernel(CppLines):
    """Writes one function."""

    def __init__(
        self,
        kernel: Kernel,
        buffers: Mapping[str, Buffer],
        origins: Sequence[Origin],
        parameters: Sequence[str],
        sizes: Sequence[str],
    ) -> None:
        super().__init__(kernel, buffers, origins, parameters)
        self.sizes = sizes
        self.tile = self._tile_width() if self.vertical else 1
        # Iterations that may write to one element run one after the other, so that the answer is always the same.
        self.serial = any(isinstance(line, Store) and line.over for line in kernel.body)
        work = kernel.numel * kernel.rnumel
        self.threads = (isinstance(work, Sym) or work >= PARALLEL_FROM) and not self.serial
        self.condition = f" if(parallel: {work} >= {PARALLEL_FROM})" if isinstance(work, Sym) else ""
        self.inside = self.threads and bool(kernel.reduction) and not self.vertical
        self.inside = self.inside and isinstance(kernel.numel, int) and kernel.numel < 16

    def function(self) -> Marked:
        kernel, body = self.kernel, self.writer
        self.line(f"// {' + '.join(kernel.steps)}"[:200], kernel.origin)
        parameters = [*(self._parameter(name) for name in kernel.arguments), *(f"int64_t {name}" for name in self.sizes)]
        self.line(f'extern "C" void {kernel.name}({", ".join(parameters)}) {{', kernel.origin)
        with body.indent():
            if not kernel.reduction:
                self._pointwise()
            elif self.vertical:
                self._columns()
            else:
                self._rows()
        self.line("}", kernel.origin)
        return body.finish()

    def _parameter(self, name: str) -> str:
        const = "" if name in self.kernel.writes else "const "
        # A pointwise kernel may write over what it reads; a reduction never does.
        restrict = "__restrict__ " if self.kernel.reduction else ""
        return f"{const}{STORED[self.buffers[name].dtype]}* {restrict}{self.parameters[name]}"

    # Loops

    def _parallel(self, depth: int) -> None:
        if self.threads and depth:
            self._pragma("parallel for" + (f" collapse({depth})" if depth > 1 else "") + self.condition)

    def _pointwise(self) -> None:
        sizes = [(f"i{k}", size) for k, size in enumerate(self.kernel.loops) if size != 1]
        everything = self.kernel.phases
        if not sizes:
            self._phases(everything)
            return
        if self.serial:
            with self._loops(sizes):
                self._phases(everything)
            return
        if across := transposed_loops(self.kernel):
            self._tiles(across - 1)
            return
        around, (name, size) = sizes[:-1], sizes[-1]
        spread = prod(hint(extent) for _, extent in around) >= 16
        if spread:
            self._parallel(len(around))
        with self._loops(around):
            self._pragma(f"parallel for simd{self.condition}" if self.threads and not spread else "simd")
            with self._loop(name, size):
                self._phases(everything)

    def _tiles(self, across: int) -> None:
        """Tiles of the loop ``across`` and of the last one, so that what some accesses skip over is still in the first cache later."""
        last = self.outer - 1
        around = [(f"i{k}", size) for k, size in enumerate(self.kernel.loops) if size != 1 and k not in (across, last)]
        pair = ((f"i{across}", self.kernel.loops[across]), (f"i{last}", self.kernel.loops[last]))
        self._parallel(len(around) + 2)
        with self._loops(around):
            with (
                self._loop(f"{pair[0][0]}_start", pair[0][1], step=str(TILE)),
                self._loop(f"{pair[1][0]}_start", pair[1][1], step=str(TILE)),
            ):
                for name, size in pair:
                    stop = f"{name}_start + {TILE}"
                    self.line(
                        f"const int64_t {name}_stop = {f'{stop} < {size} ? {stop} : {size}' if size % TILE else stop};", self.kernel.origin
                    )
                with self._loop(pair[0][0], f"{pair[0][0]}_stop", start=f"{pair[0][0]}_start"):
                    self._pragma("simd")
                    with self._loop(pair[1][0], f"{pair[1][0]}_stop", start=f"{pair[1][0]}_start"):
                        self._phases(self.kernel.phases)

    def _phases(self, phases: Sequence[Phase]) -> None:
        for phase in phases:
            self._body(range(phase.start, phase.stop))

    # Reductions along rows: one point of the parallel loops at a time, SIMD along the reduction

    def _rows(self) -> None:
        around = [(f"i{k}", size) for k, size in enumerate(self.kernel.loops) if size != 1]
        if not self.inside:
            self._parallel(len(around))
        with self._loops(around):
            self._scratch_rows(self.kernel.rnumel)
            for number, phase in enumerate(self.kernel.phases):
                if phase.reduced:
                    self._row_phase(number, phase)
                else:
                    self._body(range(phase.start, phase.stop))

    def _scratch_rows(self, elements: Size) -> None:
        total = sum(hint(elements) * ITEM_BYTES[self._dtype(value)] for value in self.plan.scratch)
        for place, value in enumerate(self.plan.scratch):
            kind, origin = C_TYPES[self._dtype(value)], self.kernel.body[value].origin
            if isinstance(elements, Sym):
                self.line(f"{kind}* const v{value}_row = ({kind}*)fuselab::row<{place}>({divisor(elements)} * sizeof({kind}));", origin)
            elif total <= STACK_BYTES:
                self.line(f"alignas(64) {kind} v{value}_row[{elements}];", origin)
            else:
                self.line(f"alignas(64) static thread_local {kind} v{value}_store[{elements}];", origin)
                self.line(f"{kind}* const v{value}_row = v{value}_store;", origin)

    def _row_phase(self, number: int, phase: Phase) -> None:
        folds, running = self._folds(phase), self._running(phase)
        indexed = bool(running) or self.serial or any(fold.indexed for fold in folds.values())
        loops = [(f"r{k}", size) for k, size in enumerate(self.kernel.reduction) if size != 1]
        part = 0 if indexed else _part(loops)
        whole = _wide(folds) if part or indexed or _long(self.kernel.rnumel) else folds
        for position, fold in {**whole, **running}.items():
            fold.declare(self.line, f"v{position}", self.kernel.body[position].origin)
        if not loops:
            self._row_body(number, phase, folds, "")
        else:
            around, (name, size) = loops[:-1], loops[-1]
            if self.inside and not indexed and (around or part):
                self._pragma("parallel for" + _clauses(folds, "") + self.condition)
            with self._loops(around):
                if part:
                    self._row_parts(number, phase, folds, name, size, part)
                else:
                    if not indexed:
                        self._pragma("simd" + _clauses(folds, ""))
                    with self._loop(name, size):
                        self._row_body(number, phase, folds, "")
        for position, fold in folds.items():
            fold.finish(self.line, f"v{position}", self.kernel.body[position].origin)

    def _row_parts(self, number: int, phase: Phase, folds: Mapping[int, Fold], name: str, size: Size, part: Size) -> None:
        """The innermost reduction loop in parts, each with results of its own: that keeps long sums accurate."""
        with self._parts(name, size, part) as (start, stop):
            for position, fold in folds.items():
                fold.declare(self.line, f"v{position}_part", self.kernel.body[position].origin)
            self._pragma("simd" + _clauses(folds, "_part"))
            with self._loop(name, stop, start=start):
                self._row_body(number, phase, folds, "_part")
            for position, fold in folds.items():
                self.line(fold.step(f"v{position}", f"v{position}_part", ""), self.kernel.body[position].origin)

    @contextmanager
    def _parts(self, name: str, size: Size, part: Size) -> Iterator[tuple[str, Size | str]]:
        """A loop over parts of the loop ``name``, with the bounds of one; no loop where one part is all of it."""
        if not _long(size):
            yield "0", size
            return
        with self._loop(f"{name}_start", size, step=str(part)):
            stop = f"{name}_start + {part}"
            self.line(f"const int64_t {name}_stop = {f'{stop} < {size} ? {stop} : {size}' if size % part else stop};", self.kernel.origin)
            yield f"{name}_start", f"{name}_stop"

    def _row_body(self, number: int, phase: Phase, folds: Mapping[int, Fold], suffix: str) -> None:
        at = self._flat_reduction()
        for value in self.plan.imports[number]:
            if value in self.plan.scratch:
                self._import(value, f"v{value}_row[{at}]")
        for position in self.plan.lines[number]:
            line = self.kernel.body[position]
            if isinstance(line, Reduce):
                self.line(folds[position].step(f"v{position}{suffix}", self._value(line.arg), at), line.origin)
            else:
                if isinstance(line, Scan):
                    self.line(running_of(line, self._dtype(line.arg)).step(f"v{position}", self._value(line.arg), at), line.origin)
                self._emit(position, line)
                if position in self.plan.scratch and phase.start <= position < phase.stop:
                    self.line(f"v{position}_row[{at}] = v{position};", line.origin)

    # Reductions across rows: SIMD along the last parallel loop, in tiles whose running values stay in the first cache

    def _tile_width(self) -> int:
        width = 256
        last, least = self.kernel.loops[-1], 64 if isinstance(self.kernel.numel, Sym) else 16
        while width > least and hint(self.kernel.numel) < 8 * width:
            width //= 2
        return width if isinstance(last, Sym) else min(width, last)

    def _columns(self) -> None:
        kernel, last = self.kernel, self.outer - 1
        around = [(f"i{k}", size) for k, size in enumerate(kernel.loops[:-1]) if size != 1]
        self._parallel(len(around) + 1)
        with self._loops(around):
            with self._loop(f"i{last}_start", kernel.loops[-1], step=str(self.tile)):
                rest = f"{kernel.loops[-1]} - i{last}_start"
                exact = kernel.loops[-1] % self.tile == 0
                self.line(f"const int64_t width = {self.tile if exact else f'{rest} < {self.tile} ? {rest} : {self.tile}'};", kernel.origin)
                self._scratch_rows(kernel.rnumel * self.tile)
                for value in self.plan.carried:
                    line = kernel.body[value]
                    self.line(f"alignas(64) {C_TYPES[self._dtype(value)]} v{value}_tile[{self.tile}];", line.origin)
                for number, phase in enumerate(kernel.phases):
                    if phase.reduced:
                        self._column_phase(number, phase)
                    else:
                        with self._lanes():
                            self._column_body(number, phase, {}, "")

    @contextmanager
    def _lanes(self) -> Iterator[None]:
        if not self.serial:
            self._pragma("simd")
        with self._loop("j", "width"):
            yield

    def _column_phase(self, number: int, phase: Phase) -> None:
        folds, running, origin = self._folds(phase), self._running(phase), self.kernel.origin
        loops = [(f"r{k}", size) for k, size in enumerate(self.kernel.reduction) if size != 1]
        part = 0 if running or not folds or any(fold.indexed for fold in folds.values()) else _part(loops)
        whole = _wide(folds) if part or _long(self.kernel.rnumel) else folds
        for position, fold in {**whole, **running}.items():
            fold.declare_tile(self.line, f"v{position}", self.tile, origin)
        self._start_tiles({**whole, **running}, "")
        with self._loops(loops[:-1] if part else loops):
            if not part:
                with self._lanes():
                    self._column_body(number, phase, folds, "")
                return
            name, size = loops[-1]
            with self._parts(name, size, part) as (start, stop):
                for position, fold in folds.items():
                    fold.declare_tile(self.line, f"v{position}_part", self.tile, origin)
                self._start_tiles(folds, "_part")
                with self._loop(name, stop, start=start), self._lanes():
                    self._column_body(number, phase, folds, "_part")
                with self._lanes():
                    for position, fold in folds.items():
                        self.line(fold.step(f"v{position}", f"v{position}_part_acc[j]", "", lane="[j]"), self.kernel.body[position].origin)

    def _start_tiles(self, folds: Mapping[int, Fold], suffix: str) -> None:
        if folds:
            with self._lanes():
                for position, fold in folds.items():
                    fold.start_tile(self.line, f"v{position}{suffix}", self.kernel.body[position].origin)

    def _column_body(self, number: int, phase: Phase, folds: Mapping[int, Fold], suffix: str) -> None:
        at = self._flat_reduction()
        self.line(f"const int64_t i{self.outer - 1} = i{self.outer - 1}_start + j;", self.kernel.origin)
        for value in self.plan.imports[number]:
            line = self.kernel.body[value]
            if value in self.plan.scratch:
                self._import(value, f"v{value}_row[({at}) * {self.tile} + j]")
            elif isinstance(line, Reduce):
                self._import(value, fold_of(line, self._dtype(line.arg)).result(f"v{value}", "[j]"))
            else:
                self._import(value, f"v{value}_tile[j]")
        for position in self.plan.lines[number]:
            line = self.kernel.body[position]
            if isinstance(line, Reduce):
                self.line(folds[position].step(f"v{position}{suffix}", self._value(line.arg), at, lane="[j]"), line.origin)
                continue
            if isinstance(line, Scan):
                self.line(running_of(line, self._dtype(line.arg)).step(f"v{position}", self._value(line.arg), at, lane="[j]"), line.origin)
            self._emit(position, line)
            if phase.start <= position < phase.stop and position in self.plan.carried:
                self.line(f"v{position}_tile[j] = v{position};", line.origin)
            if phase.start <= position < phase.stop and position in self.plan.scratch:
                self.line(f"v{position}_row[({at}) * {self.tile} + j] = v{position};", line.origin)

    def _import(self, value: int, text: str) -> None:
        self.line(f"const {C_TYPES[self._dtype(value)]} v{value} = {text};", self.kernel.body[value].origin)

    def _folds(self, phase: Phase) -> dict[int, Fold]:
        body = self.kernel.body
        found = {}
        for position in range(phase.start, phase.stop):
            line = body[position]
            if isinstance(line, Reduce):
                found[position] = fold_of(line, self._dtype(line.arg))
        return found

    def _running(self, phase: Phase) -> dict[int, RunningFold]:
        lines = ((position, self.kernel.body[position]) for position in range(phase.start, phase.stop))
        return {position: running_of(line, self._dtype(line.arg)) for position, line in lines if isinstance(line, Scan)}


def _long(size: Size) -> bool:
    """Whether sums of so many values are made of partial sums."""
    return isinstance(size, Sym) or size >= 2 * CHUNK


def _part(loops: Sequence[tuple[str, Size]]) -> Size:
    """How many values of the innermost loop make one partial result: 0 for none, where there are few in all, or too few in that loop."""
    innermost = loops[-1][1] if loops else 1
    if _long(innermost):
        return CHUNK
    return innermost if _long(prod(size for _, size in loops)) and innermost >= SHORT else 0


def _wide(folds: Mapping[int, Fold]) -> dict[int, Fold]:
    return {position: fold.wide for position, fold in folds.items()}


def _clauses(folds: Mapping[int, Fold], suffix: str) -> str:
    return "".join(f" reduction({fold.clause} : v{position}{suffix}_acc)" for position, fold in folds.items())
