"""What must hold of loop IR between passes: ``verify`` a graph, ``verify_kernel`` a fused kernel, ``verify_program`` a scheduled graph.

Open sizes are looked at as they are at present.

Each raises CompileError, which says what does not hold and where; it is a fault of the compiler, never of the snippet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch

from compiler.errors import CompileError
from compiler.ir import (
    Apply,
    Buffer,
    Constant,
    Extern,
    Graph,
    Kernel,
    Line,
    Load,
    Nest,
    Position,
    Program,
    Reduce,
    Ref,
    Scan,
    Store,
    Value,
    item_bytes,
    operands,
)
from compiler.ops import OPS, REDUCTIONS, SCANS, kind_of
from compiler.sizes import Size, at_hints, known

HALF = ("float16", "bfloat16")
MAX_ENUMERATED = 1 << 22


@dataclass(frozen=True, slots=True)
class Body:
    """A body to be checked: its lines, the loops around it, and what is said of it in errors."""

    stage: str
    name: str
    lines: tuple[Line, ...]
    loops: tuple[Size, ...]
    reduction: tuple[Size, ...]
    buffers: Mapping[str, Buffer]

    @property
    def sizes(self) -> tuple[int, ...]:
        return known((*self.loops, *self.reduction))

    def need(self, holds: bool, message: str, position: int | None = None) -> None:
        if not holds:
            raise CompileError(
                self.stage, f"{self.name}{'' if position is None else f', v{position}'}: {message}", hint="report this program"
            )


def check_lines(body: Body) -> None:
    """Single assignment, declared buffers, one stride a loop, dtypes as the table of ops has them."""
    for position, line in enumerate(body.lines):
        for value in operands(line):
            body.need(0 <= value < position, f"v{value} is no earlier value", position)
            body.need(not isinstance(body.lines[value], Store), f"v{value} is a store, which has no value", position)
        if isinstance(line, Load | Position | Store):
            body.need(len(line.strides) == len(body.sizes), f"{len(line.strides)} strides for {len(body.sizes)} loops", position)
        if isinstance(line, Load | Store):
            body.need(line.buffer in body.buffers, f"{line.buffer} is not declared", position)
            declared = body.buffers[line.buffer].dtype
            body.need(line.dtype == declared, f"{line.dtype} in {line.buffer}, which holds {declared}", position)
        match line:
            case Load():
                check_load(body, position, line)
            case Apply():
                check_apply(body, position, line)
            case Reduce():
                check_reduce(body, position, line)
            case Scan():
                check_scan(body, position, line)
            case Store():
                stored = body.lines[line.value].dtype
                body.need(stored == line.dtype, f"a value of {stored} is stored as {line.dtype}", position)
                body.need(not line.indirect or bool(line.over), "a computed address may be another iteration's", position)
                for value, _ in line.indirect:
                    body.need(body.lines[value].dtype == "int64", f"the index v{value} is no int64", position)
            case Position():
                body.need(line.dtype == "int64", "a position is int64", position)
            case Constant():
                fits = kind_of(line.dtype) == "float" or isinstance(line.value, int)
                body.need(fits, f"{line.value} is no {line.dtype}", position)


def check_load(body: Body, position: int, line: Load) -> None:
    for value, _ in line.indirect:
        body.need(body.lines[value].dtype == "int64", f"the index v{value} is no int64", position)
    if line.mask is not None:
        body.need(body.lines[line.mask].dtype == "bool", f"the mask v{line.mask} is no bool", position)
    elif not line.indirect:
        check_inside(body, position, line.buffer, line.offset, line.strides, body.sizes)


def check_inside(body: Body, position: int, buffer: str, offset: Size, strides: Sequence[Size], sizes: Sequence[Size]) -> None:
    """Every address of an affine access lies in the buffer."""
    low, high = address_range(offset, strides, sizes)
    extent = body.buffers[buffer].extent
    body.need(0 in sizes or (low >= 0 and high < extent), f"addresses {low} to {high} in {buffer} of {extent} elements", position)


def address_range(offset: Size, strides: Sequence[Size], sizes: Sequence[Size]) -> tuple[int, int]:
    """The lowest and the highest address of an affine access."""
    first, *_ = known((offset,))
    reach = [stride * (size - 1) for stride, size in zip(known(strides), known(sizes), strict=True)]
    return first + sum(r for r in reach if r < 0), first + sum(r for r in reach if r > 0)


def check_apply(body: Body, position: int, line: Apply) -> None:
    dtypes = [body.lines[value].dtype for value in line.args]
    if line.op == "cast":
        body.need(len(dtypes) == 1, "a cast has one argument", position)
        return
    body.need(line.op in OPS, f"no op {line.op}", position)
    row = OPS[line.op]
    body.need(len(dtypes) == len(row.operands), f"{line.op} takes {len(row.operands)} arguments, not {len(dtypes)}", position)
    if row.promote == "keep":
        return
    if row.name == "where":
        body.need(dtypes.pop(0) == "bool", "where chooses by a bool", position)
    computing = dtypes[0]
    body.need(len(set(dtypes)) == 1, f"{line.op} on {' and '.join(dtypes)}", position)
    body.need(kind_of(computing) in row.kinds, f"{line.op} has no code for {computing}", position)
    body.need(not (row.opmath and computing in HALF), f"{line.op} computes in float32, not {computing}", position)
    wanted = "bool" if row.promote == "bool" else computing
    body.need(line.dtype == wanted, f"{line.op} on {computing} gives {wanted}, not {line.dtype}", position)


def check_reduce(body: Body, position: int, line: Reduce) -> None:
    body.need(line.op in REDUCTIONS, f"no reduction {line.op}", position)
    row, dtype = REDUCTIONS[line.op], body.lines[line.arg].dtype
    body.need(kind_of(dtype) in row.kinds, f"{line.op} of {dtype}", position)
    body.need(dtype not in HALF, f"{line.op} accumulates in float32, not {dtype}", position)
    body.need(line.dtype == (row.result or dtype), f"{line.op} of {dtype} gives {row.result or dtype}, not {line.dtype}", position)


def check_scan(body: Body, position: int, line: Scan) -> None:
    body.need(line.op in SCANS, f"no running reduction {line.op}", position)
    row, dtype = SCANS[line.op], body.lines[line.arg].dtype
    body.need(kind_of(dtype) in row.kinds, f"running {line.op} of {dtype}", position)
    body.need(dtype not in HALF, f"running {line.op} accumulates in float32, not {dtype}", position)
    body.need(line.dtype == (row.result or dtype), f"running {line.op} of {dtype} gives {row.result or dtype}, not {line.dtype}", position)


def check_store(body: Body, position: int, line: Store, sizes: Sequence[Size]) -> None:
    """Every address lies in the buffer, and no two iterations store to the same one unless they write over what stands there."""
    if line.indirect:
        return
    check_inside(body, position, line.buffer, line.offset, line.strides[: len(sizes)], sizes)
    body.need(
        bool(line.over) or injective(line.strides[: len(sizes)], sizes), f"two iterations store to one element of {line.buffer}", position
    )


def injective(strides: Sequence[Size], sizes: Sequence[Size]) -> bool:
    """Whether no two points have the same address: layouts without overlap show it by their strides, of others addresses are counted."""
    if 0 in sizes:
        return True
    axes = sorted((abs(stride), size) for stride, size in zip(known(strides), known(sizes), strict=True) if size > 1)
    reach = 0
    for stride, size in axes:
        if stride <= reach:
            break
        reach += stride * (size - 1)
    else:
        return True
    count = 1
    for _, size in axes:
        count *= size
    if count > MAX_ENUMERATED or any(stride == 0 for stride, _ in axes):
        return False
    addresses = torch.zeros(1, dtype=torch.int64)
    for stride, size in axes:
        addresses = (addresses[:, None] + stride * torch.arange(size)).reshape(-1)
    return int(addresses.unique().numel()) == count


def check_aliases(body: Body) -> None:
    """A body reads what it writes only at the element that the same iteration writes."""
    stores = [line for line in body.lines if isinstance(line, Store)]
    for store in stores:
        touching = sum(isinstance(line, Load | Store) and line.buffer == store.buffer for line in body.lines)
        body.need(not store.over or touching == 1, f"{store.buffer} is written over and touched elsewhere")
    for position, line in enumerate(body.lines):
        if isinstance(line, Load):
            for store in stores:
                same = (line.offset, line.strides, line.indirect) == (store.offset, store.strides, ())
                body.need(store.buffer != line.buffer or same, f"{line.buffer} is read where another iteration may write", position)


def stands_still(line: Line, outer: int) -> bool:
    """Whether the line's own address does not move with the reduction loops."""
    return not isinstance(line, Load | Position | Store) or not any(line.strides[outer:])


