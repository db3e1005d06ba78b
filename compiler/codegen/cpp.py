"""Fused kernels as C++: OpenMP threads outside, SIMD inside, one function for each kernel, one translation unit for a program."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import prod

from compiler.codegen.cpp_columns import CppColumns
from compiler.codegen.cpp_prelude import prelude
from compiler.codegen.cpp_text import STORED, parameter_names
from compiler.codegen.sources import CppUnit, KernelSource
from compiler.codegen.space import merge_loops, transposed_loops, with_named_sizes
from compiler.codegen.writer import Marked, Writer
from compiler.ir import Buffer, Kernel, Phase
from compiler.sizes import Sym, found, hint
from compiler.trace import Origin

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


class _CppKernel(CppColumns):
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
                    self._stop(name, size, TILE)
                with self._loop(pair[0][0], f"{pair[0][0]}_stop", start=f"{pair[0][0]}_start"):
                    self._pragma("simd")
                    with self._loop(pair[1][0], f"{pair[1][0]}_stop", start=f"{pair[1][0]}_start"):
                        self._phases(self.kernel.phases)

    def _phases(self, phases: Sequence[Phase]) -> None:
        for phase in phases:
            self._body(range(phase.start, phase.stop))
