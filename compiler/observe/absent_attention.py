"""Which attention kernel and which layout of a convolution a GPU would choose: what PyTorch decides in C++ by asking the device, for one
that is not here."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch._C import DispatchKey

from compiler.target import REPORTED, Target

RELIES_ON = (
    "torch._C._ConvBackend.Cudnn",
    "torch._C._get_sdp_priority_order",
    "torch._ops.OpOverload.py_impl",
    "torch._prims_common.suggest_memory_format",
    "torch.nn.attention.SDPBackend",
)

HALF = (torch.float16, torch.bfloat16)
CUDNN = 91900
"""The cuDNN that PyTorch's wheels of these versions bring."""
DROPOUT_IN_SIXTEENTHS = torch.__version__ >= "2.12"
"""Since then cuDNN's attention is not taken where it would round the probability."""


@contextmanager
def attention(target: Target) -> Iterator[None]:
    """``scaled_dot_product_attention`` becomes the call that the target would make, and convolutions have its layouts."""
    op = torch.ops.aten.scaled_dot_product_attention.default
    with ExitStack() as stack:
        stack.enter_context(_kernel(op, _attention_of(target)))
        for name, function in _convolution(target).items():
            stack.enter_context(patch.object(torch._C, name, function))
        yield


@contextmanager
def _kernel(op: Any, function: Callable[..., Any]) -> Iterator[None]:  # noqa: ANN401  # an OpOverload
    """The operator is decomposed by this function while it is traced; tensors that are on the CPU after all keep their own way."""
    key = DispatchKey.CompositeImplicitAutograd
    before = op.py_kernels.pop(key, None)
    op.py_impl(key)(function)
    op._dispatch_cache.clear()
    try:
        yield
    finally:
        op.py_kernels.pop(key, None)
        if before is not None:
            op.py_kernels[key] = before
        op._dispatch_cache.clear()


