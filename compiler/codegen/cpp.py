"""Fused kernels as C++: OpenMP threads outside, SIMD inside, one function for each kernel, one translation unit for a program."""

from __future__ import annotations

import re
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import isfinite, isnan, prod

from compiler.codegen.cpp_prelude import prelude
from compiler.codegen.cpp_reductions import Fold, RunningFold, fold_of, running_of
from compiler.codegen.scratch import Plan, plan_kernel
from compiler.codegen.sources import CppUnit, KernelSource
from compiler.codegen.space import merge_loops, sum_text, transposed_loops, walked, with_named_sizes
from compiler.codegen.templates import HALVES, bare, dtype_class, expression
from compiler.codegen.writer import Marked, Writer
from compiler.ir import ITEM_BYTES, Apply, Buffer, Constant, Kernel, Line, Load, OpenNumber, Phase, Position, Reduce, Scan, Store, operands
from compiler.sizes import Size, Sym, divisor, found, hint
from compiler.trace import Origin

JOINED = {"add": "{} + {}", "mul": "{} * {}", "max": "fuselab::maximum({}, {})", "min": "fuselab::minimum({}, {})"}
"""What a store over an element leaves there, of the element and the new value."""
C_TYPES = {
    "float64": "double", "float32": "float", "float16": "float", "bfloat16": "float", "int64": "int64_t", "int32": "int32_t",
    "int16": "int16_t", "int8": "int8_t", "uint8": "uint8_t", "bool": "bool",
}  # fmt: skip
STORED = C_TYPES | {"float16": "uint16_t", "bfloat16": "uint16_t", "bool": "uint8_t"}
PARALLEL_FROM = 32_768  # iterations from which threads pay for their start
CHUNK = 4_096  # additions that one partial sum takes
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


