"""Our own decompositions: ops that PyTorch takes as one, in terms of others that lowering has rules for."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from compiler.capture.sampling import grid_sampler_2d
from compiler.capture.sequences import linspace, logspace

aten = torch.ops.aten


def scatter_reduce(self: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True) -> Any:  # noqa: ANN401
    """Sums and means by adding; the others stay, once what is not to be included was replaced by what changes nothing."""
    if self.dtype == torch.bool or self.is_complex():
        return NotImplemented
    neutral: float | int = {"sum": 0, "mean": 0, "prod": 1}.get(reduce, 0)
    if reduce in ("amax", "amin"):
        floats = self.dtype.is_floating_point
        limits = (-math.inf, math.inf) if floats else (torch.iinfo(self.dtype).min, torch.iinfo(self.dtype).max)
        neutral = limits[0] if reduce == "amax" else limits[1]
    base = self if include_self else aten.scatter.value(self, dim, index, neutral)
    if reduce == "sum":
        return aten.scatter_add(base, dim, index, src)
    if reduce == "mean":
        ones = torch.ones_like(self)
        counts = ones if include_self else aten.scatter.value(ones, dim, index, 0)
        counts = aten.scatter_add(counts, dim, index, torch.ones_like(src)).clamp(min=1)
        total = aten.scatter_add(base, dim, index, src)
        return total / counts if self.dtype.is_floating_point else torch.div(total, counts, rounding_mode="floor")
    return NotImplemented if include_self else aten.scatter_reduce(base, dim, index, src, reduce)


def scatter_joining(self: Tensor, dim: int, index: Tensor, src: Tensor, *, reduce: str) -> Any:  # noqa: ANN401
    """The older names of two ways to join values."""
    return aten.scatter_reduce(self, dim, index, src, {"add": "sum", "multiply": "prod"}[reduce])


def scatter_joining_number(self: Tensor, dim: int, index: Tensor, value: float, *, reduce: str) -> Any:  # noqa: ANN401
    return scatter_joining(self, dim, index, self.new_full(index.shape, value), reduce=reduce)


def index_reduce(self: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True) -> Any:  # noqa: ANN401
    """A scatter whose index is the same along all other axes."""
    if self.dtype == torch.bool or self.is_complex():
        return NotImplemented
    rows, source = (value if value.dim() else value.reshape(1) for value in (self, source))
    sizes = [1] * source.dim()
    sizes[dim % source.dim()] = index.numel()
    index = index.reshape(sizes).expand(source.shape)
    return aten.scatter_reduce(rows, dim, index, source, reduce, include_self=include_self).view(self.shape)


def index_put(self: Tensor, indices: list[Tensor | None], values: Tensor, accumulate: bool = False) -> Any:  # noqa: ANN401
    """Under one mask, each true element takes the next of the values: the one whose number is that of true elements so far."""
    mask = indices[0].to(self.device) if len(indices) == 1 and indices[0] is not None else None
    if mask is None or mask.dtype != torch.bool or self.numel() == 0 or values.numel() == 0:
        return NotImplemented
    rest = self.shape[mask.dim() :]
    if values.dim() > len(rest) and values.shape[-len(rest) - 1] != 1:
        places = mask.reshape(-1).to(torch.int64).cumsum(0) - 1
        values = values.expand(values.shape[-len(rest) - 1], *rest)[places.clamp(min=0)].view(self.shape)
    elif values.numel() == 1 and not accumulate:
        return NotImplemented
    elif values.dim() > len(rest):
        values = values.reshape(values.shape[values.dim() - len(rest) :])
    values = values.to(self.device, self.dtype)
    written = torch.where(mask.view(*mask.shape, *(1 for _ in rest)), self + values if accumulate else values, self)
    return aten.copy(torch.empty_like(self), written)


def index_fill(self: Tensor, dim: int, index: Tensor, value: Tensor | complex) -> Any:  # noqa: ANN401
    """One value at all of the places."""
    rows = self if self.dim() else self.reshape(1)
    value = value.to(self.device, self.dtype) if isinstance(value, Tensor) else torch.full((), value, dtype=self.dtype, device=self.device)
    written = aten.index_put(rows, [*[None] * (dim % rows.dim()), index], value)
    return written if self.dim() else written.reshape(())


def take(self: Tensor, index: Tensor) -> Any:  # noqa: ANN401
    """Read from the elements in row-major order."""
    return aten.index(self.reshape(-1), [index])


def put(self: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """Written to the elements in row-major order."""
    written = aten.index_put(self.reshape(-1), [index.reshape(-1)], source.reshape(-1), accumulate)
    return aten.copy(torch.empty_like(self), written.view(self.shape))


def masked_scatter(self: Tensor, mask: Tensor, source: Tensor) -> Any:  # noqa: ANN401
    """Where the mask is true, the next element of the source: the one whose number is that of true elements so far."""
    self, mask = torch.broadcast_tensors(self, mask)
    if source.numel() == 0 or self.numel() == 0:
        return NotImplemented
    places = mask.reshape(-1).to(torch.int64).cumsum(0) - 1
    taken = source.reshape(-1)[places.clamp(min=0, max=source.numel() - 1)]
    return torch.where(mask, taken.view(self.shape), self)


def masked_scatter_backward(grad_output: Tensor, mask: Tensor, sizes: list[int]) -> Any:  # noqa: ANN401
    """The gradients at true elements, one after the other, and zeros after them."""
    count = math.prod(sizes)
    grad_output, mask = torch.broadcast_tensors(grad_output, mask)
    if count == 0 or grad_output.numel() == 0:
        return NotImplemented
    chosen = mask.reshape(-1)
    places = chosen.to(torch.int64).cumsum(0) - 1
    values = torch.where(chosen, grad_output.reshape(-1), 0)
    return grad_output.new_zeros(count).scatter_add(0, places.clamp(min=0, max=count - 1), values).view(sizes)


def adaptive_average_gradient(grad_output: Tensor, self: Tensor) -> Any:  # noqa: ANN401
    """Each gradient in equal parts to all elements of its window, where the windows are of one size and do not overlap."""
    (height, width), (rows, columns) = self.shape[-2:], grad_output.shape[-2:]
    if not rows or not columns or height % rows or width % columns:
        return NotImplemented
    high, wide = height // rows, width // columns
    parts = (grad_output / (high * wide)).unsqueeze(-1).unsqueeze(-3)
    return parts.expand(*self.shape[:-2], rows, high, columns, wide).reshape(self.shape)


def adaptive_max_pool2d(self: Tensor, output_size: list[int]) -> Any:  # noqa: ANN401
    """The largest of each window and its place. Windows shorter than the longest are filled with their last element."""
    height, width = (int(size) for size in self.shape[-2:])
    if 0 in self.shape or any(isinstance(size, torch.SymInt) for size in (*self.shape, *output_size)):
        return NotImplemented
    rows, columns = (_windows(size, out, self.device) for size, out in zip((height, width), output_size, strict=True))
    windows = self[..., rows[:, None, :, None], columns[None, :, None, :]].flatten(-2)
    best = windows.argmax(-1)
    across = columns.shape[1]
    row = torch.gather(rows.expand(*best.shape[:-2], *rows.shape), -1, best // across)
    column = torch.gather(columns.T.expand(*best.shape[:-2], *columns.T.shape), -2, best % across)
    return windows.amax(-1), row * width + column


def adaptive_max_pool2d_backward(grad_output: Tensor, self: Tensor, indices: Tensor) -> Tensor:
    """Each gradient goes to the place of its maximum."""
    zeros = grad_output.new_zeros(self.shape).flatten(-2)
    return zeros.scatter_add(-1, indices.flatten(-2), grad_output.flatten(-2)).view(self.shape)


def _windows(size: int, count: int, device: torch.device) -> Tensor:
    """The positions of each of ``count`` windows over ``size``, of shape (count, longest)."""
    longest = max(-(-(at + 1) * size // count) - at * size // count for at in range(count))
    places = torch.arange(count, device=device)
    starts, ends = places * size // count, ((places + 1) * size + count - 1) // count
    return torch.minimum(starts[:, None] + torch.arange(longest, device=device), ends[:, None] - 1)


def expand_copy(self: Tensor, size: list[int], *, implicit: bool = False) -> Tensor:
    return aten.expand(self, size, implicit=implicit).clone()


def view_copy(self: Tensor, size: list[int]) -> Tensor:
    return self.reshape(size).clone(memory_format=torch.contiguous_format)


def as_strided_copy(self: Tensor, size: list[int], stride: list[int], storage_offset: int | None = None) -> Tensor:
    return self.as_strided(size, stride, storage_offset).clone(memory_format=torch.contiguous_format)


def round_decimals(self: Tensor, *, decimals: int) -> Any:  # noqa: ANN401
    """Scaled by a power of ten, rounded, and scaled back, as eager does, which rounds 16-bit floats at each step."""
    if decimals == 0 and self.is_floating_point():
        return self.round()
    if self.dtype not in (torch.float32, torch.float64):
        return NotImplemented
    scale = 10.0 ** abs(decimals)
    return (self * scale).round() / scale if decimals > 0 else (self / scale).round() * scale


def soft_margin_loss(self: Tensor, target: Tensor, reduction: int = 1) -> Any:  # noqa: ANN401
    """Op by op, as eager does: a 16-bit float may overflow on the way."""
    losses = (-target * self).exp().log1p()
    return losses if reduction == 0 else losses.mean() if reduction == 1 else losses.sum()


def soft_margin_loss_backward(grad_output: Tensor, self: Tensor, target: Tensor, reduction: int) -> Tensor:
    ratio = (-target * self).exp()
    return target * ratio * (-1.0 / self.numel() if reduction == 1 else -1.0) / (ratio + 1) * grad_output


def in_layout_of(self: Tensor, result: Tensor) -> Tensor:
    """The result in channels_last if the input is."""
    layout = {4: torch.channels_last, 5: torch.channels_last_3d}.get(self.dim())
    if layout is None or self.is_contiguous() or not self.is_contiguous(memory_format=layout):
        return result
    return result.contiguous(memory_format=layout)


def roll(self: Tensor, shifts: list[int], dims: list[int] = []) -> Any:  # noqa: ANN401, B006  # as the op's schema
    """Each axis read from its place before. On a CPU eager joins two slices, and keeps the input's layout unless one is empty."""
    if self.device.type != "cpu" or self.dim() == 0 or not dims or 0 in self.shape:
        return NotImplemented
    rolled, stays = self, False
    for shift, dim in zip(shifts, dims, strict=True):
        size = self.shape[dim]
        stays |= shift == 0 or (isinstance(size, int) and shift % size == 0)
        rolled = rolled.index_select(dim, (torch.arange(size, device=self.device) - shift).remainder(size))
    return rolled if stays else in_layout_of(self, rolled)


