"""A fused kernel as Triton source: one program for a block of the parallel space, written as a person would write it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from compiler.codegen.sources import KernelSource
from compiler.codegen.space import merge_loops, transposed_loops, with_named_sizes
from compiler.codegen.triton_lines import Shape
from compiler.codegen.triton_reductions import TritonReductions
from compiler.codegen.triton_text import blocks, parameter_names, triton_helpers
from compiler.codegen.writer import Writer
from compiler.ir import Apply, Buffer, Constant, Kernel, Line, Load, Phase, Position, Reduce, Scan, Store
from compiler.sizes import Size, divisor, found, unnamed
from compiler.target import Target
from compiler.trace import Origin

HEADER = ("import triton", "import triton.language as tl", "from triton.language.extra import libdevice")
TILE = 64  # elements along each axis of a tile that is read one way and written the other


def triton_source(kernel: Kernel, buffers: Mapping[str, Buffer], target: Target, origins: Sequence[Origin] = ()) -> KernelSource:
    """The kernel as Triton text with the facts of its launch."""
    parameters = parameter_names(kernel.arguments, {name for size in found(kernel) for name in size.symbols()})
    merged, sizes = with_named_sizes(merge_loops(kernel), parameters)
    across = transposed_loops(merged)
    if across:
        tiling = replace(merged.tiling, block=TILE, reduction_block=TILE, warps=max(1, 256 // target.warp))
        phases = tuple(replace(phase, reduced=True) for phase in merged.phases)
        merged = replace(merged, loops=merged.loops[:across], reduction=merged.loops[across:], phases=phases, tiling=tiling)
    return _TritonKernel(merged, buffers, target, origins, parameters, sizes, tiled=across > 0).source()


class _TritonKernel(TritonReductions):
    """Writes a module with one kernel."""

    def __init__(
        self,
        kernel: Kernel,
        buffers: Mapping[str, Buffer],
        target: Target,
        origins: Sequence[Origin],
        parameters: Sequence[str],
        sizes: tuple[tuple[str, Size], ...],
        tiled: bool = False,
    ) -> None:
        super().__init__(kernel, buffers, origins, parameters, tiled)
        self.target, self.sizes = target, sizes

    # Text of the whole module

    def source(self) -> KernelSource:
        kernel, writer = self.kernel, self.writer
        with writer.indent():
            self._prologue()
            for phase in kernel.phases:
                self._phase(phase)
        body = writer.finish()
        head = Writer()
        for line in HEADER:
            head.line(line)
        for helper in triton_helpers(body.text):
            head.line(f"\n\n{helper}")
        head.line("\n")
        definition = head.position
        constants = self._constants()
        names = [name for name, _ in self.sizes]
        parameters = [*self.parameters.values(), *names, *(f"{name}: tl.constexpr" for name, _ in constants)]
        # One binary for all sizes, whatever they are divisible by.
        fixed = f"(do_not_specialize=[{', '.join(map(repr, names))}])" if names else ""
        head.line(f"@triton.jit{fixed}", kernel.origin)
        head.line(f"def {kernel.name}({', '.join(parameters)}):", kernel.origin)
        head.append(body)
        done = head.finish()
        return KernelSource(
            name=kernel.name,
            language="triton",
            text=done.text,
            marks=done.marks,
            arguments=kernel.arguments,
            parameters=tuple(self.parameters.values()),
            dtypes=tuple(self.buffers[name].dtype for name in kernel.arguments),
            origin=kernel.origin,
            grid=unnamed(blocks(kernel.numel, self.block) * self.tiles),
            sizes=self.sizes,
            wide=self.wide,
            constants=constants,
            warps=kernel.tiling.warps,
            stages=kernel.tiling.stages,
            definition=definition,
            threads=kernel.tiling.warps * self.target.warp,
        )

    def _constants(self) -> tuple[tuple[str, int], ...]:
        block = () if self.flat else (("BLOCK", self.block),)
        return (*block, *((("ROW", self.row),) if self.reduces else ()))

    def _prologue(self) -> None:
        origin, wide = self.kernel.origin, ".to(tl.int64)" if self.wide else ""
        for name, _ in self.sizes if self.wide else ():
            self.line(f"{name} = {name}.to(tl.int64)", origin)
        two = self.reduces and not self.flat
        if self.tiled:
            self.line("# Tiles of two axes, because some tensors run along the one and some along the other.", origin)
            self.line(f"x = tl.program_id(0){wide} // {divisor(self.tiles)} * BLOCK + tl.arange(0, BLOCK)[:, None]", origin)
            self.line(f"y = tl.program_id(0){wide} % {divisor(self.tiles)} * ROW + tl.arange(0, ROW)[None, :]", origin)
            if self.x_masked:
                self.line(f"x_mask = x < {self.kernel.numel}", origin)
            if self.r_masked:
                self.line(f"y_mask = y < {self.kernel.rnumel}", origin)
            return
        if not self.flat:
            self.line(f"x = tl.program_id(0){wide} * BLOCK + tl.arange(0, BLOCK){'[:, None]' if two else ''}", origin)
            if self.x_masked:
                self.line(f"x_mask = x < {self.kernel.numel}", origin)
        elif not self.scalar:
            self.line(f"x = tl.program_id(0){wide}", origin)
        if self.reduces:
            lane = f"tl.arange(0, ROW){wide}{'[None, :]' if two else ''}"
            self.line(f"{'lane' if self.looped else 'r'} = {lane}", origin)
            if self.r_masked and not self.looped:
                self.line(f"r_mask = r < {self.kernel.rnumel}", origin)

    # Phases

    def _phase(self, phase: Phase) -> None:
        lines = [(position, self.kernel.body[position]) for position in range(phase.start, phase.stop)]
        if not (phase.reduced and self.looped):
            for position, line in lines:
                self._line(position, line, reduced=phase.reduced)
            return
        reduces = [(position, line) for position, line in lines if isinstance(line, Reduce)]
        for position, line in reduces:
            self._start(position, line)
        for position, line in lines:
            if isinstance(line, Scan):
                self._start_running(position, line)
        before = set(self.defined)
        self.line(f"for start in range(0, {self.kernel.rnumel}, ROW):", self.kernel.origin)
        with self.writer.indent():
            self.line("r = start + lane", self.kernel.origin)
            if self.r_masked:
                self.line(f"r_mask = r < {self.kernel.rnumel}", self.kernel.origin)
            for position, line in lines:
                if isinstance(line, Reduce):
                    self._accumulate(position, line)
                else:
                    self._line(position, line, reduced=True)
        self.defined = before
        for position, line in reduces:
            self._finish(position, line)

    def _line(self, position: int, line: Line, *, reduced: bool) -> None:
        self._comment(line)
        match line:
            case Load():
                self._load(position, line)
            case Constant():
                self._constant(position, line)
            case Position():
                where, shape = self._address(line)
                self._assign(position, f"({where}).to(tl.int64)" if shape != Shape() else f"tl.full((), {where}, tl.int64)", shape, line)
            case Apply():
                shape = Shape()
                for argument in line.args:
                    shape |= self.shapes[argument]
                self._assign(position, self._apply(line), shape, line)
            case Reduce():
                self._reduce_row(position, line)
            case Scan():
                self._scan(position, line)
            case Store():
                self._store(line, reduced)
