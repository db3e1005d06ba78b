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
    with pytest.raises(RuntimeError, match="out of bounds"):
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


@pytest.mark.parametrize("include", [True, False])
@pytest.mark.parametrize("way", ["prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_joined_along_an_axis(dtype, way, include):
    x, _, source = operands(dtype)

    def function(x, index, source):
        return (x.t() * 1).index_reduce(1, index, source[:3].t(), way, include_self=include)

    given = (x, torch.tensor([1, 3, 1]), source)
    tolerance = {torch.bfloat16: {"rtol": 4e-2, "atol": 1e-2}, torch.float16: {"rtol": 4e-3, "atol": 1e-3}}.get(dtype, {})
    torch.testing.assert_close(compiled(function, *given), function(*given), check_stride=True, **tolerance)


@pytest.mark.filterwarnings("ignore:The reduce argument of torch.scatter")
@pytest.mark.parametrize("way", ["add", "multiply"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.int64, torch.uint8], ids=str)
def test_joined_by_the_older_names(dtype, way):
    x, index, source = operands(dtype)

    def function(x, index, source):
        return x.scatter(0, index, source, reduce=way), x.scatter(0, index, 3, reduce=way)

    torch.testing.assert_close(compiled(function, x, index, source), function(x, index, source))


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("form", ["all", "one", "rows", "row", "columns", "number"])
def test_written_under_a_mask(form, accumulate):
    x, mask = torch.arange(20.0).reshape(4, 5), torch.arange(20).reshape(4, 5) % 3 == 1
    rows, count = torch.tensor([True, False, True, True]), int(mask.sum())
    chosen, shape = {
        "all": (mask, (count,)), "one": (mask, (1,)), "number": (mask, ()), "rows": (rows, (3, 5)), "row": (rows, (5,)), "columns": (rows, (3, 1)),
    }[form]  # fmt: skip
    given = (x.t().contiguous().t(), chosen, -torch.arange(1.0, 1 + torch.Size(shape).numel()).reshape(shape))

    def function(x, mask, values):
        return x.index_put((mask,), values, accumulate)

    torch.testing.assert_close(compiled(function, *given), function(*given), check_stride=True)


def test_too_few_values_under_a_mask_raise():
    given = (torch.zeros(4), torch.tensor([True, True, True, False]), torch.ones(2))
    with pytest.raises(RuntimeError, match="shape mismatch"):
        compiled(lambda x, mask, values: x.index_put((mask,), values), *given)


@pytest.mark.parametrize("accumulate", [False, True])
def test_put(accumulate):
    x, index = torch.arange(20.0).reshape(4, 5), torch.tensor([[0, 3], [-1, 7]])

    def function(x, index, source):
        return x.put(index, source, accumulate), x.t().put(index, source, accumulate), x.take(index)

    given = (x, index, torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    torch.testing.assert_close(compiled(function, *given), function(*given), check_stride=True)
    with pytest.raises(IndexError):
        compiled(function, x, index + 13, given[2])
