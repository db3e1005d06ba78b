"""Reductions and scans of one kernel as lines of Triton: of a row that is in the tile, or in a loop over tiles."""

from __future__ import annotations

from compiler.codegen.reductions import END, STEP
from compiler.codegen.templates import HALVES, dtype_class
from compiler.codegen.triton_lines import Shape, TritonLines
from compiler.codegen.triton_text import triton_number
from compiler.ir import Constant, Reduce, Scan
from compiler.ops import REDUCTIONS, SCANS, TRITON_TYPES


class TritonReductions(TritonLines):
    """Beside loads, stores and values, what runs along a row."""

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
            return f"tl.full((), {text}, {TRITON_TYPES[wide]})"
        if wide == "bool" and self._dtype(line.arg) != "bool":
            return f"({text} != 0)"
        return text if wide == self._dtype(line.arg) else f"{text}.to({TRITON_TYPES[wide]})"

    def _reduced(self, position: int, line: Reduce, wide: str, text: str, shape: Shape) -> None:
        """Names the result of a reduction, back in its own dtype and with an axis to broadcast along."""
        if not self.flat:
            text += "[:, None]"
        if wide == "bool":
            text += " != 0"
        elif wide != line.dtype and line.op not in ("argmax", "argmin"):
            text += f".to({TRITON_TYPES[line.dtype]})"
        self._assign(position, text, shape, line)

    def _reduce_row(self, position: int, line: Reduce) -> None:
        """The whole row is in the tile."""
        op, wide, identity = self._kind(line)
        text, shape = self._argument(line, wide), self.shapes[line.arg]
        indexed = op in ("argmax", "argmin")
        if not shape.r or (indexed and not shape.x):
            text = f"tl.broadcast_to({text}, {self._tile})"
            shape = Shape(not self.flat, True)
        if self.r_masked:
            text = f"tl.where(r_mask, {text}, {identity})"
        index = f"tl.broadcast_to(r, {self._tile}).to(tl.int64)" if indexed else ""
        axis = "0" if self.flat else "1"
        self._reduced(position, line, wide, END[op].format(text, axis, index), Shape(shape.x, False))

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
        self.line(f"carry{position} = tl.full({shape}, {identity}, {TRITON_TYPES[wide]})", line.origin)
        if SCANS[line.op].indexed:
            self.line(f"from{position} = tl.full({shape}, 0, tl.int64)", line.origin)

    def _scan(self, position: int, line: Scan) -> None:
        """The tile's own scan, and in a loop over the row what came before combined with it; its last lane is carried on."""
        row, (wide, _) = SCANS[line.op], self._running(line)
        text = self.text[line.arg]
        if isinstance(self.kernel.body[line.arg], Constant):
            text = f"tl.full((), {text}, {TRITON_TYPES[wide]})"
        elif wide != self._dtype(line.arg):
            text = f"{text}.to({TRITON_TYPES[wide]})"
        shape, axis = Shape(not self.flat, True), "0" if self.flat else "1"
        if not self.shapes[line.arg].covers(shape):
            text = f"tl.broadcast_to({text}, {self._tile})"
        index = f"tl.broadcast_to(r, {self._tile}).to(tl.int64)"
        whole = row.whole.format(text, axis, index)
        back = "" if wide == line.dtype or row.indexed else f".to({TRITON_TYPES[line.dtype]})"
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
        filled = f"tl.full({self._tile}, {identity}, {TRITON_TYPES[wide]})"
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
        self._reduced(position, line, wide, text, Shape(not self.flat, False))
