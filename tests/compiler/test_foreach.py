"""Ops on lists of tensors: every one is the op of each tensor, as in eager PyTorch, and none is handed to a library."""

import pytest
import torch

from compiler import backend
from compiler.capture.foreach import foreach_decompositions
from compiler.stats import TALLY

SHAPES = ((3, 5), (7,), (), (2, 3, 4), (0, 2))


def tensors(seed):
    """Between 0.1 and 0.9, where all of the functions are defined."""
    torch.manual_seed(seed)
    return [torch.rand(shape) * 0.8 + 0.1 for shape in SHAPES]


def arguments(op):
    """Values of each kind that the schema asks for; those with a default are left out."""
    given = []
    for at, argument in enumerate(op._schema.arguments):
        kind = str(argument.real_type)
        if argument.has_default_value() and at > 0:
            continue
        if kind == "List[Tensor]":
            given.append(tensors(at))
        elif kind == "List[number]":
            given.append([0.5 + number for number in range(len(SHAPES))])
        elif kind == "Tensor":
            given.append(torch.tensor(1.5))
        else:
            given.append(1.5)
    return given


OPS = {str(op): op for op in foreach_decompositions() if not str(op).startswith(("aten._foreach_mm", "aten._foreach_max.default"))}


def test_the_table_has_them():
    assert len(OPS) > 70


@pytest.mark.parametrize("name", OPS)
def test_as_eager(name):
    op, given = OPS[name], arguments(OPS[name])
    torch._dynamo.reset()
    TALLY.clear()
    ours = torch.compile(lambda *args: op(*args), backend=backend, fullgraph=True)(*given)
    for one, other in zip(ours, op(*given), strict=True):
        torch.testing.assert_close(one, other)
    assert not TALLY.report()["fallbacks"]


def test_products_and_maxima():
    matrices, filled = [torch.randn(3, 3), torch.randn(3, 5)], [torch.randn(4), torch.randn(2, 3)]
    ours = torch.compile(lambda a, b, c: (torch._foreach_max(a), torch._foreach_mul(b, c)), backend=backend)(filled, matrices, matrices)
    for one, other in zip(ours[0], torch._foreach_max(filled), strict=True):
        torch.testing.assert_close(one, other)
    for one, other in zip(ours[1], torch._foreach_mul(matrices, matrices), strict=True):
        torch.testing.assert_close(one, other)