def _attention_of(target: Target) -> Callable[..., torch.Tensor]:
    op = torch.ops.aten.scaled_dot_product_attention.default

    def attend(
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        *,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> torch.Tensor:
        if query.device.type != "cuda":
            found: torch.Tensor = op.decompose(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
            return found
        call = Attention(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa, target)
        return call.result()

    return attend


class Attention:
    """One call: its arguments, the kernels that could compute it, and what the chosen one is given."""

    def __init__(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        mask: torch.Tensor | None,
        dropout: float,
        causal: bool,
        scale: float | None,
        gqa: bool,
        target: Target,
    ) -> None:
        self.query, self.key, self.value, self.mask = query, key, value, mask
        self.dropout, self.causal, self.scale, self.gqa = dropout, causal, scale, gqa
        self.target, self.said = target, REPORTED[target.name]
        self.trained = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (query, key, value))

    def result(self) -> torch.Tensor:
        aten = torch.ops.aten
        q, k, v = self.query, self.key, self.value
        match self.choice():
            case "cudnn":
                mask = self.additive_mask()
                out: torch.Tensor = aten._scaled_dot_product_cudnn_attention(
                    q, k, v, mask, self.trained, self.dropout, self.causal, False, scale=self.scale
                )[0]
                return out
            case "flash":
                scale = self.scale if self.scale is not None else 1.0 / math.sqrt(q.size(-1))
                size = q.size(-1)
                q, k, v = (self.padded(tensor) for tensor in (q, k, v))
                out = aten._scaled_dot_product_flash_attention(q, k, v, self.dropout, self.causal, False, scale=scale)[0]
                return out if out.size(-1) == size else aten.slice(out, -1, 0, size)  # type: ignore[no-any-return]
            case "efficient":
                mask = self.expanded_mask(self.additive_mask())
                out = aten._scaled_dot_product_efficient_attention(
                    q, k, v, mask, self.trained, self.dropout, self.causal, scale=self.scale
                )[0]
                return out
            case _:
                mask = self.additive_mask()
                out = aten._scaled_dot_product_attention_math(
                    q, k, v, mask, self.dropout, self.causal, None, scale=self.scale, enable_gqa=self.gqa
                )[0]
                return out

    def choice(self) -> str:
        """The first kernel in the order of preference that can compute this."""
        from torch.nn.attention import SDPBackend

        order = [int(place) for place in torch._C._get_sdp_priority_order()]
        names = {
            int(SDPBackend.CUDNN_ATTENTION.value): ("cudnn", self.cudnn),
            int(SDPBackend.FLASH_ATTENTION.value): ("flash", self.flash),
            int(SDPBackend.EFFICIENT_ATTENTION.value): ("efficient", self.efficient),
            int(SDPBackend.MATH.value): ("math", torch.backends.cuda.math_sdp_enabled),
        }
        default = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH, SDPBackend.CUDNN_ATTENTION]
        if order[:4] == [int(place.value) for place in default] and self.prefers_cudnn():
            order.insert(0, int(SDPBackend.CUDNN_ATTENTION.value))
        for place in order:
            name, possible = names.get(place, ("", lambda: False))
            if possible():
                return name
        raise RuntimeError("No available kernel. Aborting execution.")

    def prefers_cudnn(self) -> bool:
        return self.target.kind == "cuda" and self.said.major in (9, 10) and CUDNN > 91500

    def cudnn(self) -> bool:
        """cuDNN's attention: half precision, head sizes in steps of 8 up to 128; up to 256 on sm_90, as an H200 chose with torch 2.11."""
        sizes = (self.query.size(-1), self.value.size(-1))
        hopper, blackwell = (self.said.major, self.said.minor) == (9, 0), self.said.major == 10
        widest = 256 if hopper else 192 if blackwell and sizes == (192, 128) else 128
        steps = not DROPOUT_IN_SIXTEENTHS or self.dropout * 16 == math.floor(self.dropout * 16)
        lengths = self.key.size(-2) != 1 and not (self.dropout and self.query.size(-2) == 1)
        return (
            self.target.kind == "cuda" and torch.backends.cuda.cudnn_sdp_enabled() and self.dense(HALF) and steps and lengths
            and all(size <= widest and size % 8 == 0 for size in sizes) and self.heads(free=True)
            and not (torch.are_deterministic_algorithms_enabled() and not torch.is_deterministic_algorithms_warn_only_enabled())
        )  # fmt: skip

    def flash(self) -> bool:
        """FlashAttention: half precision, no mask, one head size up to 256 (512 on AMD)."""
        size = self.query.size(-1)
        same = size == self.key.size(-1) == self.value.size(-1) and size <= (512 if self.target.kind == "hip" else 256)
        small = self.said.major == 12 or (self.said.major == 8 and self.said.minor in (6, 9))
        trainable = not (self.trained and small) or size <= 192 or (self.dropout == 0 and size > 224)
        square = not self.causal or self.query.size(-2) == self.key.size(-2)
        return (
            torch.backends.cuda.flash_sdp_enabled() and self.mask is None and self.dense(HALF) and same and trainable and square
            and self.heads()
        )  # fmt: skip

    def efficient(self) -> bool:
        """The memory-efficient kernel: also float32 and masks, head sizes in steps of 16 bytes."""
        q, v = self.query.size(-1), self.value.size(-1)
        step = 16 // self.query.element_size() if self.query.element_size() < 4 else 4
        sizes = q == self.key.size(-1) and q % step == 0 and v % step == 0 and q > 0 and v > 0
        amd = self.target.kind != "hip" or (
            q == v and not self.gqa and (self.mask is None or self.mask.dtype in (torch.bool, self.query.dtype))
        )
        return (
            torch.backends.cuda.mem_efficient_sdp_enabled() and sizes and amd and self.dense((*HALF, torch.float32), singleton=False)
            and self.heads()
        )  # fmt: skip

    def dense(self, dtypes: tuple[torch.dtype, ...], singleton: bool = True) -> bool:
        """Four axes each, one dtype, no empty axis, and the last axis without gaps."""
        tensors = (self.query, self.key, self.value)
        shaped = all(tensor.dim() == 4 and tensor.dtype == self.query.dtype for tensor in tensors) and self.query.dtype in dtypes
        if not shaped or not all(tensor.size(-2) > 0 for tensor in tensors):
            return False
        close = all(tensor.stride(-1) == 1 or (singleton and tensor.size(-1) == 1) for tensor in tensors)
        return close and (self.mask is None or self.mask.stride(-1) == 1 or (singleton and self.mask.size(-1) == 1))

    def heads(self, free: bool = False) -> bool:
        """Batches and heads agree; with ``enable_gqa`` the keys may have fewer heads."""
        q, k, v = self.query, self.key, self.value
        if not q.size(0) == k.size(0) == v.size(0):
            return False
        if not self.gqa:
            return bool(q.size(1) == k.size(1) == v.size(1))
        return bool((free or k.size(1) == v.size(1)) and q.size(1) % k.size(1) == 0 and q.size(1) % v.size(1) == 0)

    def padded(self, tensor: torch.Tensor) -> torch.Tensor:
        """The last axis filled up to a multiple of 8."""
        missing = -tensor.size(-1) % 8
        return tensor if missing == 0 else torch.ops.aten.pad(tensor, [0, missing])  # type: ignore[no-any-return]

    def additive_mask(self) -> torch.Tensor | None:
        """A mask that is added to the scores: minus infinity where a boolean mask says False."""
        if self.mask is None or self.mask.dtype != torch.bool:
            return self.mask
        excluded = torch.ops.aten.scalar_tensor(-math.inf, dtype=self.query.dtype, device=self.mask.device)
        return torch.ops.aten.where(self.mask, 0.0, excluded)  # type: ignore[no-any-return]

    def expanded_mask(self, mask: torch.Tensor | None) -> torch.Tensor | None:
        """The mask for every head, with rows that begin at multiples of 8 elements."""
        if mask is None:
            return None
        q, k = self.query, self.key
        if mask.stride(-1) != 1 or any(mask.stride(axis) % 8 for axis in range(mask.dim() - 1)):
            size = mask.size(-1)
            mask = torch.ops.aten.slice(torch.ops.aten.pad(mask, [0, 8 - size % 8]), -1, 0, size)
        return mask.expand(q.size(0), q.size(1), q.size(2), k.size(2))


