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