def verify_nest(nest: Nest, buffers: Mapping[str, Buffer]) -> None:
    """One nest: its lines, its one store, and its reduction, after which nothing depends on the reduction loops."""
    body = Body("loops", nest.name, nest.body, nest.loops, nest.reduction, buffers)
    check_lines(body)
    stores = [position for position, line in enumerate(nest.body) if isinstance(line, Store)]
    reduces = [position for position, line in enumerate(nest.body) if isinstance(line, Reduce)]
    body.need(len(stores) == 1, f"{len(stores)} stores")
    body.need(len(reduces) <= 1, f"{len(reduces)} reductions")
    scans = [position for position, line in enumerate(nest.body) if isinstance(line, Scan)]
    body.need(bool(reduces or scans) or not nest.reduction, "reduction loops without a reduction")
    body.need(len(scans) <= 1 and not (scans and (reduces or not nest.reduction)), "a running reduction stands alone, in reduction loops")
    outer, last = len(nest.loops), reduces[0] if reduces else -1
    moving: set[int] = set()
    for position, line in enumerate(nest.body):
        moves = not stands_still(line, outer) or any(value in moving for value in operands(line))
        if moves and position != last:
            moving.add(position)
        if reduces and position > last:
            body.need(not moves, "depends on a reduction loop that has ended", position)
    body.need(stores[0] > last, "a store before the reduction has ended", stores[0])
    store = nest.body[stores[0]]
    assert isinstance(store, Store)
    check_store(body, stores[0], store, body.sizes if scans else nest.loops)
    check_aliases(body)


