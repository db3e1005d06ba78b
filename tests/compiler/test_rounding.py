"""What eager rounds in between, or truncates before it begins, is the same compiled: sequences of integers and powers of 16-bit floats."""

import pytest
import torch

from compiler import backend
from compiler.stats import TALLY


def natively(function, *given):
    torch._dynamo.reset()
    TALLY.clear()
    made = torch.compile(function, backend=backend, fullgraph=True)(*given)
    assert not TALLY.report()["fallbacks"]
    return made


def equal(function, *given):
    torch.testing.assert_close(natively(function, *given), function(*given), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int8], ids=str)
def test_a_sequence_of_integers_drops_the_fractions_of_its_arguments_first(dtype):
    arguments = [(0.5, 6.3, 1.3), (-2.7, 9, 2.9), (4.9, 1.2, -1), (False, True, True), (-8, -1, 3)]
    equal(lambda: [torch.arange(*given, dtype=dtype) for given in arguments])


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8], ids=str)
def test_points_between_integers_are_counted_from_both_ends(dtype):
    arguments = [(2.0, 50, 50), (50, 2, 50), (0.3, 4.3, 50), (4.9, 50, 51), (0, 7, 5), (3.7, 9, 1), (3, 9, 0), (0, 3, 50)]
    equal(lambda: [torch.linspace(*given, dtype=dtype) for given in arguments])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_points_between_floats(dtype):
    arguments = [(-2.0, 50, 50), (0.3, -4.3, 51), (3.7, 9, 1), (3, 9, 0)]

    def function():
        return [torch.linspace(*given, dtype=dtype) for given in arguments]

    torch.testing.assert_close(natively(function), function())


@pytest.mark.parametrize("tensors", [False, True])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.float64, torch.float32], ids=str)
def test_powers_between_two_ends_keep_the_fraction_of_a_single_one(dtype, tensors):
    arguments = [(1.6, -3, 1, 2), (1.6, 4.3, 5, 3.3), (-2, 4.3, 2, 10), (0.5, 5.9, 50, 2), (4, 0, 7, 0.5), (1, 2, 0, 10), (2, 2, 3, 1)]

    def function(ends):
        return [torch.logspace(*end, *given[2:], dtype=dtype) for end, given in zip(ends, arguments, strict=True)]

    ends = [[torch.tensor(float(end)) if tensors else end for end in given[:2]] for given in arguments]
    exact = not dtype.is_floating_point
    torch.testing.assert_close(natively(function, ends), function(ends), **({"rtol": 0, "atol": 0} if exact else {}))


@pytest.mark.parametrize("other", [torch.float16, torch.bfloat16, torch.float32, torch.int64], ids=str)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_a_power_of_two_is_rounded_before_it_scales(dtype, other):
    x, exponents = torch.tensor([24000.0, 1000.0, 3.3, -7.0, 2.41, 1.3]), torch.tensor([-18.7, -19.3, -14.2, 0.0, -16.1, 3.5])
    torch.testing.assert_close(natively(torch.ldexp, x.to(dtype), exponents.to(other)), torch.ldexp(x.to(dtype), exponents.to(other)))


def near_one(x):
    """Exact in either precision: up to a 4096th more or less than 1."""
    return 1 + ((x * 1024).floor() - 512) / (1 << 21)


LONG = {
    "everything": lambda x: x.sum(),
    "rows": lambda x: x.view(2, -1).sum(1),
    "columns": lambda x: x.view(-1, 8).sum(0),
    "channels": lambda x: x.view(-1, 8, 2048).sum((0, 2)),
    "many short loops": lambda x: x.view(-1, 4, 8).sum((0, 2)),
    "a mean": lambda x: x.view(4, -1).mean(1),
    "a running sum": lambda x: x.cumsum(0),
    "running sums down columns": lambda x: x.view(-1, 8).cumsum(0),
    "a running sum beside a sum": lambda x: (x.view(2, -1).cumsum(1), x.view(2, -1).sum(1)),
    "a running product": lambda x: near_one(x).cumprod(0),
    "beside the place of the greatest": lambda x: (x.view(2, -1).argmax(1), x.view(2, -1).sum(1)),
}


@pytest.mark.parametrize("name", LONG)
def test_long_sums_keep_the_digits_of_a_float(name):
    torch.manual_seed(0)
    x = torch.rand(1 << 21)
    sides = natively(LONG[name], x), LONG[name](x.double())
    for ours, exact in zip(*(side if isinstance(side, tuple) else (side,) for side in sides), strict=True):
        torch.testing.assert_close(ours.double(), exact.double(), rtol=1e-6, atol=0)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_a_loss_that_eager_computes_op_by_op_overflows_where_eager_does(dtype, reduction):
    x = torch.tensor([-20.0, -3.5, 0.25, 8.0, -9.1, 90.0], dtype=dtype)
    target = torch.tensor([1.0, -1.0, 1.0, -1.0, 1.0, -1.0], dtype=dtype)
    for part in (slice(None), slice(1, 4)):  # with and without what overflows in 16 bits
        sides = []
        for run in (natively, lambda f, *given: f(*given)):
            leaf = x[part].clone().requires_grad_()
            loss = run(lambda x, t: torch.nn.functional.soft_margin_loss(x, t, reduction=reduction), leaf, target[part])
            loss.sum().backward()
            sides.append((loss.detach(), leaf.grad))
        torch.testing.assert_close(*sides, equal_nan=True)
