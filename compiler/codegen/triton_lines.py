"""Loads, stores and values of one kernel as lines of Triton."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from compiler.codegen.space import Index, flat_terms, sum_text
from compiler.codegen.templates import HALVES, bare, expression, readers, template_text
from compiler.codegen.triton_text import blocks, needs_64_bits, triton_number
from compiler.codegen.writer import Writer
from compiler.ir import Apply, Buffer, Constant, Kernel, Line, Load, Position, Store
from compiler.ops import TRITON_TYPES
from compiler.sizes import Sym
from compiler.trace import Origin

# Where a bare Python number becomes a tensor of the other operand's dtype; the second pattern only for float32, the dtype of bare floats.
_INFIX = re.compile(r"\(?\{[01]\} ?[-+*/<>=!&|]{1,2} ?\{[01]\}\)?|tl\.where\(\{0\}, \{1\}, \{2\}\)")
_CALL = re.compile(r"tl\.(div_rn|maximum|minimum|fma)\(\{0\}, \{1\}(, \{2\}|, propagate_nan=tl\.PropagateNan\.ALL)?\)")


@dataclass(frozen=True, slots=True)
class Shape:
    """Over which of the two axes of a tile a value varies."""

    x: bool = False
    r: bool = False

    def __or__(self, other: Shape) -> Shape:
        return Shape(self.x or other.x, self.r or other.r)

    def covers(self, other: Shape) -> bool:
        return (self.x or not other.x) and (self.r or not other.r)


class TritonLines:
    """``tiled``: a pointwise kernel on tiles of two axes; what is the reduction space elsewhere is its second axis, called y."""

    def __init__(
        self, kernel: Kernel, buffers: Mapping[str, Buffer], origins: Sequence[Origin], parameters: Sequence[str], tiled: bool
    ) -> None:
        self.kernel, self.origins, self.tiled = kernel, origins, tiled
        self.second, self.second_prefix = ("y", "j") if tiled else ("r", "r")
        self.buffers = {name: buffers[name] for name in kernel.arguments}
        self.parameters = dict(zip(kernel.arguments, parameters, strict=True))
        self.writer = Writer()
        self.readers = readers(kernel)
        self.text: dict[int, str] = {}
        self.shapes: dict[int, Shape] = {}
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

    def line(self, text: str, *origins: int) -> None:
        self.writer.line(text, *origins)

    def _comment(self, line: Line) -> None:
        """Says which ATen op the next lines come from, once for each run of lines."""
        op = self.origins[line.origin].op if line.origin < len(self.origins) else ""
        if op and op != self.said and not isinstance(line, Constant):
            self.line(f"# {op}", line.origin)
        self.said = op or self.said

    # Memory

    def _address(self, line: Load | Store | Position) -> tuple[str, Shape]:
        """The address and over which axes it varies; defines the indices that it names."""
        outer = len(self.kernel.loops)
        x_terms = [] if self.scalar else flat_terms("x", "i", self.kernel.loops, line.strides[:outer])
        r_terms = flat_terms(self.second, self.second_prefix, self.kernel.reduction, line.strides[outer:])
        for _, index in (*x_terms, *r_terms):
            self._define(index)
        # A position may be larger than any buffer.
        wide = ".to(tl.int64)" if isinstance(line, Position) and any(isinstance(size, Sym) for size in (line.offset, *line.strides)) else ""
        terms = [(stride, index.name + wide) for stride, index in (*x_terms, *r_terms)]
        shape = Shape(bool(x_terms) and not self.flat, bool(r_terms))
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

    def _masks(self, shape: Shape) -> list[str]:
        return [*(["x_mask"] if self.x_masked and shape.x else []), *([f"{self.second}_mask"] if self.r_masked and shape.r else [])]

    def _widen(self, where: str, shape: Shape, wanted: Shape) -> tuple[str, Shape]:
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
        full = Shape(not self.flat, reduced and self.reduces)
        where, shape = self._widen(where, shape, full)
        masks = self._masks(shape)
        pointer = self.parameters[line.buffer] + ("" if where == "0" else f" + {where}")
        mask = f", mask={' & '.join(masks)}" if masks else ""
        if line.over == "add":
            value = f"tl.full((), {self.text[line.value]}, {TRITON_TYPES[line.dtype]})" if self._bare(line.value) else self.text[line.value]
            self.line(f'tl.atomic_add({pointer}, {value}{mask}, sem="relaxed")', line.origin)
        else:
            self.line(f"tl.store({pointer}, {self.text[line.value]}{mask})", line.origin)

    def _bare(self, position: int) -> bool:
        """Whether the value is written as a number, which has no dtype of its own."""
        return isinstance(self.kernel.body[position], Constant) and not self.text[position].startswith("v")

    # Values

    def _assign(self, position: int, text: str, shape: Shape, line: Line) -> None:
        self.text[position], self.shapes[position] = f"v{position}", shape
        self.line(f"v{position} = {text}", line.origin)

    def _constant(self, position: int, line: Constant) -> None:
        if isinstance(line.value, Sym):
            self._assign(position, f"tl.full((), {line.value}, tl.int64)", Shape(), line)
            return
        literal = triton_number(line.value, line.dtype)
        self.shapes[position] = Shape()
        if all(self._takes_literal(position, self.kernel.body[reader]) for reader in self.readers[position]):
            self.text[position] = f"({literal})" if literal.startswith("-") else literal
        else:
            self._assign(position, f"tl.full((), {literal}, {TRITON_TYPES[line.dtype]})", Shape(), line)

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
            return f"{arguments[0]}.to({TRITON_TYPES[line.dtype]})"
        return bare(expression(line, self._operand_dtype(line), arguments, "triton"))