def verify_kernel(kernel: Kernel, buffers: Mapping[str, Buffer]) -> None:
    """A fused kernel: its lines, its phases, and values used only where they still exist."""
    body = Body("fusion", kernel.name, kernel.body, kernel.loops, kernel.reduction, buffers)
    check_lines(body)
    edges = [0, *(phase.stop for phase in kernel.phases)]
    contiguous = [phase.start for phase in kernel.phases] == edges[:-1] and all(a <= b for a, b in pairwise(edges))
    body.need(contiguous and edges[-1] == len(kernel.body), "the phases do not cover the body one after the other")
    touched = {line.buffer for line in kernel.body if isinstance(line, Load | Store)}
    stored = {line.buffer for line in kernel.body if isinstance(line, Store)}
    body.need(
        touched == set(kernel.arguments) and len(touched) == len(kernel.arguments), "the arguments are not the buffers that it touches"
    )
    body.need(stored == set(kernel.writes) and len(stored) == len(kernel.writes), "writes are not the buffers that it stores to")
    where = [number for number, phase in enumerate(kernel.phases) for _ in range(phase.start, phase.stop)]
    for position, line in enumerate(kernel.body):
        phase = kernel.phases[where[position]]
        if phase.reduced:
            body.need(bool(kernel.reduction), "a reduced phase without reduction loops", position)
        else:
            body.need(not isinstance(line, Reduce | Scan), "a reduction outside of a reduced phase", position)
            body.need(stands_still(line, len(kernel.loops)), "depends on a reduction loop outside of a reduced phase", position)
        for value in operands(line):
            check_alive(body, kernel, where, position, value)
        if isinstance(line, Store):
            check_store(body, position, line, body.sizes if phase.reduced else kernel.loops)
    check_aliases(body)


def check_alive(body: Body, kernel: Kernel, where: Sequence[int], position: int, value: Value) -> None:
    """``value`` still exists in the phase of ``position``, or exists already."""
    made, used = kernel.phases[where[value]], kernel.phases[where[position]]
    if isinstance(kernel.body[value], Reduce):
        body.need(where[value] < where[position], f"v{value} is used before its reduction has ended", position)
    elif made.reduced and where[value] != where[position]:
        body.need(used.reduced, f"v{value} has many values, one for each point of the reduction", position)
        body.need(kernel.persistent, f"v{value} is gone: it belongs to an earlier reduced phase and the kernel is not persistent", position)


