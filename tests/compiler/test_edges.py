"""Where programs go wrong in one kind: indices out of range, spaces without points, divisors of zero. Eager is what they are held to."""

import pytest
import torch
import torch.nn.functional as F

from compiler import backend
from compiler.options import POLICIES
from compiler.stats import TALLY

X = torch.arange(12.0).reshape(4, 3)
READERS = {
    "gather": lambda x, i: x.gather(0, i[:, None]) + 1,
    "index": lambda x, i: x[i] + 1,
    "index_of_inner_axis": lambda x, i: x[:, i] + 1,
    "index_of_two_axes": lambda x, i: x[i, i] + 1,
    "index_select": lambda x, i: x.index_select(0, i) + 1,
    "embedding": lambda x, i: F.embedding(i, x) + 1,
    "nll_loss": lambda x, i: F.nll_loss(x[: len(i)], i),
    "scatter": lambda x, i: x.scatter(0, i[:, None], 1.0),
    "index_put": lambda x, i: x.index_put((i,), torch.tensor(1.0)),
}


def compiled(function, policy="greedy"):
    torch._dynamo.reset()
    return torch.compile(function, backend=backend, options={"policy": policy})


@pytest.mark.parametrize("index", [[0, 4], [-5, 0], [2**40, 0]], ids=str)
@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_an_index_out_of_range_raises_as_in_eager(read, index):
    place = torch.tensor(index)
    with pytest.raises((IndexError, RuntimeError)):
        read(X, place)
    ours = compiled(read)
    with pytest.raises((IndexError, RuntimeError), match=r"out of (range|bounds)"):
        ours(X, place)
    torch.testing.assert_close(ours(X, torch.tensor([1, 0])), read(X, torch.tensor([1, 0])))  # the next call is not blamed


def test_an_index_into_nothing_raises():
    with pytest.raises((IndexError, RuntimeError)):
        compiled(lambda x, i: x.index_select(0, i) + 1)(torch.empty(0, 3), torch.tensor([0]))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0,), (2, 0, 3)], ids=str)
def test_spaces_without_points(shape, policy):
    def f(x):
        y = (x * 2 + 1).relu()
        return y, y.sum(-1), y.sum(0), y.sum(), y.prod(0), y.mean(), y.any(), y.all(), y.softmax(-1), torch.cat([y, x]), y.flip(0) + y

    x = torch.empty(shape)
    torch.testing.assert_close(compiled(f, policy)(x), f(x), equal_nan=True)


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
@pytest.mark.parametrize("correction", [0, 1, 5])
@pytest.mark.parametrize(("shape", "dim"), [((0, 5), 0), ((0, 5), 1), ((0,), None), ((3, 0, 2), (0, 1)), ((3, 2), 0)], ids=str)
def test_the_variance_of_too_few(shape, dim, correction):
    def f(x):
        return x.var(dim, correction=correction), torch.var_mean(x + 1, dim, correction=correction), x.std(dim, correction=correction)

    TALLY.clear()
    torch.testing.assert_close(compiled(f)(torch.ones(shape)), f(torch.ones(shape)), equal_nan=True)
    assert not TALLY.report()["fallbacks"]


@pytest.mark.parametrize("dtype", [torch.int64, torch.int8, torch.uint8], ids=str)
@pytest.mark.parametrize("divide", [torch.floor_divide, torch.remainder, torch.fmod, lambda a, b: torch.div(a, b, rounding_mode="trunc")])
def test_an_integer_divided_by_zero_raises_as_in_eager(divide, dtype):
    a, b = torch.tensor([7, 8, 9], dtype=dtype), torch.tensor([2, 0, 3], dtype=dtype)
    ours = compiled(divide)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        divide(a, b)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        ours(a, b)
    torch.testing.assert_close(ours(b, a), divide(b, a))


@pytest.mark.parametrize(
    "reduce", [lambda x: x.max(), lambda x: (x + 1).min(), lambda x: x.max(0), lambda x: x.argmin(), lambda x: x.amax()]
)
def test_nothing_has_no_largest_element(reduce):
    with pytest.raises((RuntimeError, IndexError), match=r"Expected reduction dim|reducing over zero-size|numel\(\) == 0"):
        reduce(torch.zeros(0))
    with pytest.raises((RuntimeError, IndexError), match=r"Expected reduction dim|reducing over zero-size|numel\(\) == 0"):
        torch.compile(reduce, backend="fuselab")(torch.zeros(0))


def test_what_has_no_memory_is_not_computed():
    meta, real = torch.compile(lambda x: (torch.empty(3, device="meta") + 1, x + 1), backend="fuselab")(torch.ones(3))
    assert (meta.device.type, meta.shape, meta.dtype) == ("meta", (3,), torch.float32)
    assert torch.equal(real, torch.full((3,), 2.0))