def searchsorted(sorted_sequence: Tensor, self: Tensor, *, sorter: Tensor | None = None, **keywords: Any) -> Any:  # noqa: ANN401
    """In a sequence that another tensor sorts: gathered first."""
    if sorter is None:
        return NotImplemented
    return aten.searchsorted.Tensor(sorted_sequence.gather(-1, sorter), self, **keywords)


def searchsorted_number(sorted_sequence: Tensor, self: float, **keywords: Any) -> Any:  # noqa: ANN401
    """In the dtype that both are promoted to."""
    common = torch.result_type(sorted_sequence, self)
    number = torch.full((), self, dtype=common, device=sorted_sequence.device)
    return aten.searchsorted.Tensor(sorted_sequence.to(common), number, **keywords)


def bucketize_number(self: float, boundaries: Tensor, **keywords: Any) -> Any:  # noqa: ANN401
    return searchsorted_number(boundaries, self, **keywords)


def ldexp(self: Tensor, other: Tensor) -> Tensor:
    """In two steps, the power of a dtype of its own: that of a 16-bit float is rounded."""
    scaled = self * torch.pow(2.0, other)
    return scaled.to(self.dtype) if self.is_floating_point() and not other.is_floating_point() else scaled


ENDS = ("default", "Tensor_Tensor", "Tensor_Scalar", "Scalar_Tensor")
"""Overloads by whether the ends are tensors."""


