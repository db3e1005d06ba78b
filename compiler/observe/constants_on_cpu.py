"""Inductor computes with the values of constants while it compiles; where their GPU is absent, the CPU computes them in its stead."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from compiler.observe.absent_gpu import DEVICE

RELIES_ON = (
    "torch._inductor.constant_folding.ConstantFolder.run",
    "torch._inductor.fx_passes.joint_graph.UniformValueConstantFolder",
    "torch._subclasses.fake_tensor.FakeTensor",
    "torch.Tensor._make_subclass",
    "torch.utils._python_dispatch.TorchDispatchMode",
)


class OnTarget(torch.Tensor):  # type: ignore[misc]
    """A constant whose values are on the CPU and whose device is the target's."""

    value: torch.Tensor

    @staticmethod
    def of(value: torch.Tensor) -> OnTarget:
        made: OnTarget = torch.Tensor._make_subclass(OnTarget, value, False, dispatch_device=True)  # type: ignore[assignment, attr-defined]
        made.value = value
        return made

    def tolist(self) -> Any:  # noqa: ANN401  # numbers, nested as the axes are
        return self.value.tolist()

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
        if func is torch.ops.prim.device.default:
            return DEVICE
        return func(*tree_map(plain, args), **tree_map(plain, kwargs or {}))


def plain(value: Any) -> Any:  # noqa: ANN401  # an argument of an operator
    """The same on the CPU."""
    if isinstance(value, OnTarget):
        return value.value
    return torch.device("cpu") if isinstance(value, torch.device) and value.type == "cuda" else value


class OnCpu(TorchDispatchMode):  # type: ignore[misc]
    """Operators that name the target's device run on the CPU."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
        return func(*tree_map(plain, args), **tree_map(plain, kwargs or {}))


@contextmanager
def computed_on_cpu() -> Iterator[None]:
    """Constant folding runs its operators on the CPU."""
    from torch._inductor.constant_folding import ConstantFolder
    from torch._inductor.fx_passes.joint_graph import UniformValueConstantFolder

    with ExitStack() as stack:
        for owner, name in ((ConstantFolder, "run"), (UniformValueConstantFolder, "__init__")):
            stack.enter_context(patch.object(owner, name, _inside(getattr(owner, name))))
        yield


def _inside(function: Any) -> Any:  # noqa: ANN401  # a method of torch's
    def run(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        with OnCpu():
            return function(*args, **kwargs)

    return run
