"""A kernel that reduces across rows: SIMD along the last parallel loop, in tiles whose running values stay in the first cache."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from compiler.codegen.cpp_reductions import Fold, fold_of, running_of
from compiler.codegen.cpp_rows import CppRows, long, part_of, wide
from compiler.codegen.cpp_text import C_TYPES
from compiler.ir import Buffer, Kernel, Phase, Reduce, Scan
from compiler.sizes import Sym, hint
from compiler.trace import Origin


class CppColumns(CppRows):
    """The loops of either kind of reduction."""

    def __init__(self, kernel: Kernel, buffers: Mapping[str, Buffer], origins: Sequence[Origin], parameters: Sequence[str]) -> None:
        super().__init__(kernel, buffers, origins, parameters)
        self.tile = self._tile_width() if self.vertical else 1

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
        part = 0 if running or not folds or any(fold.indexed for fold in folds.values()) else part_of(loops)
        whole = wide(folds) if part or long(self.kernel.rnumel) else folds
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
