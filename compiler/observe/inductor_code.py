"""What Inductor wrote: the output code, which kernel launches stand for which scheduler nodes, and how buffers got their memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from torch.fx import GraphModule

from compiler.observe.inductor_loops import called_name, is_call, origin_names

RELIES_ON = (
    "torch._inductor.graph.GraphLowering.save_output_code",
    "torch._inductor.graph.GraphLowering.run",
    "torch._inductor.graph.GraphLowering.codegen",
    "torch._inductor.graph.GraphLowering.compile_to_module",
    "torch._inductor.codegen.cpp.CppScheduling.define_kernel",
    "torch._inductor.codegen.triton.TritonScheduling.define_kernel",
    "torch._inductor.scheduler.Scheduler.codegen_extern_call",
    "torch._inductor.codegen.wrapper.PythonWrapperCodegen.define_user_defined_triton_kernel",
    "torch._inductor.codegen.wrapper.PythonWrapperCodegen.run_wrapper_ir_passes",
)
PLANNED = ("AllocateLine", "ReuseLine", "FreeIfNotReusedLine", "FreeLine", "ReinterpretLine")


@dataclass(frozen=True, slots=True)
class Launch:
    """One call in the wrapper: a kernel with the scheduler nodes that it computes, or a call of a library. A script's own kernel is no
    ``extern``, since its text is in the code."""

    kernel: str
    nodes: tuple[str, ...]
    extern: bool = False
    origins: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MemoryStep:
    """What the wrapper does about the memory of a buffer: allocate, reuse the memory of ``source``, or free."""

    action: str
    buffer: str
    source: str = ""
    bytes: int | None = None
    layout: str = ""


@dataclass(slots=True)
class CodeLog:
    """``graph``: the FX graph as it was lowered. ``module``: the loaded output code, None where it was not loaded."""

    code: str = ""
    graph: GraphModule | None = None
    launches: list[Launch] = field(default_factory=list)
    memory: list[MemoryStep] = field(default_factory=list)
    module: Any = None
    lowering_seconds: float = 0.0
    codegen_seconds: float = 0.0


@contextmanager
def watching_code(log: CodeLog) -> Iterator[None]:
    """Tells ``log`` what is written inside."""
    from torch._inductor.codegen.cpp import CppScheduling
    from torch._inductor.codegen.triton import TritonScheduling
    from torch._inductor.codegen.wrapper import PythonWrapperCodegen
    from torch._inductor.graph import GraphLowering
    from torch._inductor.scheduler import Scheduler

    def written(code: str) -> None:
        log.code = code

    extern, planned = Scheduler.codegen_extern_call, PythonWrapperCodegen.run_wrapper_ir_passes

    timed_run = _timed(GraphLowering.run, log, "lowering_seconds")

    def lower(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        if log.graph is None and isinstance(self.module, GraphModule):  # subgraphs are lowered inside
            log.graph = self.module
        return timed_run(self, *args, **kwargs)

    loaded = GraphLowering.compile_to_module

    def load(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        log.module = loaded(self, *args, **kwargs)
        return log.module

    own, defined = PythonWrapperCodegen.define_user_defined_triton_kernel, []

    def define(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        result = own(self, *args, **kwargs)
        defined.append(str(result[0]))
        return result

    def called(self: Any, node: Any) -> Any:  # noqa: ANN401  # a scheduler node
        before = len(defined)
        result = extern(self, node)
        if not is_call(node.node):
            return result
        (name, library) = (defined[-1], False) if len(defined) > before else (called_name(node.node), True)
        log.launches.append(Launch(name, (node.get_name(),), extern=library, origins=origin_names(node.node, alone=True)))
        return result

    def plan(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        result = planned(self, *args, **kwargs)
        log.memory += [step for line in self.lines if (step := memory_step(line)) is not None]
        return result

    with ExitStack() as stack:
        for owner, name, value in (
            (GraphLowering, "save_output_code", staticmethod(written)),
            (GraphLowering, "run", lower),
            (GraphLowering, "compile_to_module", load),
            (GraphLowering, "codegen", _timed(GraphLowering.codegen, log, "codegen_seconds")),
            (CppScheduling, "define_kernel", _defined(CppScheduling.define_kernel, log)),
            (TritonScheduling, "define_kernel", _defined(TritonScheduling.define_kernel, log)),
            (Scheduler, "codegen_extern_call", called),
            (PythonWrapperCodegen, "define_user_defined_triton_kernel", define),
            (PythonWrapperCodegen, "run_wrapper_ir_passes", plan),
        ):
            stack.enter_context(patch.object(owner, name, value))
        yield


def _timed(function: Callable[..., Any], log: CodeLog, name: str) -> Callable[..., Any]:
    def timed(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        start = time.perf_counter()
        try:
            return function(self, *args, **kwargs)
        finally:
            setattr(log, name, getattr(log, name) + time.perf_counter() - start)

    return timed


def _defined(function: Callable[..., Any], log: CodeLog) -> Callable[..., Any]:
    def define_kernel(self: Any, code: str, nodes: Sequence[Any], *args: Any, **kwargs: Any) -> str:  # noqa: ANN401
        name: str = function(self, code, nodes, *args, **kwargs)
        members = [inner for node in nodes if hasattr(node, "get_nodes") for inner in node.get_nodes()]
        log.launches.append(Launch(name, tuple(dict.fromkeys(node.get_name() for node in members))))
        return name

    return define_kernel


def memory_step(line: Any) -> MemoryStep | None:  # noqa: ANN401  # a line of the wrapper's
    """What a line does about memory, None for other lines."""
    kind = type(line).__name__
    if kind not in PLANNED:
        return None
    name = line.node.get_name()
    match kind:
        case "AllocateLine":
            return MemoryStep("allocate", name, "", *_size(line.node))
        case "ReuseLine":
            return MemoryStep("reuse", line.reused_as.get_name(), name, *_size(line.reused_as))
        case "ReinterpretLine":
            return MemoryStep("view", line.reused_as.get_name(), name, *_size(line.reused_as))
        case "FreeIfNotReusedLine" if line.is_reused:
            return None
    return MemoryStep("free", name, "", *_size(line.node))


def _size(buffer: Any) -> tuple[int | None, str]:  # noqa: ANN401  # an ir.Buffer
    """Bytes, None where they are not known before the program runs, and the layout in words."""
    try:
        dtype, sizes, strides = buffer.get_dtype(), buffer.get_size(), buffer.get_stride()
    except (AttributeError, NotImplementedError, AssertionError):  # not a tensor
        return None, ""
    shown = f"{str(dtype).removeprefix('torch.')}[{', '.join(map(str, sizes))}] ({', '.join(map(str, strides))})"
    try:
        extent = 1 + sum((int(size) - 1) * int(stride) for size, stride in zip(sizes, strides, strict=True))
        return (extent if all(int(size) for size in sizes) else 0) * dtype.itemsize, shown
    except TypeError:  # a size that is open
        return None, shown
