"""The reference interpreter: runs nests, kernels and programs on CPU tensors, one line at a time over the whole iteration space at once.

Obviously right rather than fast: it is what passes and generators are held against. Torch tensors are the arrays, since NumPy has no
bfloat16. A value is a tensor with one axis per loop (of size one where it does not depend on that loop).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from compiler.errors import CompileError
from compiler.ir import (
    Apply,
    Argument,
    Buffer,
    Constant,
    Extern,
    Graph,
    Kernel,
    Line,
    Load,
    Nest,
    Number,
    OpenNumber,
    Position,
    Program,
    Reduce,
    Ref,
    Scan,
    Store,
    Symbol,
)
from compiler.ops import OPS, REDUCTIONS, SCANS
from compiler.sizes import Size, bound, known

JOINED = {"mul": "prod", "max": "amax", "min": "amin"}
"""What ``Tensor.scatter_reduce_`` calls the ways of ``Store.over``."""
Memory = dict[str, Tensor]  # flat storage of each buffer


def torch_dtype(name: str) -> torch.dtype:
    dtype = getattr(torch, name)
    assert isinstance(dtype, torch.dtype)
    return dtype


def flat(tensor: Tensor, buffer: Buffer) -> Tensor:
    """The tensor's elements in the buffer's flat layout; what is not strided stays as it is."""
    if tensor.layout != torch.strided:
        return tensor.clone()
    memory = torch.zeros(buffer.extent, dtype=torch_dtype(buffer.dtype))
    memory.as_strided(buffer.shape, buffer.strides).copy_(tensor)
    return memory


def view(memory: Memory, ref: Ref) -> Tensor:
    held = memory[ref.buffer]
    if ref.dtype:
        return torch.empty(0, dtype=torch_dtype(ref.dtype)).set_(
            held.untyped_storage(), int(ref.offset), known(ref.shape), known(ref.strides)
        )
    return held if held.layout != torch.strided else held.as_strided(ref.shape, ref.strides, ref.offset)


@dataclass(slots=True)
class Access:
    """Which point of the iteration space touched each element of a buffer last, and in which phase (-1: none; SHARED: several rows)."""

    point: Tensor
    phase: Tensor


@dataclass(slots=True)
class Space:
    """One run over an iteration space: values of the lines so far, and for kernels what each iteration wrote and read."""

    loops: tuple[int, ...]
    reduction: tuple[int, ...]
    memory: Memory
    watched: frozenset[str] = frozenset()
    values: list[Tensor] = field(default_factory=list)
    written: dict[int, Access] = field(default_factory=dict)
    read: dict[int, Access] = field(default_factory=dict)

    @property
    def sizes(self) -> tuple[int, ...]:
        return (*self.loops, *self.reduction)

    def full(self, value: OpenNumber, dtype: str) -> Tensor:
        """A number with one axis per loop; it wraps like ``Tensor.to`` where the dtype cannot hold it."""
        return torch.tensor(value).to(torch_dtype(dtype)).reshape((1,) * len(self.sizes))

    def affine(self, offset: Size, strides: Sequence[Size]) -> Tensor:
        """``offset + sum(strides * loops)``."""
        result = self.full(offset, "int64")
        for axis, (size, stride) in enumerate(zip(self.sizes, known(strides), strict=True)):
            if stride:
                along = torch.arange(size).reshape([size if k == axis else 1 for k in range(len(self.sizes))])
                result = result + stride * along
        return result

    def run(self, line: Line, phase: int = 0) -> None:
        match line:
            case Load():
                self.values.append(self.load(line, phase))
            case Constant():
                self.values.append(self.full(line.value, line.dtype))
            case Position():
                self.values.append(self.affine(line.offset, line.strides))
            case Apply():
                self.values.append(self.apply(line))
            case Reduce():
                self.values.append(self.reduce(line))
            case Scan():
                self.values.append(self.scan(line))
            case Store():
                self.store(line, phase)
                self.values.append(torch.empty(0))  # a store has a position in the body, but no value

    def apply(self, line: Apply) -> Tensor:
        arguments = [self.values[arg] for arg in line.args]
        if line.op == "cast":
            return arguments[0].to(torch_dtype(line.dtype))
        result = OPS[line.op].reference(*torch.broadcast_tensors(*arguments))
        if result.dtype != torch_dtype(line.dtype):
            raise CompileError("loops", f"{line.op} gave {result.dtype} where the line says {line.dtype}")
        return result

    def reduce(self, line: Reduce) -> Tensor:
        outer = len(self.loops)
        row = REDUCTIONS[line.op]
        value = self.values[line.arg].expand(self.sizes).reshape(*self.loops, prod_of(self.reduction))
        if value.shape[-1] == 0:
            result = torch.full(self.loops, row.identity(line.dtype)).to(torch_dtype(line.dtype))
        else:
            result = row.reference(value, outer).to(torch_dtype(line.dtype))
        return result.reshape(*self.loops, *(1 for _ in self.reduction))

    def scan(self, line: Scan) -> Tensor:
        value = self.values[line.arg].expand(self.sizes).reshape(*self.loops, prod_of(self.reduction))
        return SCANS[line.op].reference(value, len(self.loops)).to(torch_dtype(line.dtype)).reshape(self.sizes)

    def load(self, line: Load, phase: int) -> Tensor:
        address = self.affine(line.offset, line.strides)
        for value, stride in line.indirect:
            address = address + stride * self.values[value]
        memory = self.memory[line.buffer]
        if line.mask is None:
            check_inside(address, line.buffer, memory)
            self.note_read(line.buffer, address, None, phase)
            return memory[address.reshape(-1)].reshape(address.shape)  # copied, where an index without axes would view
        mask, address = torch.broadcast_tensors(self.values[line.mask], address)
        result = torch.full(mask.shape, line.other).to(memory.dtype)
        check_inside(address[mask], line.buffer, memory)
        self.note_read(line.buffer, address, mask, phase)
        result[mask] = memory[address[mask]]
        return result

    def store(self, line: Store, phase: int) -> None:
        reduced = bool(self.reduction) and any(line.strides[len(self.loops) :])
        sizes = self.sizes if reduced else (*self.loops, *(1 for _ in self.reduction))
        address, value = self.affine(line.offset, line.strides), self.values[line.value]
        for index, stride in line.indirect:
            address = address + stride * self.values[index]
        address = address.expand(sizes)
        memory = self.memory[line.buffer]
        check_inside(address, line.buffer, memory)
        value = value.expand(sizes)
        if value.dtype != memory.dtype:
            raise CompileError("loops", f"{value.dtype} stored to {line.buffer}, which holds {memory.dtype}")
        if line.over:
            self.write_over(line, memory, address.reshape(-1), value.reshape(-1))
            return
        self.note_write(line.buffer, address, phase)
        memory[address] = value

    def write_over(self, line: Store, memory: Tensor, address: Tensor, value: Tensor) -> None:
        """One iteration after the other: several may write to one element, which nothing else in the kernel touches."""
        if line.over == "add":
            memory.index_put_((address,), value, accumulate=True)
            return
        if line.over in JOINED:
            memory.scatter_reduce_(0, address, value, JOINED[line.over])
            return
        last = torch.full(memory.shape, -1).scatter_reduce_(0, address, torch.arange(len(address)), "amax")
        memory[last >= 0] = value[last[last >= 0]]

    # -- races between iterations of a fused kernel

    def points(self, sizes: Sequence[int]) -> Tensor:
        """The number of each iteration; those of one row (a point of the parallel loops) are equal when divided by the reduction's size."""
        strides = [max(prod_of(self.sizes[axis + 1 :]), 1) for axis in range(len(self.sizes))]
        if tuple(sizes) != self.sizes:  # a store of each row, of which the reduction may have no points
            strides[len(self.loops) :] = [0] * len(self.reduction)
        return self.affine(0, strides).expand(sizes)

    def foreign(self, access: Access, address: Tensor, points: Tensor, phase: int) -> Tensor:
        """Whether each address was touched by another row, or in this phase by another iteration at all."""
        who, when = access.point[address], access.phase[address]
        rows = max(prod_of(self.reduction), 1)
        return (who >= 0) & ((who // rows != points // rows) | ((when == phase) & (who != points)))

    def note_read(self, buffer: str, address: Tensor, mask: Tensor | None, phase: int) -> None:
        if self.memory[buffer].data_ptr() not in {self.memory[name].data_ptr() for name in self.watched}:
            return
        points, address = self.points(self.sizes), address.expand(self.sizes)
        if mask is not None:
            chosen = mask.expand(self.sizes)
            points, address = points[chosen], address[chosen]
        if bool(self.foreign(self.access(self.written, buffer), address, points, phase).any()):
            raise CompileError("fusion", f"an iteration reads an element of {buffer} that another one has written")
        read = self.access(self.read, buffer)
        shared = self.foreign(read, address, points, -1)
        read.point[address] = points
        read.phase[address] = phase
        read.point[address[shared | self.foreign(read, address, points, -1)]] = SHARED

    def note_write(self, buffer: str, address: Tensor, phase: int) -> None:
        if buffer not in self.watched:
            return
        points = self.points(address.shape)
        written = self.access(self.written, buffer)
        for touched, verb in ((self.access(self.read, buffer), "read"), (written, "written")):
            if bool(self.foreign(touched, address, points, phase).any()):
                raise CompileError("fusion", f"an iteration writes an element of {buffer} that another one has {verb}")
        written.point[address] = points
        written.phase[address] = phase
        if bool(self.foreign(written, address, points, phase).any()):
            raise CompileError("fusion", f"two iterations write the same element of {buffer}")

    def access(self, table: dict[int, Access], buffer: str) -> Access:
        """Buffers that share memory share their record."""
        memory = self.memory[buffer]
        return table.setdefault(memory.data_ptr(), Access(torch.full(memory.shape, -1), torch.full(memory.shape, -1)))


SHARED = 1 << 62


def prod_of(sizes: Sequence[int]) -> int:
    result = 1
    for size in sizes:
        result *= size
    return result


def check_inside(address: Tensor, buffer: str, memory: Tensor) -> None:
    if address.numel() and not (int(address.min()) >= 0 and int(address.max()) < memory.numel()):
        raise CompileError("loops", f"addresses {int(address.min())} to {int(address.max())} in {buffer} of {memory.numel()} elements")


def interpret_nest(nest: Nest, memory: Memory) -> None:
    """Run one nest; it changes the storage of the buffer that it stores to."""
    space = Space(known(nest.loops), known(nest.reduction), memory)
    for line in nest.body:
        space.run(line)


def interpret_kernel(kernel: Kernel, memory: Memory) -> None:
    """Run a fused kernel phase by phase.

    Raises CompileError where an iteration touches an element that another one writes: what comes out would depend on their order.
    """
    space = Space(known(kernel.loops), known(kernel.reduction), memory, frozenset(kernel.writes))
    for number, phase in enumerate(kernel.phases):
        for position in range(phase.start, phase.stop):
            space.run(kernel.body[position], number)


def resolve(path: str) -> object:
    """What a dotted name such as ``torch.ops.aten.mm.default`` stands for."""
    found: object = torch
    for part in path.split(".")[1:]:
        found = getattr(found, part)
    return found


def interpret_extern(step: Extern, memory: Memory, buffers: Mapping[str, Buffer], constants: Mapping[str, object]) -> None:
    """Call PyTorch on strided views of the storage and copy the results into the layout that the graph declares."""

    def value(argument: Argument) -> object:
        match argument:
            case Ref():
                return view(memory, argument)
            case Symbol() if argument.text in constants:
                return constants[argument.text]
            case Symbol() if argument.text.startswith("torch.device("):
                return torch.device("cpu")  # whatever the target is
            case Symbol():
                return evaluated(argument, constants)  # written by lowering: a dtype, device, layout, slice or complex number
            case tuple():
                return [value(item) for item in argument]
            case _:
                return argument

    function = resolve(step.call)
    assert callable(function)
    results = function(*(value(item) for item in step.args), **{name: value(item) for name, item in step.kwargs})
    for name, result in zip(step.outputs, [results] if step.single else results or (), strict=True):
        if name is not None:
            memory[name] = flat(result, buffers[name])


Results = list[Tensor | OpenNumber | None]
Inputs = Sequence[Tensor | Number | None]


def filled(graph: Graph, inputs: Inputs, constants: Mapping[str, object]) -> Memory:
    """Storage of the inputs and constants, each a copy."""
    given = dict(zip(graph.inputs, inputs, strict=True)) | {name: constants[name] for name in graph.constants}
    return {name: flat(tensor, graph.buffers[name]) for name, tensor in given.items() if name is not None and isinstance(tensor, Tensor)}


def evaluated(symbol: Symbol, constants: Mapping[str, object]) -> object:
    """What lowering wrote as Python: a dtype, device, layout, slice, complex number, or arithmetic of open sizes."""
    return eval(symbol.text, {"torch": torch, "math": math}, dict(constants))


def present_sizes(graph: Graph, inputs: Inputs) -> dict[str, int]:
    """The values of the open sizes, from what the graph is given."""
    values: dict[str, int] = {}
    for binding in graph.symbols:
        given: Any = inputs[binding.place]
        values[binding.symbol] = binding.value(given if binding.axis is None else given.size(binding.axis))
    return values


def unwritten(buffer: Buffer) -> Tensor:
    """New memory, full of what no program should read."""
    dtype = torch_dtype(buffer.dtype)
    return torch.full((buffer.extent,), float("nan") if dtype.is_floating_point or dtype.is_complex else 77).to(dtype)


def interpret(graph: Graph, inputs: Inputs, constants: Mapping[str, object] | None = None) -> Results:
    """The results of the graph on these inputs, which stay as they are."""
    sizes = present_sizes(graph, inputs)
    graph, held = bound(graph, sizes), {**(constants or {}), **sizes}
    memory = {name: unwritten(buffer) for name, buffer in graph.buffers.items()} | filled(graph, inputs, held)
    for step in graph.steps:
        if isinstance(step, Nest):
            interpret_nest(step, memory)
        else:
            interpret_extern(step, memory, graph.buffers, held)
    return results(graph, memory, held)


def interpret_program(program: Program, inputs: Inputs, constants: Mapping[str, object] | None = None) -> Results:
    """The results of the scheduled graph, with memory allocated, reused and dropped as it says: whoever reads dropped memory fails."""
    sizes = present_sizes(program.graph, inputs)
    program, held = bound(program, sizes), {**(constants or {}), **sizes}
    graph = program.graph
    memory = filled(graph, inputs, held)
    for step, allocations, frees in zip(program.steps, program.allocations, program.frees, strict=True):
        for allocation in allocations:
            old = memory.get(allocation.reuses) if allocation.reuses else None
            memory[allocation.buffer] = unwritten(graph.buffers[allocation.buffer]) if old is None else old
        if isinstance(step, Kernel):
            interpret_kernel(step, memory)
        else:
            interpret_extern(step, memory, graph.buffers, held)
        for name in frees:
            del memory[name]
    return results(graph, memory, held)


def results(graph: Graph, memory: Memory, constants: Mapping[str, object]) -> Results:
    values: list[Any] = [evaluated(output, constants) if isinstance(output, Symbol) else output for output in graph.outputs]
    return [view(memory, value).clone() if isinstance(value, Ref) else value for value in values]
