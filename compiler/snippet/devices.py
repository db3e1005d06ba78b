"""Scripts written for a GPU, on a machine without that GPU: the syntax tree is changed so that their tensors live on the CPU."""

from __future__ import annotations

import ast
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from compiler.target import Target

STAND_IN = "fuselab_cuda"
"""The name under which a script finds what answers for ``torch.cuda``."""

_DEVICE = re.compile(r"cuda(:\d+)?")


class _ToCpu(ast.NodeTransformer):
    """``"cuda"`` becomes ``"cpu"``, ``x.cuda()`` becomes ``x.to("cpu")``, ``torch.cuda`` the stand-in; places in the source are kept."""

    def __init__(self) -> None:
        self.changed = False

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, str) and _DEVICE.fullmatch(node.value):
            self.changed = True
            return ast.copy_location(ast.Constant("cpu"), node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "cuda":
            self.changed = True
            node.func.attr = "to"
            node.args, node.keywords = [ast.copy_location(ast.Constant("cpu"), node)], []
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if node.attr == "cuda" and isinstance(node.value, ast.Name) and node.value.id == "torch" and isinstance(node.ctx, ast.Load):
            self.changed = True
            return ast.copy_location(ast.Name(STAND_IN, ast.Load()), node)
        return self.generic_visit(node)


def to_cpu(tree: ast.Module) -> bool:
    """Changes the tree in place; whether anything in it spoke of a GPU."""
    transformer = _ToCpu()
    transformer.visit(tree)
    return transformer.changed


class CpuEvent:
    """Answers for ``torch.cuda.Event``: the clock of the CPU."""

    def __init__(self, *_: object, **__: object) -> None:
        self.at = 0.0

    def record(self, *_: object) -> None:
        self.at = time.perf_counter()

    def synchronize(self) -> None:
        """Everything on a CPU is done when the call returns."""

    wait = query = synchronize

    def elapsed_time(self, end: CpuEvent) -> float:
        return (end.at - self.at) * 1e3


class CpuStream:
    """Answers for ``torch.cuda.Stream``."""

    def __init__(self, *_: object, **__: object) -> None: ...

    def synchronize(self) -> None: ...

    def wait_stream(self, _: object) -> None: ...

    def record_event(self, event: CpuEvent | None = None) -> CpuEvent:
        event = event or CpuEvent()
        event.record()
        return event


@contextmanager
def _nothing(*_: object, **__: object) -> Iterator[None]:
    yield


class Cuda:
    """Answers for ``torch.cuda`` in a script: one device, the chosen target. What it does not know, it takes from the real module."""

    Event, Stream = CpuEvent, CpuStream
    stream = device = staticmethod(_nothing)

    def __init__(self, target: Target) -> None:
        self.target = target

    def is_available(self) -> bool:
        return True

    def device_count(self) -> int:
        return 1

    def current_device(self) -> int:
        return 0

    def get_device_name(self, *_: object) -> str:
        return self.target.example

    def get_device_capability(self, *_: object) -> tuple[int, int]:
        return divmod(self.target.capability, 10)

    def is_bf16_supported(self, *_: object) -> bool:
        return True

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    def current_stream(self, *_: object) -> CpuStream:
        return CpuStream()

    def synchronize(self, *_: object) -> None: ...

    init = empty_cache = set_device = reset_peak_memory_stats = ipc_collect = synchronize

    def memory_allocated(self, *_: object) -> int:
        return 0

    max_memory_allocated = memory_reserved = max_memory_reserved = memory_allocated

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # whatever torch.cuda has
        return getattr(torch.cuda, name)


@contextmanager
def tensors_on(device: str) -> Iterator[None]:
    """Tensors that a script makes without naming a device are made there."""
    before: Callable[[], torch.device] = torch.get_default_device
    previous = before()
    torch.set_default_device(device)
    try:
        yield
    finally:
        torch.set_default_device(None if previous.type == "cpu" else previous)