def rewrites() -> dict[Any, Callable[..., Any]]:
    """The table, by overload."""
    return {
        aten.adaptive_max_pool2d.default: adaptive_max_pool2d,
        aten.adaptive_max_pool2d_backward.default: adaptive_max_pool2d_backward,
        aten.as_strided_copy.default: as_strided_copy,
        aten.expand_copy.default: expand_copy,
        aten.roll.default: roll,
        aten.round.decimals: round_decimals,
        aten.view_copy.default: view_copy,
        aten.grid_sampler_2d.default: grid_sampler_2d,
        aten.ldexp.Tensor: ldexp,
        **{getattr(aten.linspace, name): linspace for name in ENDS},
        **{getattr(aten.logspace, name): logspace for name in ENDS},
        aten.index_fill.int_Scalar: index_fill,
        aten.index_fill.int_Tensor: index_fill,
        aten.index_put.default: index_put,
        aten.index_reduce.default: index_reduce,
        aten.put.default: put,
        aten.take.default: take,
        aten.bucketize.Scalar: bucketize_number,
        aten.searchsorted.Scalar: searchsorted_number,
        aten.searchsorted.Tensor: searchsorted,
        aten.soft_margin_loss.default: soft_margin_loss,
        aten.soft_margin_loss_backward.default: soft_margin_loss_backward,
        aten.scatter.reduce: scatter_joining,
        aten.scatter.value_reduce: scatter_joining_number,
        aten.scatter_reduce.two: scatter_reduce,
        aten.masked_scatter.default: masked_scatter,
        aten.masked_scatter_backward.default: masked_scatter_backward,
        aten._adaptive_avg_pool2d_backward.default: adaptive_average_gradient,
    }
