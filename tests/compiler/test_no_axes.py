"""A tensor without axes is one of a single element to every op along an axis, and an index without elements may have any axes."""

import pytest
import torch

from compiler import backend
from compiler.stats import TALLY

X = torch.tensor(2.5)
ALONG = {
    "flip": lambda x: x.flip(0) + 1,
    "max": lambda x: (x.max(0), x.max(-1, True), (x * torch.nan).max(0)),
    "min": lambda x: (x.min(0), x.min(-1, True), (x * torch.nan).min(0)),
    "running": lambda x: (x.cumsum(0), x.cumprod(-1), x.cummax(0), x.cummin(0), x.logcumsumexp(0)),
    "variance": lambda x: (x.var(0), torch.var_mean(x, 0, correction=0), torch.std_mean(x, 0, correction=3)),
}
AT = {
    "gather": lambda x, i, s: x.gather(-1, i) * 2,
    "index_select": lambda x, i, s: x.index_select(0, i) * 2,
    "take": lambda x, i, s: x.take(i) * 2,
    "put": lambda x, i, s: (x.put(i, s), x.put(i, s, accumulate=True)),
    "index_fill": lambda x, i, s: x.index_fill(0, i, 3.0) * 2,
    "index_add": lambda x, i, s: x.index_add(0, i, s) * 2,
    "index_copy": lambda x, i, s: x.index_copy(0, i, s) * 2,
    "scatter": lambda x, i, s: (x.scatter(0, i, s), x.scatter(0, i, 4.0), x.scatter(0, i, 4.0, reduce="multiply")),
    "scatter_add": lambda x, i, s: x.scatter_add(0, i, s) * 2,
    "scatter_reduce": lambda x, i, s: tuple(x.scatter_reduce(0, i, s, way) for way in ("sum", "mean", "prod", "amax", "amin")),
    "index_reduce": lambda x, i, s: tuple(x.index_reduce(0, i, s, way) for way in ("mean", "prod", "amax", "amin")),
}


def natively(function, *given):
    torch._dynamo.reset()
    TALLY.clear()
    made = torch.compile(function, backend=backend, fullgraph=True)(*given)
    assert not TALLY.report()["fallbacks"]
    return made


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
@pytest.mark.parametrize("function", ALONG.values(), ids=ALONG)
def test_along_no_axis(function):
    torch.testing.assert_close(natively(function, X), function(X), equal_nan=True)


@pytest.mark.parametrize("index", [torch.tensor(0), torch.tensor([0])], ids=["0-d", "1-d"])
@pytest.mark.parametrize("function", AT.values(), ids=AT)
def test_at_the_only_place(function, index):
    given = (X, index, torch.tensor(3.0))
    torch.testing.assert_close(natively(function, *given), function(*given))


def test_beyond_the_only_place():
    given = (X, torch.tensor(1), X)
    with pytest.raises(RuntimeError, match="out of bounds"):
        AT["gather"](*given)
    with pytest.raises(RuntimeError, match="out of bounds"):
        natively(AT["gather"], *given)


@pytest.mark.parametrize("shape", [(0,), (2, 0), (0, 2, 3)], ids=str)
@pytest.mark.parametrize("x", [X, torch.arange(5.0), torch.arange(20.0).reshape(5, 4)], ids=["0-d", "1-d", "2-d"])
def test_an_index_without_elements(x, shape):
    index, source = torch.zeros(shape, dtype=torch.int64), torch.zeros(shape)

    def function(x, i, s):
        return x.gather(0, i), x.scatter(0, i, s), x.scatter_add(0, i, s) * 2, x.scatter_reduce(0, i, s, "mean")

    torch.testing.assert_close(natively(function, x, index, source), function(x, index, source))
