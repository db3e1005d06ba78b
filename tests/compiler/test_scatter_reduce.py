"""Values that are joined where an index says, in every way and dtype that eager has; masks that take or give one element after the other."""

import pytest
import torch

from compiler import backend
from compiler.options import POLICIES
from compiler.stats import TALLY

WAYS = ("sum", "prod", "mean", "amax", "amin")
DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int8, torch.uint8)


def compiled(function, *given, policy="greedy"):
    torch._dynamo.reset()
    TALLY.clear()
    made = torch.compile(function, backend=backend, fullgraph=True, options={"policy": policy})(*given)
    assert not TALLY.report()["fallbacks"]
    return made


def operands(dtype):
    torch.manual_seed(0)
    index = torch.randint(0, 4, (6, 5))
    if dtype.is_floating_point:
        return (torch.randn(4, 5) * 2).to(dtype), index, torch.randn(6, 5).to(dtype)
    low = 0 if dtype == torch.uint8 else -3
    return torch.randint(low, 4, (4, 5)).to(dtype), index, torch.randint(low, 4, (6, 5)).to(dtype)


@pytest.mark.parametrize("include", [True, False])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_as_eager(dtype, way, include):
    x, index, source = operands(dtype)

    def function(x, index, source):
        return (x * 1).scatter_reduce(0, index, source + 0, way, include_self=include) + 0

    # 16-bit floats are rounded after each value, as eager does in another order.
    tolerance = {torch.bfloat16: {"rtol": 4e-2, "atol": 1e-2}, torch.float16: {"rtol": 4e-3, "atol": 1e-3}}.get(dtype, {})
    torch.testing.assert_close(compiled(function, x, index, source), function(x, index, source), **tolerance)


@pytest.mark.parametrize("way", WAYS)
def test_nothing_that_is_not_a_number_is_lost(way):
    x, index, source = operands(torch.float32)
    source[2] = float("nan")
    source[3] = float("inf")

    def function(x, index, source):
        return x.scatter_reduce(0, index, source, way)

    torch.testing.assert_close(compiled(function, x, index, source), function(x, index, source), equal_nan=True)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("way", WAYS)
def test_gradients(way, policy):
    x, index, source = operands(torch.float32)

    def function(x, source):
        return (x.sin().scatter_reduce(0, index, source.tanh(), way).exp() * 2).cumsum(0)

    sides = []
    for made in (function, lambda *given: compiled(function, *given, policy=policy)):
        given = [value.clone().requires_grad_() for value in (x, source)]
        result = made(*given)
        sides.append((result, *torch.autograd.grad(result.square().sum(), given)))
    for ours, theirs in zip(*sides, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_an_index_out_of_range_raises():
    x, index, source = operands(torch.float32)
    with pytest.raises(IndexError):
        compiled(lambda x, i, s: x.scatter_reduce(0, i, s, "amax"), x, index + 3, source)


@pytest.mark.parametrize("shapes", [((4, 5), (4, 5), (20,)), ((4, 5), (5,), (4, 5)), ((5,), (4, 5), (30,)), ((), (), (1,))])
def test_masked_scatter(shapes):
    torch.manual_seed(0)
    x, mask, source = torch.randn(shapes[0]), torch.rand(shapes[1]) > 0.4, torch.randn(shapes[2])

    def function(x, mask, source):
        return x.masked_scatter(mask, source)

    sides = []
    for made in (function, lambda *given: compiled(function, *given)):
        given = [value.clone().requires_grad_() for value in (x, source)]
        result = made(given[0], mask, given[1])
        sides.append((result, *torch.autograd.grad(result.square().sum(), given)))
    for ours, theirs in zip(*sides, strict=True):
        torch.testing.assert_close(ours, theirs)
