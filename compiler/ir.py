"""The loop IR: what lowering makes of an ATen graph, what the scheduler fuses, and what the generators print.

A ``Graph`` is a list of steps over named buffers. A step is a loop ``Nest`` (one ATen op) or an ``Extern`` call. Scheduling turns nests
into ``Kernel``s, whose flat body is the fused nests put together. All of it is frozen, flat and printable (``ir_text``); addresses are
affine in the loops.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from typing import Literal

from compiler.sizes import Binding, Size, Sym
from compiler.trace import Origin

DType = Literal["float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool"]
DTYPES: tuple[DType, ...] = ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool")
ITEM_BYTES: dict[str, int] = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1, "bool": 1,
    "complex64": 8, "complex128": 16, "complex32": 4, "float8_e4m3fn": 1, "float8_e5m2": 1, "uint16": 2, "uint32": 4, "uint64": 8,
    "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1, "float8_e8m0fnu": 1, "float4_e2m1fn_x2": 1,
}  # fmt: skip
Number = int | float | bool
OpenNumber = Number | Sym
"""A number, or one that is only known when the program runs: a size."""
Over = Literal["", "set", "add", "mul", "max", "min"]
Value = int  # the position of an earlier line in the same body


def item_bytes(dtype: str) -> int:
    """Bytes of one element; for dtypes that no nest computes with and that are unknown here, of the largest plain one."""
    return ITEM_BYTES.get(dtype, 8)


@dataclass(frozen=True, slots=True)
class Buffer:
    """Named memory. ``shape`` and ``strides`` (in elements) are those that eager PyTorch gives the tensor; ``device`` is "cpu" or "cuda".

    ``dtype`` is a torch dtype name; it may be one that nests cannot compute with (complex, float8), which only extern calls touch. So
    may ``layout``, as PyTorch names it: the memory of what is not "strided" is the library's affair, and its strides say nothing.
    """

    name: str
    dtype: str
    shape: tuple[Size, ...]
    strides: tuple[Size, ...]
    device: str
    layout: str = "strided"

    @property
    def numel(self) -> Size:
        return prod(self.shape)

    @property
    def extent(self) -> Size:
        """Elements from the first to the last one touched, both included."""
        return 0 if self.numel == 0 else 1 + sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))

    @property
    def bytes(self) -> Size:
        return self.extent * item_bytes(self.dtype)


@dataclass(frozen=True, slots=True)
class Load:
    """``buffer[offset + sum(strides[k] * loop[k]) + sum(stride * value for indirect)]``, or ``other`` where ``mask`` is false.

    ``strides`` has one entry for each loop, parallel loops first, then reduction loops. An address is only formed where ``mask`` is true.
    """

    buffer: str
    offset: Size
    strides: tuple[Size, ...]
    dtype: DType
    indirect: tuple[tuple[Value, Size], ...] = ()
    mask: Value | None = None
    other: Number = 0
    origin: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Constant:
    value: OpenNumber
    dtype: DType
    origin: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Position:
    """The integer ``offset + sum(strides[k] * loop[k])`` as an int64 value."""

    offset: Size
    strides: tuple[Size, ...]
    dtype: DType = "int64"
    origin: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Apply:
    """An elementwise op of the table in ``ops.py``, computed in ``dtype``'s precision on arguments that already have the dtypes it wants.

    ``cast`` converts its one argument to ``dtype`` as ``Tensor.to`` does.
    """

    op: str
    args: tuple[Value, ...]
    dtype: DType
    origin: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Reduce:
    """A reduction of ``arg`` over all reduction loops; its value exists once they have ended.

    ``argmax`` and ``argmin`` give the int64 position in the flattened reduction space (the first among equals; NaN wins, as in eager).
    """

    op: Literal["sum", "prod", "max", "min", "any", "all", "argmax", "argmin"]
    arg: Value
    dtype: DType
    origin: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Scan:
    """A running reduction of ``arg`` along the reduction loops in their order: its value so far, this point included, at every point.

    ``lastmax`` and ``lastmin`` give the int64 position of the extremum so far, the last among equals; NaN stays, as in eager's cummax.
    """

    op: Literal["sum", "prod", "logaddexp", "max", "min", "lastmax", "lastmin"]
    arg: Value
    dtype: DType
    origin: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Store:
    """Write ``value``, whose dtype is the buffer's, at the address, which is formed as a ``Load``'s; ``dtype`` repeats the buffer's.

    ``over`` says what stands there: nothing yet (""), or what an earlier step wrote, which is replaced ("set"), added to, multiplied, or
    kept where it is larger or smaller. Only then may several iterations write to one element: the last one in the order of the loops
    stays, or all are joined.
    """

    buffer: str
    offset: Size
    strides: tuple[Size, ...]
    value: Value
    dtype: DType
    origin: int = field(default=0, compare=False)
    indirect: tuple[tuple[Value, Size], ...] = ()
    over: Over = ""


Line = Load | Constant | Position | Apply | Reduce | Scan | Store


def operands(line: Line) -> tuple[Value, ...]:
    """The earlier values that a line reads."""
    match line:
        case Load():
            return (*(value for value, _ in line.indirect), *(() if line.mask is None else (line.mask,)))
        case Apply():
            return line.args
        case Reduce() | Scan():
            return (line.arg,)
        case Store():
            return (line.value, *(value for value, _ in line.indirect))
        case Constant() | Position():
            return ()


@dataclass(frozen=True, slots=True)
class Nest:
    """One ATen op as a loop nest: parallel loops of sizes ``loops``, then reduction loops of sizes ``reduction``, around a flat SSA body.

    The loops are called i0, i1, ... and r0, r1, ... The last loop is the fastest. A nest stores to exactly one buffer. In a nest with
    reduction
    loops the lines up to its ``Reduce`` run in every iteration; the lines after it run once for each point of the parallel loops.
    With a ``Scan`` in place of the ``Reduce`` all lines run in every iteration.
    """

    name: str
    op: str
    loops: tuple[Size, ...]
    reduction: tuple[Size, ...]
    body: tuple[Line, ...]
    origin: int

    @property
    def numel(self) -> Size:
        return prod(self.loops)

    @property
    def rnumel(self) -> Size:
        return prod(self.reduction)

    @property
    def is_reduction(self) -> bool:
        return any(isinstance(line, Reduce) for line in self.body)

    @property
    def is_scan(self) -> bool:
        return any(isinstance(line, Scan) for line in self.body)

    @property
    def writes_in_order(self) -> bool:
        """Whether several iterations may write to one element, whose last value counts."""
        return self.store.over == "set" and bool(self.store.indirect)

    @property
    def store(self) -> Store:
        return next(line for line in self.body if isinstance(line, Store))

    def loads(self) -> Iterator[Load]:
        return (line for line in self.body if isinstance(line, Load))


@dataclass(frozen=True, slots=True)
class Ref:
    """A strided view of a buffer, as an argument of an extern call or as a result of the graph; ``offset`` counts from the buffer's first
    element. Where ``dtype`` is not empty the memory is seen as elements of that one, which strides and offset count.
    """

    buffer: str
    shape: tuple[Size, ...]
    strides: tuple[Size, ...]
    offset: Size = 0
    dtype: str = ""


@dataclass(frozen=True, slots=True)
class Symbol:
    """A Python expression that stands for itself in the wrapper: ``torch.float32``, or the name of a graph constant."""

    text: str


Argument = Ref | Symbol | Sym | int | float | bool | str | None | tuple["Argument", ...]


@dataclass(frozen=True, slots=True)
class Extern:
    """A call of a library: ``call(*args, **kwargs)``. ``outputs`` names the buffers that its results become, None for a result nobody
    reads.

    ``single``: the call returns one tensor, not a sequence. ``reason`` is the sentence that says why it is no loop nest.
    """

    name: str
    op: str
    call: str
    args: tuple[Argument, ...]
    kwargs: tuple[tuple[str, Argument], ...]
    outputs: tuple[str | None, ...]
    single: bool
    library: str
    rule: str
    reason: str
    origin: int

    def refs(self) -> Iterator[Ref]:
        """The buffers that the call reads."""

        def walk(argument: Argument) -> Iterator[Ref]:
            if isinstance(argument, Ref):
                yield argument
            elif isinstance(argument, tuple):
                for item in argument:
                    yield from walk(item)

        yield from walk(self.args)
        for _, value in self.kwargs:
            yield from walk(value)


Step = Nest | Extern


@dataclass(frozen=True, slots=True)
class Graph:
    """One part (forward or backward) of a region after lowering.

    ``inputs`` names the buffers passed by the caller in order (None: an argument that is no tensor); ``constants`` names tensors that
    the graph
    holds. ``outputs`` has a Ref, a number or None for each result. ``origins`` is what the ``origin`` fields of steps and lines point into.
    """

    buffers: dict[str, Buffer]
    inputs: tuple[str | None, ...]
    constants: tuple[str, ...]
    steps: tuple[Step, ...]
    outputs: tuple[Ref | Symbol | OpenNumber | None, ...]
    origins: tuple[Origin, ...]
    symbols: tuple[Binding, ...] = ()


@dataclass(frozen=True, slots=True)
class Phase:
    """Lines ``start`` to ``stop`` (excluded) of a kernel's body; ``reduced``: they run once for every point of the reduction loops."""

    start: int
    stop: int
    reduced: bool


