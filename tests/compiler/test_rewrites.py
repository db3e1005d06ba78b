"""Ops that are rewritten by others become loops, and what they give is apart from what it was made of."""

import pytest
import torch

from compiler import backend
from compiler.stats import TALLY

COPIES = {
    "expand_copy": lambda x: torch.expand_copy(x[:1], (5, 4)),
    "as_strided_copy": lambda x: torch.as_strided_copy(x, (3, 2), (1, 4), 2),
    "view_copy": lambda x: torch.view_copy(x, (4, 5)),
    "narrow_copy": lambda x: x.narrow_copy(0, 1, 3),
    "permute_copy": lambda x: torch.permute_copy(x, (1, 0)),
    "unbind_copy": lambda x: torch.unbind_copy(x, 1),
    "rounded to hundredths": lambda x: x.round(decimals=2),
    "rounded to tens": lambda x: (x * 100).round(decimals=-1),
}


@pytest.mark.parametrize("name", COPIES)
def test_as_eager(name):
    torch.manual_seed(0)
    x = torch.randn(5, 4)

    def function(x):
        copied = COPIES[name](x)
        x.add_(1)
        return copied

    sides = []
    for made in (torch.compile(function, backend=backend, fullgraph=True), function):
        torch._dynamo.reset()
        TALLY.clear()
        given = x.clone()
        sides.append((made(given), given))
        assert not TALLY.report()["fallbacks"]
    torch.testing.assert_close(*sides)


FILLED = {
    "transposed": (lambda: torch.randn(4, 5).T, 1, 2),
    "with gaps": (lambda: torch.randn(5, 7)[:, :4], 0, -1.5),
    "integers": (lambda: torch.arange(20).reshape(4, 5), -1, 2.7),
    "16-bit floats": (lambda: torch.randn(5, 3, 4).bfloat16().transpose(0, 2), -2, 3),
    "expanded": (lambda: torch.randn(4, 1).expand(4, 6), 0, 7),
    "no axes": (lambda: torch.randn(()), 0, 4),
    "a tensor as value": (lambda: torch.randn(4, 4), 0, torch.tensor(3.5, dtype=torch.float64)),
    "booleans": (lambda: torch.zeros(4, 5, dtype=torch.bool), 0, True),
}


@pytest.mark.parametrize("places", [[0, 2, 0], [-1], []], ids=str)
@pytest.mark.parametrize("name", FILLED)
def test_filled_at_places(name, places):
    """In any layout, which is kept as eager keeps it."""
    torch._dynamo.reset()
    TALLY.clear()
    make, dim, value = FILLED[name]
    x = make()
    index = torch.tensor(places if x.dim() else [0] * len(places), dtype=torch.int64)

    def function(x, index):
        return x.index_fill(dim, index, value)

    ours, eager = torch.compile(function, backend=backend, fullgraph=True)(x, index), function(x, index)
    torch.testing.assert_close(ours, eager)
    assert ours.stride() == eager.stride()
    assert not TALLY.report()["fallbacks"]


SEARCHES = {
    "sorted by another tensor": lambda rows, numbers: torch.searchsorted(rows, numbers, sorter=rows.argsort(-1)),
    "rows sorted by another tensor": lambda rows, numbers: torch.searchsorted(
        rows.view(3, 4), numbers.view(3, 2), side="right", sorter=rows.view(3, 4).argsort(-1)
    ),
    "a number": lambda rows, numbers: torch.searchsorted(rows.sort().values, 1.5, out_int32=True),
    "an integer": lambda rows, numbers: torch.searchsorted(rows.sort().values, 2, right=True),
    "a fraction among integers": lambda rows, numbers: torch.searchsorted((rows * 3).long().sort().values, 1.5),
    "a number's bucket": lambda rows, numbers: torch.ops.aten.bucketize.Scalar(0.5, rows.sort().values),
}


@pytest.mark.parametrize("name", SEARCHES)
def test_searches(name):
    torch._dynamo.reset()
    torch.manual_seed(2)
    rows, numbers = torch.randn(12), torch.randn(6)
    TALLY.clear()
    compiled = torch.compile(SEARCHES[name], backend=backend, fullgraph=True)
    assert torch.equal(compiled(rows, numbers), SEARCHES[name](rows, numbers))
    assert not TALLY.report()["fallbacks"]


@pytest.mark.parametrize(("shifts", "dims"), [(1, 2), ((1, -2), (0, 3)), (3, None), ((5, 1), (1, 1)), (0, 0)], ids=str)
@pytest.mark.parametrize("layout", ["rows", "channels_last", "transposed"])
def test_what_is_rolled_keeps_the_layout_that_eager_gives_it(layout, shifts, dims):
    torch._dynamo.reset()
    x = torch.arange(120.0).view(2, 3, 4, 5)
    x = {"rows": x, "channels_last": x.to(memory_format=torch.channels_last), "transposed": x.transpose(1, 3)}[layout]
    ours = torch.compile(lambda x: x.roll(shifts, dims), backend=backend, fullgraph=True)(x)
    eager = x.roll(shifts, dims)
    assert torch.equal(ours, eager)
    assert ours.stride() == eager.stride()
