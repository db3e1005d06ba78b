"""Tensors that are not strided: calls make and take them, whatever stands around them is fused, and no loop reads their memory."""

import pytest
import torch
import torch.nn.functional as F

from compiler import backend

ROWS = torch.tensor([[1.0, 0, 2, 0, 0], [0, 0, 0, 3, 0], [0, 4, 0, 0, 5]])
OTHER = torch.arange(20.0).reshape(5, 4) - 7


@pytest.fixture(autouse=True)
def _fresh(fresh_dynamo):
    """Each test compiles anew."""


def bag(weight, table):
    places, starts = torch.tensor([1, 2, 4, 5, 4, 3]), torch.tensor([0, 3])
    return (F.embedding_bag(places, table, starts, mode="sum", sparse=True) * weight).sum()


def rows(weight, table):
    return (F.embedding(torch.tensor([1, 2, 2, 5]), table, sparse=True) * weight + 1).sum()


@pytest.mark.parametrize("function", [bag, rows])
def test_a_sparse_gradient_is_handed_on(function):
    def gradients(call):
        weight, table = torch.tensor([1.0, 2, 3], requires_grad=True), torch.arange(18.0).reshape(6, 3).requires_grad_()
        call(weight, table).backward()
        return weight.grad, table.grad

    ours, eager = gradients(torch.compile(function, backend=backend)), gradients(function)
    assert ours[1].layout == eager[1].layout == torch.sparse_coo
    torch.testing.assert_close(ours, eager)


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr], ids=str)
@pytest.mark.parametrize(
    "function",
    [
        lambda s, d: torch.sparse.mm(s, d).relu() + 1,
        lambda s, d: s.to_dense() * 2 + 1,
        lambda s, d: (s * 2, d + 1),
        lambda s, d: (d.relu() + 0).to_sparse(layout=s.layout),
        lambda s, d: ((s @ (d + 1)).to_sparse(layout=s.layout) * 3).to_dense() - 1,
    ],
    ids=["product", "dense", "returned", "made", "between"],
)
def test_sparse_values_go_from_call_to_call(function, layout):
    given = ROWS.to_sparse(layout=layout), OTHER
    torch.testing.assert_close(torch.compile(function, backend=backend)(*given), function(*given))
