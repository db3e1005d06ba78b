"""The loop IR as text: each line with the origin that it comes from."""

from __future__ import annotations

from dataclasses import dataclass

from compiler.ir import (
    Apply,
    Argument,
    Constant,
    Extern,
    Graph,
    Kernel,
    Line,
    Load,
    Nest,
    Position,
    Reduce,
    Ref,
    Scan,
    Store,
    Symbol,
)
from compiler.sizes import Size, factor

SIGNS = {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}


def loop_names(loops: tuple[Size, ...], reduction: tuple[Size, ...]) -> tuple[str, ...]:
    return (*(f"i{k}" for k in range(len(loops))), *(f"r{k}" for k in range(len(reduction))))


def address(offset: Size, strides: tuple[Size, ...], names: tuple[str, ...]) -> str:
    """``8*i0 + i1 + 3`` for a reader."""
    terms = [name if stride == 1 else f"{factor(stride)}*{name}" for name, stride in zip(names, strides, strict=True) if stride]
    if offset or not terms:
        terms.append(str(offset))
    return " + ".join(terms).replace("+ -", "- ")


def _place(line: Load | Store, names: tuple[str, ...]) -> str:
    where = address(line.offset, line.strides, names)
    computed = [f"{factor(stride)}*v{value}" for value, stride in line.indirect]
    return " + ".join([*([] if where == "0" and computed else [where]), *computed])


def _line_text(position: int, line: Line, names: tuple[str, ...]) -> str:
    match line:
        case Load():
            text = f"{line.buffer}[{_place(line, names)}]"
            return f"v{position} = {text}" if line.mask is None else f"v{position} = {text} if v{line.mask} else {line.other}"
        case Constant():
            return f"v{position} = {line.value}"
        case Position():
            return f"v{position} = {address(line.offset, line.strides, names)}"
        case Apply(op="cast"):
            return f"v{position} = {line.dtype}(v{line.args[0]})"
        case Apply() if line.op in SIGNS and len(line.args) == 2:
            return f"v{position} = v{line.args[0]} {SIGNS[line.op]} v{line.args[1]}"
        case Apply():
            return f"v{position} = {line.op}({', '.join(f'v{arg}' for arg in line.args)})"
        case Reduce():
            return f"v{position} = {line.op} of v{line.arg}"
        case Scan():
            return f"v{position} = running {line.op} of v{line.arg}"
        case Store():
            place = f"{line.buffer}[{_place(line, names)}]"
            joined = {"add": f"{place} += v{line.value}", "mul": f"{place} *= v{line.value}"}
            joined |= {which: f"{place} = {which}({place}, v{line.value})" for which in ("max", "min")}
            return joined.get(line.over, f"{place} = v{line.value}")


@dataclass(frozen=True, slots=True)
class Printed:
    """A line of text and the origin that it comes from (None: structure)."""

    text: str
    origin: int | None = None


def print_nest(nest: Nest) -> list[Printed]:
    """The nest as the loops that a reader would write by hand."""
    names = loop_names(nest.loops, nest.reduction)
    printed = [Printed(f"# {nest.name}: {nest.op}", nest.origin)]
    depth = 0
    for name, size in zip(names, (*nest.loops, *nest.reduction), strict=True):
        printed.append(Printed(f"{'    ' * depth}for {name} in range({size}):", nest.origin))
        depth += 1
    outer = len(nest.loops)
    inside = depth
    for position, line in enumerate(nest.body):
        printed.append(Printed("    " * inside + _line_text(position, line, names), line.origin))
        if isinstance(line, Reduce):
            inside = outer
    return printed


def print_extern(step: Extern) -> list[Printed]:
    def text(argument: Argument) -> str:
        match argument:
            case Ref():
                return argument.buffer
            case Symbol():
                return argument.text
            case tuple():
                return "[" + ", ".join(text(item) for item in argument) + "]"
            case _:
                return repr(argument)

    arguments = [*(text(item) for item in step.args), *(f"{name}={text(value)}" for name, value in step.kwargs)]
    results = ", ".join(name or "_" for name in step.outputs)
    return [
        Printed(f"# {step.name}: {step.op}, {step.reason}", step.origin),
        Printed(f"{results} = {step.call}({', '.join(arguments)})", step.origin),
    ]


def print_kernel(kernel: Kernel) -> list[Printed]:
    """The fused loops: the parallel loops around the phases, each reduced phase in its own reduction loops."""
    names = loop_names(kernel.loops, kernel.reduction)
    printed = [Printed(f"# {kernel.name}: {' + '.join(kernel.steps)}", kernel.origin)]
    for depth, (name, size) in enumerate(zip(names, kernel.loops, strict=False)):
        printed.append(Printed(f"{'    ' * depth}for {name} in range({size}):", kernel.origin))
    outer = len(kernel.loops)
    for phase in kernel.phases:
        depth = outer
        if phase.reduced:
            for name, size in zip(names[outer:], kernel.reduction, strict=True):
                printed.append(Printed(f"{'    ' * depth}for {name} in range({size}):", kernel.origin))
                depth += 1
        for position in range(phase.start, phase.stop):
            line = kernel.body[position]
            printed.append(Printed("    " * depth + _line_text(position, line, names), line.origin))
    return printed


def print_graph(graph: Graph) -> list[Printed]:
    printed: list[Printed] = []
    for step in graph.steps:
        printed += print_nest(step) if isinstance(step, Nest) else print_extern(step)
        printed.append(Printed(""))
    return printed
