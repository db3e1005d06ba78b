"""Sampling an image at the points of a grid, in terms of elementwise ops and one read for each neighbour, rounded where eager rounds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten
BILINEAR, NEAREST, BICUBIC = range(3)
ZEROS, BORDER, REFLECTION = range(3)
NOWHERE = -100.0
"""Where eager looks on a GPU for a coordinate that no int32 holds: outside of every image."""
SHARPNESS = -0.75
"""The free parameter of the cubic convolution: the slope of its kernel at one."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of the image: how many elements, how it goes on outside, whether -1 and 1 are the centres of the outer elements or their
    edges, and whether its coordinates are kept within int32.
    """

    size: int
    padding: int
    centres: bool
    within_int: bool

    def coordinate(self, at: Tensor) -> Tensor:
        """From [-1, 1] to elements."""
        return (at + 1) * ((self.size - 1) / 2) if self.centres else (at + 1) * (self.size / 2) - 0.5

    def padded(self, at: Tensor) -> Tensor:
        """Where the image goes on outside, the element that stands there; NaN becomes the first one."""
        if self.padding == REFLECTION:
            at = self.reflected(at)
        if self.padding != ZEROS:
            at = torch.where(at > 0, at, 0.0).clamp(max=self.size - 1)
        return torch.where(at.abs() < 2**31 - 1, at, NOWHERE) if self.within_int else at

    def reflected(self, at: Tensor) -> Tensor:
        """At the centre or the edge of the outer elements, as often as it takes."""
        low, span = (0.0, self.size - 1) if self.centres else (-0.5, self.size)
        if span == 0:
            return torch.zeros_like(at)
        away = (at - low).abs()
        rest = away - (away / (2 * span)).trunc() * (2 * span)
        return torch.minimum(rest, 2 * span - rest) + low

    def holds(self, at: Tensor) -> Tensor:
        return (at >= 0) & (at < self.size)


def grid_sampler_2d(image: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool) -> Any:  # noqa: ANN401
    """On a GPU 16-bit floats are computed in float32, on the CPU each step is rounded."""
    if any(isinstance(size, torch.SymInt) for size in (*image.shape, *grid.shape)) or image.numel() == 0:
        return NotImplemented
    (count, channels, rows, columns), (height, width) = image.shape, grid.shape[1:3]
    on_gpu = image.device.type == "cuda"
    down, across = (Axis(size, padding_mode, align_corners, on_gpu) for size in (rows, columns))
    points = grid.float() if on_gpu and grid.dtype in (torch.float16, torch.bfloat16) else grid
    points = points.unsqueeze(1).expand(count, channels, height, width, 2)  # so that all of it is one nest over the result
    x, y = across.coordinate(points[..., 0]), down.coordinate(points[..., 1])
    planes = image.reshape(count, channels, rows * columns)

    def element(y: Tensor, x: Tensor) -> Tensor:
        """What the image holds at whole coordinates, zero outside of it."""
        inside = down.holds(y) & across.holds(x)
        row, column = (torch.where(inside, at, 0.0).to(torch.int64) for at in (y, x))
        found = planes.gather(2, (row * columns + column).view(count, channels, height * width))
        return torch.where(inside, found.view(inside.shape).to(points.dtype), 0.0)

    if interpolation_mode == BICUBIC:
        return bicubic(y, x, lambda y, x: element(down.padded(y), across.padded(x))).to(image.dtype)
    y, x = down.padded(y), across.padded(x)
    sampled = element(y.round(), x.round()) if interpolation_mode == NEAREST else bilinear(y, x, element)
    return sampled.to(image.dtype)


def bilinear(y: Tensor, x: Tensor, element: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """The four elements around a point, weighted by how near they are."""
    top, left = y.floor(), x.floor()
    right, below = x - left, y - top
    before, above = 1 - right, 1 - below
    upper = element(top, left) * (before * above) + element(top, left + 1) * (right * above)
    return upper + element(top + 1, left) * (before * below) + element(top + 1, left + 1) * (right * below)


def bicubic(y: Tensor, x: Tensor, element: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """The sixteen elements around a point, joined by cubic convolution first along rows, then across them."""
    top, left = y.floor(), x.floor()
    along, across = cubic_weights(x - left), cubic_weights(y - top)
    rows = [weighted(along, [element(top + down, left + right) for right in range(-1, 3)]) for down in range(-1, 3)]
    return weighted(across, rows)


def weighted(weights: list[Tensor], values: list[Tensor]) -> Tensor:
    total = weights[0] * values[0]
    for weight, value in zip(weights[1:], values[1:], strict=True):
        total = total + weight * value
    return total


def cubic_weights(past: Tensor) -> list[Tensor]:
    """The weights of the elements at -1, 0, 1 and 2 for a point that lies ``past`` the one at 0."""

    def near(at: Tensor) -> Tensor:
        return ((SHARPNESS + 2) * at - (SHARPNESS + 3)) * at * at + 1

    def far(at: Tensor) -> Tensor:
        return ((SHARPNESS * at - 5 * SHARPNESS) * at + 8 * SHARPNESS) * at - 4 * SHARPNESS

    return [far(past + 1), near(past), near(1 - past), far(2 - past)]