@dataclass(frozen=True, slots=True)
class Tiling:
    """How a kernel is cut up on a GPU: elements of the parallel space and of the reduction space in one block, warps, pipeline stages."""

    block: int
    reduction_block: int
    warps: int
    stages: int = 1


@dataclass(frozen=True, slots=True)
class Kernel:
    """Fused nests on one iteration space: parallel loops ``loops``, reduction loops ``reduction`` (empty without a reduction).

    ``body`` is one flat SSA body for all phases. The result of a ``Reduce`` may be used from the end of its phase on. A value of a
    reduced phase
    may be used in a later reduced phase only if the kernel is ``persistent``: a GPU block then holds a whole row in registers, and C++
    keeps
    such values in a row of scratch memory; otherwise the body computes the value again in the later phase. A value of a phase that is not
    reduced may be used anywhere after it.
    ``arguments`` are the buffers it touches, in order; ``writes`` those among them that it stores to. ``steps`` names its nests.
    """

    name: str
    steps: tuple[str, ...]
    loops: tuple[Size, ...]
    reduction: tuple[Size, ...]
    persistent: bool
    phases: tuple[Phase, ...]
    body: tuple[Line, ...]
    arguments: tuple[str, ...]
    writes: tuple[str, ...]
    tiling: Tiling
    bytes: int
    origin: int

    @property
    def numel(self) -> Size:
        return prod(self.loops)

    @property
    def rnumel(self) -> Size:
        return prod(self.reduction)


@dataclass(frozen=True, slots=True)
class Allocation:
    """Memory for one buffer before a step runs: new, or the memory of ``reuses``, a buffer of equal size that is read for the last time
    before.
    """

    buffer: str
    reuses: str | None = None


@dataclass(frozen=True, slots=True)
class Program:
    """A scheduled graph: kernels and extern calls in the order in which they run.

    ``allocations[i]`` and ``frees[i]`` belong to step i: buffers that get memory before it, and buffers whose memory is dropped after it.
    """

    graph: Graph
    steps: tuple[Kernel | Extern, ...]
    allocations: tuple[tuple[Allocation, ...], ...]
    frees: tuple[tuple[str, ...], ...]
    peak_bytes: int

    @property
    def touched(self) -> frozenset[str]:
        """The buffers that kernels read or write: their shapes must be those of the graph, or memory would be overrun."""
        return frozenset(name for step in self.steps if isinstance(step, Kernel) for name in step.arguments)
