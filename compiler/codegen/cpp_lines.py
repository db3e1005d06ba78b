"""The lines of a kernel's body, and loops around them, as C++."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from compiler.codegen.cpp_reductions import INTEGERS, running_of
from compiler.codegen.cpp_text import C_TYPES, cpp_number
from compiler.codegen.scratch import Plan, plan_kernel
from compiler.codegen.space import sum_text, walked
from compiler.codegen.templates import HALVES, bare, dtype_class, expression
from compiler.codegen.writer import Writer
from compiler.ir import Apply, Buffer, Constant, Kernel, Line, Load, Position, Scan, Store, operands
from compiler.sizes import Size
from compiler.trace import Origin

JOINED = {"add": "{} + {}", "mul": "{} * {}", "max": "fuselab::maximum({}, {})", "min": "fuselab::minimum({}, {})"}
"""What a store over an element leaves there, of the element and the new value."""


class CppLines:
    """Writes lines of one kernel. A value is called ``v7`` inside the innermost loop; outside of it, ``v7_row`` or ``v7_tile``."""

    def __init__(self, kernel: Kernel, buffers: Mapping[str, Buffer], origins: Sequence[Origin], parameters: Sequence[str]) -> None:
        self.kernel, self.buffers, self.origins = kernel, buffers, origins
        self.parameters = dict(zip(kernel.arguments, parameters, strict=True))
        self.plan: Plan = plan_kernel(kernel)
        self.writer = Writer()
        self.outer = len(kernel.loops)
        self.vertical = bool(kernel.reduction) and self.plan.vertical
        self.said = ""

    def line(self, text: str = "", *origins: int) -> None:
        self.writer.line(text, *origins)

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

    def _flat_reduction(self) -> str:
        terms: list[tuple[Size, str]] = []
        stride: Size = 1
        for k in reversed(range(len(self.kernel.reduction))):
            if walked(self.kernel.reduction[k]):
                terms.append((stride, f"r{k}"))
            stride = stride * self.kernel.reduction[k]
        return sum_text(0, terms[::-1])

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
        source = self.kernel.body[line.args[0]]
        if isinstance(source, Apply) and source.op == "cast" and dtype in INTEGERS and dtype_class(line.dtype) == "float":
            value = f"({value} ^ ({C_TYPES[dtype]})no_bits)"
        if line.dtype in HALVES:
            return value if dtype == line.dtype else f"round_{line.dtype}({value if dtype in ('float32', *HALVES) else f'(float){value}'})"
        if line.dtype == "bool":
            return value if dtype == "bool" else f"{value} != 0"
        return value if C_TYPES[dtype] == C_TYPES[line.dtype] else f"({C_TYPES[line.dtype]}){value}"
