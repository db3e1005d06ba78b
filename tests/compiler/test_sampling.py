"""An image sampled at any points, however it goes on outside, equals eager; on a GPU coordinates that no int32 holds lie outside."""

import itertools

import pytest
import torch
import torch.nn.functional as F

from compiler import backend
from compiler.capture.sampling import Axis
from compiler.stats import TALLY

MODES, PADDINGS = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")
FAR = torch.tensor([float("nan"), float("inf"), float("-inf"), 1e20, -1e20, 1e9, -1e9, 3.0, -5.7, 1.0, -1.0, 0.0])
DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def grid(dtype):
    """Two grids of 8 x 8 points within and around the image; for floats of 16 bits, whose eager wraps at int16, none that are far away."""
    torch.manual_seed(0)
    points = torch.cat([FAR, torch.linspace(-2.5, 2.5, 52)])
    if dtype.itemsize == 2:
        points = points.nan_to_num(0.0, 0.0, 0.0).clamp(-99, 99)
    return torch.stack([points.repeat(2), torch.cat([points[torch.randperm(64)] for _ in range(2)])], -1).view(2, 8, 8, 2).to(dtype)


def compiled(function, *given):
    torch._dynamo.reset()
    TALLY.clear()
    made = torch.compile(function, backend=backend, fullgraph=True)(*given)
    assert not TALLY.report()["fallbacks"]
    return made


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("mode", MODES)
def test_as_eager(mode, dtype):
    images = [torch.randn(2, 3, 4, 5), torch.randn(2, 2, 1, 7), torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)[:, :, ::2]]

    def function(image, points):
        return [F.grid_sample(image, points, mode, padding, corners) for padding, corners in itertools.product(PADDINGS, (False, True))]

    tolerance = {"rtol": 1e-4, "atol": 1e-5} if dtype == torch.float32 else {}
    for image in images:
        given = image.to(dtype), grid(dtype)
        ours, theirs = compiled(function, *given), function(*given)
        torch.testing.assert_close(ours, theirs, equal_nan=True, check_stride=True, **tolerance)


def test_far_coordinates_on_a_gpu():
    for padding in range(3):
        placed = Axis(5, padding, False, within_int=True).padded(FAR)
        assert placed.isfinite().all()
        assert (placed.abs() < 2**31).all()


def test_gradients_flow_to_the_image_and_the_grid():
    image, points = torch.randn(2, 3, 6, 5), grid(torch.float32).nan_to_num(0.0, 0.0, 0.0).clamp(-2, 2)

    def function(image, points):
        return F.grid_sample(image.tanh(), points, align_corners=False).exp()

    sides = []
    for made in (function, torch.compile(function, backend=backend)):
        given = [value.clone().requires_grad_() for value in (image, points)]
        result = made(*given)
        sides.append((result, *torch.autograd.grad(result.sum(), given)))
    torch.testing.assert_close(*sides)
