"""A model compiled and eager, both in float32, against eager in float64: its results, loss, gradients, updated parameters and buffers."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from tests.compiler.models.model import Model

TIMES = 5
"""By how much an error may exceed eager's, in the root mean square."""
SLACK, SLACK_OF_ALL = 1e-6, 1e-7
"""What an error may be beyond that: a part of the tensor's size, and of the largest tensor's of its kind."""
Compile = Callable[[Any], Any]


class InFloat64(TorchFunctionMode):
    """Models that ask for float32 by name get float64, so that the reference is one in all its parts."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        func = {Tensor.float: Tensor.double, torch._grouped_mm: products_of_groups}.get(func, func)
        args, kwargs = tree_map(lambda item: torch.float64 if item is torch.float32 else item, (args, kwargs or {}))
        return func(*args, **kwargs)


def products_of_groups(rows: Tensor, matrices: Tensor, *, offs: Tensor, bias: None = None, out_dtype: None = None) -> Tensor:
    """What ``grouped_mm`` computes, which has no float64: each matrix times the rows up to its offset."""
    ends = offs.tolist()
    groups = [rows[start:end] @ matrix for start, end, matrix in zip([0, *ends], ends, matrices, strict=False)]
    return torch.cat([*groups, rows.new_zeros(len(rows) - ends[-1], matrices.shape[2])])


@dataclass(frozen=True, slots=True)
class Difference:
    """How far a value of the compiled model is from float64, and eager's is."""

    name: str
    ours: float
    eager: float
    allowed: float

    @property
    def right(self) -> bool:
        return self.ours <= self.allowed  # false for NaN as well


def outcome(model: Model, module: torch.nn.Module, inputs: dict[str, Any], wrap: Compile) -> dict[str, Tensor]:
    """What a call in evaluation and a step of training give, by name; the kind stands before the first slash."""
    found: dict[str, Tensor] = {}
    called = torch._dynamo.config.patch(allow_rnn=True)(wrap(module).__call__)
    module.eval()
    with torch.no_grad():
        results = called(**inputs)
    found |= {f"result/{place}": leaf.detach().clone() for place, leaf in enumerate(tensors(results))}
    module.train()
    optimizer = model.optimizer(module.parameters())
    loss = loss_of(called(**inputs))
    found["loss/0"] = loss.detach().clone()
    loss.backward()
    found |= {f"gradient/{name}": value.grad.detach().clone() for name, value in module.named_parameters() if value.grad is not None}
    (wrap(optimizer.step) if model.compiled_step else optimizer.step)()
    found |= {f"parameter/{name}": value.detach().clone() for name, value in module.named_parameters()}
    found |= {f"buffer/{name}": value.detach().clone() for name, value in module.named_buffers()}
    return found


def tensors(results: object) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(results) if isinstance(leaf, Tensor)]


def loss_of(results: Any) -> Tensor:  # whatever a model gives
    """The model's own loss, or the mean square of its results."""
    loss = getattr(results, "loss", None)
    if loss is None and isinstance(results, Tensor) and results.dim() == 0:
        loss = results
    return loss if loss is not None else torch.stack([leaf.square().mean() for leaf in tensors(results) if leaf.requires_grad]).sum()


def built(model: Model) -> tuple[torch.nn.Module, dict[str, Any]]:
    torch.manual_seed(0)
    return model.build()


def double(value: object) -> object:
    return value.double() if isinstance(value, Tensor) and value.is_floating_point() else value


def reference(model: Model) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Eager's outcome in float32 and in float64."""
    module, inputs = built(model)
    eager = outcome(model, copy.deepcopy(module), copy.deepcopy(inputs), lambda one: one)
    torch.set_default_dtype(torch.float64)
    try:
        with InFloat64():
            exact = outcome(model, copy.deepcopy(module).double(), tree_map(double, inputs), lambda one: one)
    finally:
        torch.set_default_dtype(torch.float32)
    return eager, exact


def compare(ours: dict[str, Tensor], eager: dict[str, Tensor], exact: dict[str, Tensor]) -> list[Difference]:
    """Each value's errors; a value that is missing, or of another shape or dtype, is infinitely far away."""
    largest: dict[str, float] = {}
    for name, value in exact.items():
        kind = name.partition("/")[0]
        largest[kind] = max(largest.get(kind, 0.0), size(value))
    found = []
    for name in dict.fromkeys((*eager, *ours)):
        if name not in ours or name not in eager or (ours[name].shape, ours[name].dtype) != (eager[name].shape, eager[name].dtype):
            found.append(Difference(name, float("inf"), 0.0, 0.0))
            continue
        if not same_infinities(ours[name], exact[name]):
            found.append(Difference(name, float("inf"), 0.0, 0.0))
            continue
        one, two = size(ours[name].double() - exact[name].double()), size(eager[name].double() - exact[name].double())
        allowed = TIMES * two + SLACK * size(exact[name]) + SLACK_OF_ALL * largest[name.partition("/")[0]]
        found.append(Difference(name, one, two, allowed))
    return found


def same_infinities(one: Tensor, two: Tensor) -> bool:
    """Whether both are finite, infinite or NaN at the same places."""
    one, two = (torch.where(value.isfinite(), 0, value) for value in (one.double(), two.double()))
    return torch.equal(one.nan_to_num(nan=1.0), two.nan_to_num(nan=1.0))


def size(value: Tensor) -> float:
    """The root mean square of what is finite; equal infinities have become NaN when subtracted, and do not count."""
    known = value.double()[value.double().isfinite()]
    return float(known.square().mean().sqrt()) if known.numel() else 0.0


def check(model: Model, wrap: Compile) -> list[Difference]:
    """The model compiled by ``wrap``, against eager."""
    eager, exact = reference(model)
    module, inputs = built(model)
    return compare(outcome(model, module, inputs, wrap), eager, exact)
