"""A fused kernel as Triton source: one program for a block of the parallel space, written as a person would write it."""

from __future__ import annotations

import keyword
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite, isnan

from compiler.codegen.reductions import END, HELPER_NAMES, STEP, reduction_helpers
from compiler.codegen.sources import KernelSource
from compiler.codegen.space import Index, flat_terms, merge_loops, sum_text, transposed_loops, with_named_sizes
from compiler.codegen.templates import HALVES, bare, dtype_class, expression, readers, template_text
from compiler.codegen.writer import Writer
from compiler.ir import Apply, Buffer, Constant, Kernel, Line, Load, Number, Phase, Position, Reduce, Scan, Store
from compiler.ops import REDUCTIONS, SCANS, TRITON_TYPES, triton_prelude
from compiler.sizes import Size, Sym, divisor, found, hint, proved, unnamed
from compiler.target import Target
from compiler.trace import Origin

HEADER = ("import triton", "import triton.language as tl", "from triton.language.extra import libdevice")
_WIDE = 2**31
TILE = 64  # elements along each axis of a tile that is read one way and written the other
_RESERVED = re.compile(r"[xyr]|tl|triton|libdevice|BLOCK|ROW|lane|start|[xyr]_mask|mask|([ijrv]|best|at|acc|carry|from|run|place)\d.*")
# Where a bare Python number becomes a tensor of the other operand's dtype; the second pattern only for float32, the dtype of bare floats.
_INFIX = re.compile(r"\(?\{[01]\} ?[-+*/<>=!&|]{1,2} ?\{[01]\}\)?|tl\.where\(\{0\}, \{1\}, \{2\}\)")
_CALL = re.compile(r"tl\.(div_rn|maximum|minimum|fma)\(\{0\}, \{1\}(, \{2\}|, propagate_nan=tl\.PropagateNan\.ALL)?\)")


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


def _type(dtype: str) -> str:
    return TRITON_TYPES[dtype]


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


@dataclass(frozen=True, slots=True)
class _Shape:
    """Over which of the two axes of a tile a value varies."""

    x: bool = False
    r: bool = False

    def __or__(self, other: _Shape) -> _Shape:
        return _Shape(self.x or other.x, self.r or other.r)

    def covers(self, other: _Shape) -> bool:
        return (self.x or not other.x) and (self.r or not other.r)


