"""Which ATen ops AOTAutograd takes apart: PyTorch's core decompositions and a few more, without the ops that lowering wants whole."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.fx.traceback import get_current_meta
from torch.utils._pytree import tree_map_only

from compiler.blame import remember_stack
from compiler.capture.foreach import foreach_decompositions
from compiler.capture.rewrites import in_layout_of, rewrites
from compiler.lowering import WHOLE
from compiler.observe.torch_names import decomposition_table
from compiler.ops import ATEN

FURTHER = (
    "_softmax", "_log_softmax", "native_layer_norm", "native_group_norm", "native_batch_norm", "batch_norm_backward",
    "_native_batch_norm_legit",
    "_native_batch_norm_legit_functional", "_native_batch_norm_legit_no_training", "_batch_norm_with_update",
    "_batch_norm_with_update_functional", "_batch_norm_no_update", "elu", "hardtanh", "leaky_relu", "gelu",
    "linalg_vector_norm", "dist", "addmv",
    "lcm", "lift", "tril_indices", "triu_indices", "adaptive_max_pool2d", "_adaptive_avg_pool2d", "nll_loss2d_backward",
    "rrelu_with_noise_backward", "upsample_bilinear2d", "upsample_nearest2d", "bitwise_and_", "bitwise_or_", "sin_", "sqrt_", "clamp_min_",
    "hann_window", "native_dropout", "unbind_copy", "permute_copy", "narrow_copy", "conj_physical", "index_select",
    "logit_backward",
)  # fmt: skip
"""Packets beyond the core set whose decompositions are made of elementwise ops, reductions and views."""

KEPT = frozenset({
    "aten.max_pool2d_with_indices.default", "aten.sort.default", "aten.topk.default",
    "aten._scaled_dot_product_flash_attention_for_cpu.default",
    "aten._scaled_dot_product_flash_attention_for_cpu_backward.default", "aten._scaled_dot_product_flash_attention.default",
    "aten._scaled_dot_product_efficient_attention.default", "aten.convolution_backward.default",
})  # fmt: skip
"""Overloads that a library answers better than a chain of small ops would."""


def conjugate(x: Tensor | complex) -> Tensor:
    """Autograd keeps numbers of Python's as such; to eager they are complex128."""
    result: Tensor = torch.ops.aten.conj_physical(x) if isinstance(x, Tensor) else torch.full((), x.conjugate(), dtype=torch.complex128)
    return result


def in_layout_of_input(rule: Callable[..., Any]) -> Callable[..., Any]:
    """The decomposition of a pooling, in channels_last where its input is, as eager gives it."""

    @functools.wraps(rule)
    def pool(self: Tensor, *arguments: Any, **keywords: Any) -> Any:  # noqa: ANN401  # as the op
        return tree_map_only(Tensor, lambda result: in_layout_of(self, result), rule(self, *arguments, **keywords))

    return pool


POOLS = ("_adaptive_avg_pool2d", "adaptive_max_pool2d")

VIEWS_OF_COMPLEX: dict[Any, Callable[..., Any]] = {
    torch.ops.aten._conj.default: conjugate,
    torch.ops.aten._neg_view.default: torch.ops.aten.neg.default,
}
"""Computed: a view that only notes a conjugate or a minus would be the same strided memory as what it is one of."""


@functools.cache
def decompositions() -> dict[Any, Callable[..., Any]]:
    """The table, by overload."""
    whole = WHOLE | KEPT | ATEN.keys()
    table = {**decomposition_table(FURTHER), **foreach_decompositions()}
    chosen = {op: rule for op, rule in table.items() if str(op) not in whole} | rewrites() | VIEWS_OF_COMPLEX
    chosen |= {op: in_layout_of_input(chosen[op]) for name in POOLS for op in (getattr(torch.ops.aten, name).default,)}
    return {op: placed(rule) for op, rule in chosen.items()}


def placed(rule: Callable[..., Any]) -> Callable[..., Any]:
    """The decomposition; what it raises knows the visitor's stack, which the tracer forgets. A gradient's is that of the forward op."""

    @functools.wraps(rule)
    def decompose(*arguments: Any, **keywords: Any) -> Any:  # noqa: ANN401  # as the op
        try:
            return rule(*arguments, **keywords)
        except Exception as error:
            remember_stack(error, str(get_current_meta().get("stack_trace") or ""))
            raise

    return decompose
