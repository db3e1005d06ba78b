"""What a training loop does beside one backward pass: seeds, buffers, passes that run twice, steps of optimisers."""

import copy

import pytest
import torch
import torch.nn.functional as F

from compiler import backend
from tests.compiler.against_eager import X, leaf, same

pytestmark = pytest.mark.usefixtures("fresh_dynamo")


def test_random_numbers_follow_the_seed():
    def f(x):
        return F.dropout(x, 0.4), torch.rand_like(x), torch.randn(5), torch.randint(0, 9, (4,)), torch.bernoulli(x.sigmoid())

    ours, x = torch.compile(f, backend=backend), torch.ones(100_000)
    drawn = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        drawn.append(ours(x))
    same(drawn[0], drawn[1])
    assert not torch.equal(drawn[0][0], drawn[2][0])
    dropped, uniform = drawn[0][:2]
    assert abs((dropped == 0).double().mean() - 0.4) < 0.01
    assert set(dropped.unique().tolist()) == {0.0, float(torch.tensor(1 / 0.6))}
    assert abs(uniform.mean() - 0.5) < 0.01
    assert abs(uniform.var() - 1 / 12) < 0.01


def test_running_statistics_and_nested_buffers():
    class Counted(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = torch.nn.BatchNorm2d(3)
            self.scale = torch.nn.Parameter(torch.ones(3, 1, 1))
            self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

        def forward(self, x):
            self.calls += 1
            return self.norm(x) * self.scale

    eager, x = Counted(), torch.randn(4, 3, 5, 5)
    ours = copy.deepcopy(eager)
    compiled = torch.compile(ours, backend=backend)
    for _ in range(3):
        eager(x).square().sum().backward(retain_graph=True)
        compiled(x).square().sum().backward(retain_graph=True)
    for one, two in zip(ours.state_dict().values(), eager.state_dict().values(), strict=True):
        torch.testing.assert_close(one, two)
    torch.testing.assert_close([p.grad for p in ours.parameters()], [p.grad for p in eager.parameters()], atol=1e-4, rtol=1e-4)


def test_a_backward_pass_twice():
    x = leaf(3, 4)
    result = torch.compile(lambda x: (x.sin() * x).sum(), backend=backend)(x)
    first = torch.autograd.grad(result, x, retain_graph=True)[0]
    torch.testing.assert_close(torch.autograd.grad(result, x)[0], first)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        torch.autograd.grad(result, x)


def test_double_backward_is_refused_as_pytorch_refuses_it():
    x = leaf(3, 4)
    result = torch.compile(lambda x: (x.sin() * x).sum(), backend=backend)(x)
    with pytest.raises(RuntimeError, match="does not currently support double backward"):
        torch.autograd.grad(torch.autograd.grad(result, x, create_graph=True)[0].sum(), x)


OPTIMISERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.01, foreach=True),
    "Adam, fused": lambda p: torch.optim.Adam(p, lr=0.01, fused=True),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.01, foreach=False),
    "AdamW, foreach": lambda p: torch.optim.AdamW(p, lr=0.01, foreach=True, amsgrad=True),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.5),
}


@pytest.mark.parametrize("name", OPTIMISERS)
def test_a_step_of_an_optimiser(name):
    compare_steps(OPTIMISERS[name], OPTIMISERS[name])


@pytest.mark.parametrize("foreach", [False, True])
def test_a_capturable_step(foreach):
    """Eager takes such steps on a GPU only; the numbers are those of the plain optimiser."""
    compare_steps(
        lambda p: torch.optim.AdamW(p, lr=0.01),
        lambda p: torch.optim.AdamW(p, lr=torch.tensor(0.01), foreach=foreach, capturable=True),
    )


def compare_steps(plain, compiled):
    eager = torch.nn.Linear(4, 3)
    ours = copy.deepcopy(eager)
    steps = [plain(eager.parameters()).step, torch.compile(compiled(ours.parameters()).step, backend=backend)]
    for _ in range(3):
        for model, step in zip((eager, ours), steps, strict=True):
            model.zero_grad()
            model(X).square().sum().backward()
            step()
    torch.testing.assert_close(list(ours.parameters()), list(eager.parameters()))