class _TritonKernel:
    """``tiled``: a pointwise kernel on tiles of two axes; what is the reduction space elsewhere is its second axis, called y."""

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
        self.kernel, self.target, self.origins, self.sizes, self.tiled = kernel, target, origins, sizes, tiled
        self.second, self.second_prefix = ("y", "j") if tiled else ("r", "r")
        self.buffers = {name: buffers[name] for name in kernel.arguments}
        self.parameters = dict(zip(kernel.arguments, parameters, strict=True))
        self.writer = Writer()
        self.readers = readers(kernel)
        self.text: dict[int, str] = {}
        self.shapes: dict[int, _Shape] = {}
        self.defined: set[str] = set()
        self.said = ""
        tiling = kernel.tiling
        self.reduces = bool(kernel.reduction)
        self.scalar = kernel.numel == 1  # nothing to spread over a block
        self.block = 1 if self.scalar else tiling.block
        self.row = tiling.reduction_block
        self.flat = self.scalar or (self.reduces and self.block == 1)  # x is no vector
        self.looped = self.reduces and (isinstance(kernel.rnumel, Sym) or kernel.rnumel > self.row) and not tiled
        self.tiles = blocks(kernel.rnumel, self.row) if tiled else 1
        extents = [buffer.extent for buffer in self.buffers.values()]
        self.wide = needs_64_bits([*extents, kernel.numel * kernel.rnumel + self.block * max(1, self.row)])
        self.x_masked = not self.flat and kernel.numel % self.block != 0
        self.r_masked = self.reduces and (kernel.rnumel % self.row != 0 or kernel.rnumel == 0)

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
                self._assign(position, f"({where}).to(tl.int64)" if shape != _Shape() else f"tl.full((), {where}, tl.int64)", shape, line)
            case Apply():
                shape = _Shape()
                for argument in line.args:
                    shape |= self.shapes[argument]
                self._assign(position, self._apply(line), shape, line)
            case Reduce():
                self._reduce_row(position, line)
            case Scan():
                self._scan(position, line)
            case Store():
                self._store(line, reduced)

    def _comment(self, line: Line) -> None:
        """Says which ATen op the next lines come from, once for each run of lines."""
        op = self.origins[line.origin].op if line.origin < len(self.origins) else ""
        if op and op != self.said and not isinstance(line, Constant):
            self.line(f"# {op}", line.origin)
        self.said = op or self.said

    # Memory

    def _address(self, line: Load | Store | Position) -> tuple[str, _Shape]:
        """The address and over which axes it varies; defines the indices that it names."""
        outer = len(self.kernel.loops)
        x_terms = [] if self.scalar else flat_terms("x", "i", self.kernel.loops, line.strides[:outer])
        r_terms = flat_terms(self.second, self.second_prefix, self.kernel.reduction, line.strides[outer:])
        for _, index in (*x_terms, *r_terms):
            self._define(index)
        # A position may be larger than any buffer.
        wide = ".to(tl.int64)" if isinstance(line, Position) and any(isinstance(size, Sym) for size in (line.offset, *line.strides)) else ""
        terms = [(stride, index.name + wide) for stride, index in (*x_terms, *r_terms)]
        shape = _Shape(bool(x_terms) and not self.flat, bool(r_terms))
        if isinstance(line, Load | Store):
            for value, stride in line.indirect:
                if stride:  # an expanded axis moves no address
                    terms.append((stride, self.text[value]))
                    shape |= self.shapes[value]
        return sum_text(line.offset, terms), shape

    def _define(self, index: Index) -> None:
        if index.name != index.text and index.name not in self.defined:
            self.defined.add(index.name)
            self.line(f"{index.name} = {index.text}", self.kernel.origin)

    def _masks(self, shape: _Shape) -> list[str]:
        return [*(["x_mask"] if self.x_masked and shape.x else []), *([f"{self.second}_mask"] if self.r_masked and shape.r else [])]

    def _widen(self, where: str, shape: _Shape, wanted: _Shape) -> tuple[str, _Shape]:
        """An address that varies, as far as shapes go, over the wanted axes as well."""
        for axis, missing in (("x", wanted.x and not shape.x), (self.second, wanted.r and not shape.r)):
            if missing:
                where += f" + 0 * {axis}"
        return where, shape | wanted

    def _load(self, position: int, line: Load) -> None:
        where, shape = self._address(line)
        if line.mask is not None:
            where, shape = self._widen(where, shape, self.shapes[line.mask])
        masks = self._masks(shape)
        arguments = [self.parameters[line.buffer] + ("" if where == "0" else f" + {where}")]
        if line.mask is not None:
            masks.append(self.text[line.mask])
        if masks:
            arguments.append(f"mask={' & '.join(masks)}")
        if line.mask is not None:
            arguments.append(f"other={triton_number(line.other, line.dtype)}")
        self._assign(position, f"tl.load({', '.join(arguments)})", shape, line)

    def _store(self, line: Store, reduced: bool) -> None:
        where, shape = self._address(line)
        full = _Shape(not self.flat, reduced and self.reduces)
        where, shape = self._widen(where, shape, full)
        masks = self._masks(shape)
        pointer = self.parameters[line.buffer] + ("" if where == "0" else f" + {where}")
        mask = f", mask={' & '.join(masks)}" if masks else ""
        if line.over == "add":
            value = f"tl.full((), {self.text[line.value]}, {_type(line.dtype)})" if self._bare(line.value) else self.text[line.value]
            self.line(f'tl.atomic_add({pointer}, {value}{mask}, sem="relaxed")', line.origin)
        else:
            self.line(f"tl.store({pointer}, {self.text[line.value]}{mask})", line.origin)

    def _bare(self, position: int) -> bool:
        """Whether the value is written as a number, which has no dtype of its own."""
        return isinstance(self.kernel.body[position], Constant) and not self.text[position].startswith("v")

    # Values

    def _assign(self, position: int, text: str, shape: _Shape, line: Line) -> None:
        self.text[position], self.shapes[position] = f"v{position}", shape
        self.line(f"v{position} = {text}", line.origin)

    def _constant(self, position: int, line: Constant) -> None:
        if isinstance(line.value, Sym):
            self._assign(position, f"tl.full((), {line.value}, tl.int64)", _Shape(), line)
            return
        literal = triton_number(line.value, line.dtype)
        self.shapes[position] = _Shape()
        if all(self._takes_literal(position, self.kernel.body[reader]) for reader in self.readers[position]):
            self.text[position] = f"({literal})" if literal.startswith("-") else literal
        else:
            self._assign(position, f"tl.full((), {literal}, {_type(line.dtype)})", _Shape(), line)

    def _takes_literal(self, position: int, reader: Line) -> bool:
        """Whether Triton gives a bare literal the right dtype there: the other operand is a tensor, or a store, which converts."""
        if isinstance(reader, Store):
            return True
        if not isinstance(reader, Apply) or reader.op == "cast" or self._dtype(position) in HALVES:
            return False
        others = [argument for argument in reader.args if not isinstance(self.kernel.body[argument], Constant)]
        text = template_text(reader, self._operand_dtype(reader), "triton")
        if not _INFIX.fullmatch(text) and not (self._dtype(position) == "float32" and _CALL.fullmatch(text)):
            return False
        return any(self._dtype(argument) == self._dtype(position) for argument in others)

    def _dtype(self, position: int) -> str:
        line = self.kernel.body[position]
        assert not isinstance(line, Store), "a store has no value"
        return line.dtype

    def _operand_dtype(self, line: Apply) -> str:
        return self._dtype(line.args[-1]) if line.args else line.dtype

    def _apply(self, line: Apply) -> str:
        arguments = [self.text[argument] for argument in line.args]
        if line.op == "cast":
            if line.dtype == "bool":
                return f"{arguments[0]} != 0"
            return f"{arguments[0]}.to({_type(line.dtype)})"
        return bare(expression(line, self._operand_dtype(line), arguments, "triton"))

    # Reductions

    @property
    def _tile(self) -> str:
        return "[ROW]" if self.flat else "[BLOCK, ROW]"

    def _kind(self, line: Reduce) -> tuple[str, str, str]:
        """The op, the dtype in which it accumulates, and the literal that changes nothing."""
        dtype = self._dtype(line.arg)
        op: str = line.op
        if dtype == "bool" and op in ("max", "min"):
            op = "any" if op == "max" else "all"
        if op in ("any", "all"):
            wide = "bool"
        elif op in ("sum", "prod"):
            wide = line.dtype if line.dtype not in HALVES else "float32"
        else:
            wide = dtype if dtype not in HALVES else "float32"
        wide = "int32" if wide in ("int16", "int8", "uint8") or (wide == "bool" and op not in ("any", "all")) else wide
        return op, wide, triton_number(REDUCTIONS[op].identity(wide), wide)

    def _argument(self, line: Reduce, wide: str) -> str:
        text, literal = self.text[line.arg], isinstance(self.kernel.body[line.arg], Constant)
        if literal and not text.startswith("v"):
            return f"tl.full((), {text}, {_type(wide)})"
        if wide == "bool" and self._dtype(line.arg) != "bool":
            return f"({text} != 0)"
        return text if wide == self._dtype(line.arg) else f"{text}.to({_type(wide)})"

    def _reduced(self, position: int, line: Reduce, wide: str, text: str, shape: _Shape) -> None:
        """Names the result of a reduction, back in its own dtype and with an axis to broadcast along."""
        if not self.flat:
            text += "[:, None]"
        if wide == "bool":
            text += " != 0"
        elif wide != line.dtype and line.op not in ("argmax", "argmin"):
            text += f".to({_type(line.dtype)})"
        self._assign(position, text, shape, line)

    def _reduce_row(self, position: int, line: Reduce) -> None:
        """The whole row is in the tile."""
        op, wide, identity = self._kind(line)
        text, shape = self._argument(line, wide), self.shapes[line.arg]
        indexed = op in ("argmax", "argmin")
        if not shape.r or (indexed and not shape.x):
            text = f"tl.broadcast_to({text}, {self._tile})"
            shape = _Shape(not self.flat, True)
        if self.r_masked:
            text = f"tl.where(r_mask, {text}, {identity})"
        index = f"tl.broadcast_to(r, {self._tile}).to(tl.int64)" if indexed else ""
        axis = "0" if self.flat else "1"
        self._reduced(position, line, wide, END[op].format(text, axis, index), _Shape(shape.x, False))

    # Running reductions

    def _running(self, line: Scan) -> tuple[str, str]:
        """The dtype in which it accumulates, and the literal that it starts from."""
        dtype = self._dtype(line.arg)
        wide = "int32" if dtype in ("int16", "int8", "uint8") else dtype
        return wide, triton_number(SCANS[line.op].identity(wide), wide)

    def _start_running(self, position: int, line: Scan) -> None:
        """What comes before the first tile of the row."""
        wide, identity = self._running(line)
        shape = "()" if self.flat else "[BLOCK, 1]"
        self.line(f"carry{position} = tl.full({shape}, {identity}, {_type(wide)})", line.origin)
        if SCANS[line.op].indexed:
            self.line(f"from{position} = tl.full({shape}, 0, tl.int64)", line.origin)

    def _scan(self, position: int, line: Scan) -> None:
        """The tile's own scan, and in a loop over the row what came before combined with it; its last lane is carried on."""
        row, (wide, _) = SCANS[line.op], self._running(line)
        text = self.text[line.arg]
        if wide != self._dtype(line.arg) or isinstance(self.kernel.body[line.arg], Constant):
            text = (
                f"tl.full((), {text}, {_type(wide)})" if isinstance(self.kernel.body[line.arg], Constant) else f"{text}.to({_type(wide)})"
            )
        shape, axis = _Shape(not self.flat, True), "0" if self.flat else "1"
        if not self.shapes[line.arg].covers(shape):
            text = f"tl.broadcast_to({text}, {self._tile})"
        index = f"tl.broadcast_to(r, {self._tile}).to(tl.int64)"
        whole = row.whole.format(text, axis, index)
        back = "" if wide == line.dtype or row.indexed else f".to({_type(line.dtype)})"
        if not (self.looped or row.indexed):
            self._assign(position, whole + back, shape, line)
            return
        name, place = f"run{position}", f"place{position}"
        self.line(f"{f'{name}, {place}' if row.indexed else name} = {whole}", line.origin)
        if self.looped:
            self._carry(position, line, axis)
        self._assign(position, place if row.indexed else name + back, shape, line)

    def _carry(self, position: int, line: Scan, axis: str) -> None:
        row = SCANS[line.op]
        together = row.triton.format(f"carry{position}", f"run{position}", f"from{position}", f"place{position}")
        names = [(f"carry{position}", f"run{position}"), *([(f"from{position}", f"place{position}")] if row.indexed else [])]
        self.line(f"{', '.join(new for _, new in names)} = {together}", line.origin)
        for carried, new in names:
            last = f"tl.sum(tl.where(lane == ROW - 1, {new}, 0), {axis})"
            self.line(f"{carried} = {last}{'' if self.flat else '[:, None]'}", line.origin)

    def _start(self, position: int, line: Reduce) -> None:
        """Accumulators as wide as the tile, before the loop over the row."""
        op, wide, identity = self._kind(line)
        filled = f"tl.full({self._tile}, {identity}, {_type(wide)})"
        if op in ("argmax", "argmin"):
            self.line(f"best{position} = {filled}", line.origin)
            self.line(f"at{position} = tl.broadcast_to(lane, {self._tile}).to(tl.int64)", line.origin)
        else:
            self.line(f"acc{position} = {filled}", line.origin)

    def _accumulate(self, position: int, line: Reduce) -> None:
        self._comment(line)
        op, wide, _ = self._kind(line)
        text = self._argument(line, wide)
        if op in ("argmax", "argmin"):
            best, at = f"best{position}", f"at{position}"
            better = f"{text} {'>' if op == 'argmax' else '<'} {best}"
            if dtype_class(wide) == "float":
                better = f"({better}) | (({text} != {text}) & ({best} == {best}))"
            self.line(f"better = {f'r_mask & ({better})' if self.r_masked else better}", line.origin)
            self.line(f"{best} = tl.where(better, {text}, {best})", line.origin)
            self.line(f"{at} = tl.where(better, r, {at})", line.origin)
            return
        together = STEP[op].format(f"acc{position}", text)
        if self.r_masked:
            together = f"tl.where(r_mask, {together}, acc{position})"
        self.line(f"acc{position} = {together}", line.origin)

    def _finish(self, position: int, line: Reduce) -> None:
        op, wide, _ = self._kind(line)
        name = f"best{position}" if op in ("argmax", "argmin") else f"acc{position}"
        text = END[op].format(name, "0" if self.flat else "1", f"at{position}")
        self._reduced(position, line, wide, text, _Shape(not self.flat, False))

    def line(self, text: str, *origins: int) -> None:
        self.writer.line(text, *origins)
