"""Inputs whose descriptions share storage: gradients of several views of one tensor, and arguments that are views of each other."""

import pytest
import torch

from compiler import backend
from compiler.options import POLICIES

SEVERAL = {
    "unbind": lambda x: torch.unbind(x, 0),
    "unbind of a result": lambda x: torch.unbind(x.sin(), 1),
    "split": lambda x: torch.split(x * 2, [1, 3], 1),
    "chunk": lambda x: torch.chunk(x, 2, 0),
    "slices": lambda x: (x[0], x[1:, 1:], x.T),
    "diagonal and row": lambda x: (x.diagonal(), x[2]),
    "halves of a product": lambda x: torch.tensor_split(x @ x.T, 2),
    "scalars": lambda x: torch.unbind(x.sum(1)),
}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", SEVERAL)
def test_each_view_has_a_gradient_of_its_own(name, policy):
    torch.manual_seed(0)
    start = torch.randn(4, 4)
    weights = [torch.randn_like(part) for part in SEVERAL[name](start)]
    sides = []
    for made in (torch.compile(SEVERAL[name], backend=backend, options={"policy": policy}), SEVERAL[name]):
        torch._dynamo.reset()
        x = start.clone().requires_grad_()
        parts = made(x)
        sides.append((*parts, *torch.autograd.grad(parts, x, weights)))
    for ours, theirs in zip(*sides, strict=True):
        torch.testing.assert_close(ours, theirs)


ALIASES = {
    "a part": lambda x: (x, x[1:]),
    "turned round": lambda x: (x, x.T),
    "itself": lambda x: (x, x),
    "two parts": lambda x: (x[:2], x[2:]),
    "overlapping parts": lambda x: (x[:3], x[1:]),
    "flat": lambda x: (x, x.view(-1)),
}


@pytest.mark.parametrize("writes", [False, True])
@pytest.mark.parametrize("name", ALIASES)
def test_arguments_that_are_views_of_each_other(name, writes):
    def function(a, b):
        first = a[:1].cos() + a[-1:] * 2
        if writes:
            a.mul_(3)
        return first, b[-1:].exp(), b.flatten()[1:] + 1

    sides = []
    for made in (torch.compile(function, backend=backend), function):
        torch._dynamo.reset()
        whole = torch.arange(16.0).view(4, 4) / 10
        sides.append((*made(*ALIASES[name](whole)), whole))
    for ours, theirs in zip(*sides, strict=True):
        torch.testing.assert_close(ours, theirs)