def check_ref(graph: Graph, stage: str, ref: Ref, written: Iterable[str], what: str) -> None:
    if ref.buffer not in graph.buffers:
        raise CompileError(stage, f"{what}: {ref.buffer} is not declared", hint="report this program")
    if ref.buffer not in written:
        raise CompileError(stage, f"{what}: {ref.buffer} is read before it is written", hint="report this program")
    low, high = address_range(ref.offset, ref.strides, ref.shape)
    buffer = graph.buffers[ref.buffer]
    item, elements = (item_bytes(ref.dtype), buffer.bytes) if ref.dtype else (1, buffer.extent)
    if 0 not in ref.shape and not (low >= 0 and (high + 1) * item <= elements):
        raise CompileError(stage, f"{what}: a view of {ref.buffer} reaches from {low} to {high}", hint="report this program")


def check_extern(graph: Graph, stage: str, step: Extern, written: Iterable[str]) -> None:
    for ref in step.refs():
        check_ref(graph, stage, ref, written, step.name)
    for name in step.outputs:
        if name is not None and name not in graph.buffers:
            raise CompileError(stage, f"{step.name}: {name} is not declared", hint="report this program")


def given(graph: Graph, stage: str) -> set[str]:
    """The buffers that have values before the first step."""
    names = {name for name in graph.inputs if name is not None} | set(graph.constants)
    for name in names - graph.buffers.keys():
        raise CompileError(stage, f"{name} is not declared", hint="report this program")
    return names


def check_results(graph: Graph, stage: str, written: Iterable[str]) -> None:
    for number, output in enumerate(graph.outputs):
        if isinstance(output, Ref):
            check_ref(graph, stage, output, written, f"result {number}")


def verify(graph: Graph) -> None:
    """A graph of nests and extern calls: each step by itself, and that buffers are written before they are read."""
    graph = at_hints(graph)
    written = given(graph, "loops")
    names: set[str] = set()
    for step in graph.steps:
        if step.name in names:
            raise CompileError("loops", f"two steps are called {step.name}", hint="report this program")
        names.add(step.name)
        if isinstance(step, Extern):
            check_extern(graph, "loops", step, written)
            written |= {name for name in step.outputs if name is not None}
            continue
        verify_nest(step, graph.buffers)
        for load in step.loads():
            if load.buffer not in written:
                raise CompileError("loops", f"{step.name}: {load.buffer} is read before it is written", hint="report this program")
        written.add(step.store.buffer)
    check_results(graph, "loops", written)


def verify_program(program: Program) -> None:
    """A scheduled graph: each kernel by itself, buffers written before they are read, and memory that is there while it is used."""
    program = at_hints(program)
    graph = program.graph
    written = given(graph, "fusion")
    present = set(written)
    for step, allocations, frees in zip(program.steps, program.allocations, program.frees, strict=True):
        present |= {allocation.buffer for allocation in allocations}
        if isinstance(step, Extern):
            check_extern(graph, "fusion", step, written)
            made = {name for name in step.outputs if name is not None}
            present |= made
            used = {ref.buffer for ref in step.refs()} | made
        else:
            verify_kernel(step, graph.buffers)
            first: dict[str, bool] = {}
            for line in step.body:
                if isinstance(line, Load | Store):
                    first.setdefault(line.buffer, isinstance(line, Store))
            first |= {line.buffer: False for line in step.body if isinstance(line, Store) and line.over}
            for name in (name for name, stored in first.items() if not stored and name not in written):
                raise CompileError("fusion", f"{step.name}: {name} is read before it is written", hint="report this program")
            made, used = set(step.writes), set(step.arguments)
        for name in sorted(used - present):
            raise CompileError("fusion", f"{step.name}: {name} has no memory", hint="report this program")
        written |= made
        present -= {allocation.reuses for allocation in allocations if allocation.reuses} | set(frees)
    check_results(graph, "fusion", written & present)
