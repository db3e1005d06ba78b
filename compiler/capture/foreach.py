"""Ops on lists of tensors, which optimisers use, taken apart into the op of each tensor."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from compiler.observe.torch_names import aten_overloads

_PREFIX = "_foreach_"
_OTHER_NAMES = {
    "max.default": "max.default",
    "maximum.Scalar": "clamp_min.default",
    "maximum.ScalarList": "clamp_min.default",
    "minimum.Scalar": "clamp_max.default",
    "minimum.ScalarList": "clamp_max.default",
    "norm.Scalar": "linalg_vector_norm.default",
}
"""Ops of one tensor that are not called as the op of the list is."""
_BY_HAND = {"addcdiv.Tensor", "addcmul.Tensor", "powsum.Scalar"}
"""Without an op of one tensor that means the same."""


def foreach_decompositions() -> dict[Any, Callable[..., Any]]:
    """A rule for each functional overload of ``aten._foreach_*`` that is an op of one tensor, applied to all."""
    rules: dict[Any, Callable[..., Any]] = {}
    for op in aten_overloads(_PREFIX):
        packet, _, overload = str(op).removeprefix(f"aten.{_PREFIX}").partition(".")
        single = _single(packet, overload)
        if single is not None and not packet.endswith("_") and not overload.endswith("out"):
            rules[op] = functools.partial(_each, op._schema, single)
    return rules


def _single(packet: str, overload: str) -> Callable[..., Any] | None:
    """The op of one tensor, such as ``aten.add`` for ``add`` and ``List``."""
    if f"{packet}.{overload}" in _BY_HAND:
        return None
    renamed, _, kind = _OTHER_NAMES.get(f"{packet}.{overload}", packet).partition(".")
    found = getattr(torch.ops.aten, renamed, None)
    single: Callable[..., Any] | None = getattr(found, kind) if kind else found
    return single


def _each(schema: Any, single: Callable[..., Any], *args: Any, **kwargs: Any) -> list[Any]:  # noqa: ANN401  # a torch.FunctionSchema
    """The op on each tensor: arguments that are lists give one value to each, the others their value to all."""
    named = dict(zip((argument.name for argument in schema.arguments), args, strict=False)) | kwargs
    if schema.name.startswith("aten::_foreach_addc") and "scalars" in named:
        named["value"] = named.pop("scalars")
    only_named = {argument.name for argument in schema.arguments if argument.kwarg_only} | {"dtype", "value"}
    results = []
    for at in range(len(next(value for value in named.values() if isinstance(value, list | tuple)))):
        chosen = {name: value[at] if isinstance(value, list | tuple) else value for name, value in named.items()}
        rest = {name: chosen.pop(name) for name in only_named & chosen.keys()}
        results.append(single(*chosen.values(), **rest))
    return results
