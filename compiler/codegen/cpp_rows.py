"""A kernel that reduces along rows: one point of the parallel loops at a time, SIMD along the reduction; long sums in parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod

from compiler.codegen.cpp_lines import CppLines
from compiler.codegen.cpp_reductions import Fold, RunningFold, fold_of, running_of
from compiler.codegen.cpp_text import C_TYPES
from compiler.ir import ITEM_BYTES, Buffer, Kernel, Phase, Reduce, Scan, Store
from compiler.sizes import Size, Sym, divisor, hint
from compiler.trace import Origin

PARALLEL_FROM = 32_768  # iterations from which threads pay for their start
CHUNK = 4_096  # additions that one partial sum takes
SHORT = 64  # a loop of fewer has no partial sums of its own
STACK_BYTES = 128 * 1024


class CppRows(CppLines):
    """The loops of such a kernel, and where threads work."""

    def __init__(
        self,
        kernel: Kernel,
        buffers: Mapping[str, Buffer],
        origins: Sequence[Origin],
        parameters: Sequence[str],
    ) -> None:
        super().__init__(kernel, buffers, origins, parameters)
        # Iterations that may write to one element run one after the other, so that the answer is always the same.
        self.serial = any(isinstance(line, Store) and line.over for line in kernel.body)
        work = kernel.numel * kernel.rnumel
        self.threads = (isinstance(work, Sym) or work >= PARALLEL_FROM) and not self.serial
        self.condition = f" if(parallel: {work} >= {PARALLEL_FROM})" if isinstance(work, Sym) else ""
        self.inside = self.threads and bool(kernel.reduction) and not self.vertical
        self.inside = self.inside and isinstance(kernel.numel, int) and kernel.numel < 16

    def _parallel(self, depth: int) -> None:
        if self.threads and depth:
            self._pragma("parallel for" + (f" collapse({depth})" if depth > 1 else "") + self.condition)

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
        part = 0 if indexed else part_of(loops)
        whole = wide(folds) if part or indexed or long(self.kernel.rnumel) else folds
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
        if not long(size):
            yield "0", size
            return
        with self._loop(f"{name}_start", size, step=str(part)):
            self._stop(name, size, part)
            yield f"{name}_start", f"{name}_stop"

    def _stop(self, name: str, size: Size, step: Size) -> None:
        """Where the part of the loop ``name`` that was just entered ends."""
        stop = f"{name}_start + {step}"
        self.line(f"const int64_t {name}_stop = {f'{stop} < {size} ? {stop} : {size}' if size % step else stop};", self.kernel.origin)

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


def long(size: Size) -> bool:
    """Whether sums of so many values are made of partial sums."""
    return isinstance(size, Sym) or size >= 2 * CHUNK


def part_of(loops: Sequence[tuple[str, Size]]) -> Size:
    """How many values of the innermost loop make one partial result: 0 for none, where there are few in all, or too few in that loop."""
    innermost = loops[-1][1] if loops else 1
    if long(innermost):
        return CHUNK
    return innermost if long(prod(size for _, size in loops)) and innermost >= SHORT else 0


def wide(folds: Mapping[int, Fold]) -> dict[int, Fold]:
    return {position: fold.wide for position, fold in folds.items()}


def _clauses(folds: Mapping[int, Fold], suffix: str) -> str:
    return "".join(f" reduction({fold.clause} : v{position}{suffix}_acc)" for position, fold in folds.items())
