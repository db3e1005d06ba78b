"""A function compiled and run eagerly on the same inputs: results, gradients, what became of the inputs, and what shares memory."""

import torch
from torch.utils._pytree import tree_leaves

from compiler import backend

X = torch.arange(12.0).reshape(3, 4) / 7 - 0.6


def leaf(*shape, dtype=torch.float32):
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(1)).requires_grad_()


def same(ours, eager):
    assert len(ours) == len(eager)
    for one, two in zip(ours, eager, strict=True):
        if not isinstance(two, torch.Tensor):
            assert one == two
            continue
        assert isinstance(one, torch.Tensor)
        assert one.requires_grad == two.requires_grad
        assert one.layout == two.layout
        if two.layout == torch.jagged:
            torch.testing.assert_close(one.offsets(), two.offsets())
            one, two = one.values(), two.values()
        elif two.layout != torch.strided:
            one, two = one.to_dense(), two.to_dense()
        torch.testing.assert_close(one, two, equal_nan=True, check_stride=True)


def sharing(values):
    """Which of the tensors have memory in common, as pairs of places."""
    places = [
        (place, value.untyped_storage().data_ptr())
        for place, value in enumerate(values)
        if isinstance(value, torch.Tensor) and value.layout == torch.strided and value.numel()
    ]
    return [(one, two) for one, here in places for two, there in places if one < two and here == there]


def outcome(function, inputs):
    """Results, gradients by the inputs that want them, the inputs afterwards, and what shares memory."""
    torch.manual_seed(3)
    given = [value.detach().clone().requires_grad_(value.requires_grad) for value in inputs]
    results = tree_leaves(function(*given))
    wanted = [value for value in given if value.requires_grad]
    scalars = [abs(r).sum() for r in results if isinstance(r, torch.Tensor) and r.requires_grad]
    gradients = torch.autograd.grad(sum(scalars), wanted, allow_unused=True) if scalars and wanted else ()
    return [*results, *gradients, *(value.detach() for value in given), sharing([*results, *given])]


def check(function, *inputs):
    same(outcome(torch.compile(function, backend=backend), inputs), outcome(function, inputs))