class _CppKernel:
    """Writes one function. A value is called ``v7`` inside the innermost loop; outside of it, it lives in ``v7_row`` or ``v7_tile``."""

    def __init__(
        self,
        kernel: Kernel,
        buffers: Mapping[str, Buffer],
        origins: Sequence[Origin],
        parameters: Sequence[str],
        sizes: Sequence[str],
    ) -> None:
        self.kernel, self.buffers, self.origins, self.sizes = kernel, buffers, origins, sizes
        self.parameters = dict(zip(kernel.arguments, parameters, strict=True))
        self.plan: Plan = plan_kernel(kernel)
        self.writer = Writer()
        self.outer = len(kernel.loops)
        self.vertical = bool(kernel.reduction) and self.plan.vertical
        self.tile = self._tile_width() if self.vertical else 1
        # Iterations that may write to one element run one after the other, so that the answer is always the same.
        self.serial = any(isinstance(line, Store) and line.over for line in kernel.body)
        work = kernel.numel * kernel.rnumel
        self.threads = (isinstance(work, Sym) or work >= PARALLEL_FROM) and not self.serial
        self.condition = f" if(parallel: {work} >= {PARALLEL_FROM})" if isinstance(work, Sym) else ""
        self.inside = self.threads and bool(kernel.reduction) and not self.vertical
        self.inside = self.inside and isinstance(kernel.numel, int) and kernel.numel < 16
        self.said = ""

    def line(self, text: str = "", *origins: int) -> None:
        self.writer.line(text, *origins)

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

    @contextmanager
    def _loop(self, name: str, size: Size | str, start: str = "0", step: str = "") -> Iterator[None]:
        advance = f"{name} += {step}" if step else f"{name}++"
        self.line(f"for (int64_t {name} = {start}; {name} < {size}; {advance}) {{", self.kernel.origin)
        with self.writer.indent():
            yield
        self.line("}", self.kernel.origin)

    @contextmanager
    def _loops(self, names: Sequence[tuple[str, Size]]) -> Iterator[None]:
        """Loops around each other; those of one iteration are left out."""
        if not names:
            yield
        elif names[0][1] == 1:
            with self._loops(names[1:]):
                yield
        else:
            with self._loop(*names[0]), self._loops(names[1:]):
                yield

    def _pragma(self, text: str) -> None:
        self.line(f"#pragma omp {text}", self.kernel.origin)

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
        for position, fold in {**folds, **running}.items():
            fold.declare(self.line, f"v{position}", self.kernel.body[position].origin)
        indexed = bool(running) or self.serial or any(fold.indexed for fold in folds.values())
        loops = [(f"r{k}", size) for k, size in enumerate(self.kernel.reduction) if size != 1]
        if not loops:
            self._row_body(number, phase, folds, "")
        else:
            around, (name, size) = loops[:-1], loops[-1]
            chunked = not indexed and _long(size)
            if self.inside and not indexed and (around or chunked):
                self._pragma("parallel for" + _clauses(folds, "") + self.condition)
            with self._loops(around):
                if chunked:
                    self._chunks(number, phase, folds, name, size)
                else:
                    if not indexed:
                        self._pragma("simd" + _clauses(folds, ""))
                    with self._loop(name, size):
                        self._row_body(number, phase, folds, "")
        for position, fold in folds.items():
            fold.finish(self.line, f"v{position}", self.kernel.body[position].origin)

    def _chunks(self, number: int, phase: Phase, folds: Mapping[int, Fold], name: str, size: Size) -> None:
        """The innermost reduction loop in chunks, each with partial results of its own: that keeps long sums accurate."""
        with self._loop(f"{name}_start", size, step=str(CHUNK)):
            stop = f"{name}_start + {CHUNK}"
            self.line(f"const int64_t {name}_stop = {f'{stop} < {size} ? {stop} : {size}' if size % CHUNK else stop};", self.kernel.origin)
            for position, fold in folds.items():
                fold.declare(self.line, f"v{position}_part", self.kernel.body[position].origin)
            self._pragma("simd" + _clauses(folds, "_part"))
            with self._loop(name, f"{name}_stop", start=f"{name}_start"):
                self._row_body(number, phase, folds, "_part")
            for position, fold in folds.items():
                self.line(fold.step(f"v{position}", f"v{position}_part", ""), self.kernel.body[position].origin)

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

    def _flat_reduction(self) -> str:
        terms: list[tuple[Size, str]] = []
        stride: Size = 1
        for k in reversed(range(len(self.kernel.reduction))):
            if walked(self.kernel.reduction[k]):
                terms.append((stride, f"r{k}"))
            stride = stride * self.kernel.reduction[k]
        return sum_text(0, terms[::-1])

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
        for position, fold in {**folds, **running}.items():
            fold.declare_tile(self.line, f"v{position}", self.tile, origin)
        self._start_tiles({**folds, **running}, "")
        loops = [(f"r{k}", size) for k, size in enumerate(self.kernel.reduction) if size != 1]
        chunked = bool(folds) and not running and bool(loops) and _long(loops[-1][1]) and not any(fold.indexed for fold in folds.values())
        with self._loops(loops[:-1] if chunked else loops):
            if not chunked:
                with self._lanes():
                    self._column_body(number, phase, folds, "")
                return
            name, size = loops[-1]
            with self._loop(f"{name}_start", size, step=str(CHUNK)):
                stop = f"{name}_start + {CHUNK}"
                self.line(f"const int64_t {name}_stop = {f'{stop} < {size} ? {stop} : {size}' if size % CHUNK else stop};", origin)
                for position, fold in folds.items():
                    fold.declare_tile(self.line, f"v{position}_part", self.tile, origin)
                self._start_tiles(folds, "_part")
                with self._loop(name, f"{name}_stop", start=f"{name}_start"), self._lanes():
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

    # Lines

    def _body(self, positions: Sequence[int] | range) -> None:
        for position in positions:
            self._emit(position, self.kernel.body[position])

    def _dtype(self, position: int) -> str:
        line = self.kernel.body[position]
        assert not isinstance(line, Store), "a store has no value"
        return line.dtype

    def _value(self, position: int) -> str:
        line = self.kernel.body[position]
        return cpp_number(line.value, line.dtype) if isinstance(line, Constant) else f"v{position}"

    def _emit(self, position: int, line: Line) -> None:
        if isinstance(line, Constant) or position in self.plan.unread:
            return
        op = self.origins[line.origin].op if line.origin < len(self.origins) else ""
        if op and op != self.said:
            self.line(f"// {op}", line.origin)
            self.said = op
        if isinstance(line, Store):
            self._store(line)
        else:
            text = self._running_value(position, line) if isinstance(line, Scan) else self._expression(line)
            self.line(f"const {C_TYPES[self._dtype(position)]} v{position} = {text};", line.origin)

    def _store(self, line: Store) -> None:
        element, value = f"{self.parameters[line.buffer]}[{self._address(line)}]", self._stored(line)
        if line.over in JOINED and line.dtype in HALVES:
            source = self.kernel.body[line.value]
            narrowed = isinstance(source, Apply) and line.value in self.plan.unread
            new = f"round_{line.dtype}({self._value(operands(source)[0])})" if narrowed else self._value(line.value)
            value = f"to_{line.dtype}({JOINED[line.over].format(f'from_{line.dtype}({element})', new)})"
        elif line.over in JOINED:
            kind = C_TYPES[line.dtype]
            value = JOINED[line.over].format(element, f"static_cast<{kind}>({value})")
        self.line(f"{element} = {value};", line.origin)

    def _running_value(self, position: int, line: Scan) -> str:
        return running_of(line, self._dtype(line.arg)).result(f"v{position}", "[j]" if self.vertical else "")

    def _address(self, line: Load | Store | Position) -> str:
        sizes = (*self.kernel.loops, *self.kernel.reduction)
        names = [*(f"i{k}" for k in range(self.outer)), *(f"r{k}" for k in range(len(self.kernel.reduction)))]
        terms = [(stride, name) for stride, name, size in zip(line.strides, names, sizes, strict=True) if walked(size)]
        if isinstance(line, Load | Store):
            terms += [(stride, self._value(value)) for value, stride in line.indirect]
        return sum_text(line.offset, terms)

    def _stored(self, line: Store) -> str:
        source = self.kernel.body[line.value]
        if line.dtype in HALVES:
            narrowed = isinstance(source, Apply) and source.op == "cast" and self._dtype(source.args[0]) == "float32"
            return f"to_{line.dtype}({self._value(source.args[0] if narrowed and isinstance(source, Apply) else line.value)})"
        return self._value(line.value)

    def _expression(self, line: Line) -> str:
        match line:
            case Load():
                loaded = f"{self.parameters[line.buffer]}[{self._address(line)}]"
                if line.dtype in HALVES:
                    loaded = f"from_{line.dtype}({loaded})"
                if line.mask is None:
                    return f"{loaded} != 0" if line.dtype == "bool" else loaded
                loaded = f"({loaded} != 0)" if line.dtype == "bool" else loaded
                return f"{self._value(line.mask)} ? {loaded} : {cpp_number(line.other, line.dtype)}"
            case Position():
                return self._address(line)
            case Apply(op="cast"):
                return self._cast(line)
            case Apply():
                dtype = self._dtype(line.args[-1]) if line.args else line.dtype
                text = bare(expression(line, dtype, [self._value(argument) for argument in line.args], "cpp"))
                return f"round_{line.dtype}({text})" if line.dtype in HALVES else text
        raise AssertionError(f"no expression: {line}")

    def _cast(self, line: Apply) -> str:
        value, dtype = self._value(line.args[0]), self._dtype(line.args[0])
        if line.dtype in HALVES:
            return value if dtype == line.dtype else f"round_{line.dtype}({value if dtype in ('float32', *HALVES) else f'(float){value}'})"
        if line.dtype == "bool":
            return value if dtype == "bool" else f"{value} != 0"
        return value if C_TYPES[dtype] == C_TYPES[line.dtype] else f"({C_TYPES[line.dtype]}){value}"


def _long(size: Size) -> bool:
    """Whether sums along a loop of that size are made of partial sums."""
    return isinstance(size, Sym) or size >= 2 * CHUNK


def _clauses(folds: Mapping[int, Fold], suffix: str) -> str:
    return "".join(f" reduction({fold.clause} : v{position}{suffix}_acc)" for position, fold in folds.items())