def _convolution(target: Target) -> dict[str, Callable[..., Any]]:
    """Convolutions are cuDNN's (MIOpen's), which keep channels last where an operand has them so."""
    select, layout = torch._C._select_conv_backend, torch._C._conv_determine_backend_memory_format
    backend = torch._C._ConvBackend.Miopen if target.kind == "hip" else torch._C._ConvBackend.Cudnn

    def selected(input: torch.Tensor, weight: torch.Tensor, *args: Any, **given: Any) -> Any:  # noqa: ANN401
        return backend if input.device.type == "cuda" else select(input, weight, *args, **given)

    def laid_out(input: torch.Tensor, weight: torch.Tensor, chosen: Any) -> torch.memory_format:  # noqa: ANN401
        if input.device.type != "cuda":
            found: torch.memory_format = layout(input, weight, chosen)
            return found
        wanted = {4: torch.channels_last, 5: torch.channels_last_3d}.get(weight.dim())
        formats = {torch._prims_common.suggest_memory_format(tensor) for tensor in (input, weight)}
        exact = torch.float64 in (input.dtype, weight.dtype) or target.kind == "hip"
        return wanted if wanted in formats and not exact else torch.contiguous_format  # type: ignore[return-value]

    return {"_select_conv_backend": selected, "_conv_determine_backend_memory_format": laid_out}
