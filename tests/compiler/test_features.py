"""What people write beside plain ops on plain tensors: values, gradients, dtypes and strides are those of eager."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

from compiler import backend
from tests.compiler.two_tensors import TwoTensors

pytestmark = pytest.mark.usefixtures("fresh_dynamo")
X = torch.arange(12.0).reshape(3, 4) / 7 - 0.6


def same(ours, eager):
    assert len(ours) == len(eager)
    for one, two in zip(ours, eager, strict=True):
        if not isinstance(two, torch.Tensor):
            assert one == two
            continue
        assert (one is None) == (two is None)
        assert one.requires_grad == two.requires_grad
        if two.layout != torch.strided:
            one, two = one.to_dense(), two.to_dense()
        torch.testing.assert_close(one, two, equal_nan=True, check_stride=True)


def outcome(function, inputs):
    """Results, gradients by the inputs that want them, and the inputs afterwards."""
    torch.manual_seed(3)
    given = [value.clone().detach().requires_grad_(value.requires_grad) for value in inputs]
    results = tree_leaves(function(*given))
    wanted = [value for value in given if value.requires_grad]
    scalars = [abs(r).sum() for r in results if isinstance(r, torch.Tensor) and r.requires_grad]
    gradients = torch.autograd.grad(sum(scalars), wanted, allow_unused=True) if scalars and wanted else ()
    return [*results, *gradients, *(value.detach() for value in given)]


def check(function, *inputs):
    same(outcome(torch.compile(function, backend=backend), inputs), outcome(function, inputs))


def leaf(*shape, dtype=torch.float32):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(1)).requires_grad_()


def writes(x, change):
    y = x * 1
    change(y)
    return y


def no_gradient_inside(x):
    with torch.no_grad():
        y = x * 2
    with torch.set_grad_enabled(True):
        return y + x.sin(), torch.is_grad_enabled()


def in_inference_mode(x):
    with torch.inference_mode():
        return (x * 2).sin()


def in_bfloat16(x, w):
    with torch.autocast("cpu", torch.bfloat16):
        y = x @ w
        with torch.autocast("cpu", enabled=False):
            z = y.float() @ w
        return y @ w, z, (x @ w).softmax(-1)


def twice(x):
    y = x + 1
    return y, y, x, x.view(-1), y[1:]


def on_views(x):
    x[0].mul_(2)
    x.t()[1].add_(1)
    return x.sum()


def aliased(x):
    def f(a, b):
        a.mul_(2)
        return a + b

    return f(x, x[1:2]), x


def with_numpy(x):
    return torch.from_numpy(np.sin(x.numpy()) + 1) * 2


def of_torch_func(x):
    def loss(v):
        return (v.sin() * v).sum()

    return torch.func.grad(loss)(x), torch.func.vmap(torch.func.grad(loss))(x), torch.func.jacrev(torch.sin)(x[0])


def while_small(x):
    return torch.while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, v * 2 + 1), (torch.tensor(0), x))


def scanned(x):
    from torch._higher_order_ops.scan import scan

    return scan(lambda carry, v: (carry + v, carry * v), torch.ones(4), x)


def associatively(x):
    from torch._higher_order_ops.associative_scan import associative_scan

    return associative_scan(lambda a, b: a * b, x, 0, combine_mode="generic")


def mapped(x):
    from torch._higher_order_ops.map import map

    return map(lambda row, y: row.sin() + y, x, torch.ones(4))


@torch.compiler.nested_compile_region
def region(x):
    return x.sin() * 2


def flexible(q):
    from torch.nn.attention.flex_attention import flex_attention

    return flex_attention(q, q + 1, q * 2, score_mod=lambda score, b, h, i, j: score + (i - j))


def branches(x, w):
    return torch.cond(x.sum() > 0, lambda v: v.sin() * w, lambda v: v.cos() + w, (x,))


FEATURES = {
    "cond, first branch": (branches, X + 2, X),
    "cond, second branch": (branches, X - 2, X),
    "cond, gradients": (branches, leaf(3, 4), leaf(3, 4)),
    "while_loop": (while_small, X),
    "scan": (scanned, X),
    "associative_scan": (associatively, X),
    "map": (mapped, X),
    "map, gradients": (mapped, leaf(3, 4)),
    "nested regions": (lambda x: region(region(x)) + region(x), leaf(3, 4)),
    "flex_attention": (flexible, torch.randn(1, 2, 16, 16)),
    "checkpoint": (lambda x, w: checkpoint(lambda v: (v @ w).relu() @ w, x, use_reentrant=False), leaf(4, 4), leaf(4, 4)),
    "no_grad": (no_gradient_inside, leaf(3, 4)),
    "inference_mode": (in_inference_mode, X),
    "complex arithmetic": (lambda x: (x * (1 + 2j) / (x + 3j)).conj() + 1, X),
    "complex factor": (lambda x: torch.view_as_real(x * (1 + 2j)), leaf(3, 4, dtype=torch.complex64)),
    "conjugates": (lambda x: (x.conj() * 2, x.conj().imag, (x * x.conj()).real), leaf(3, 4, dtype=torch.complex64)),
    "complex gradient": (lambda x: torch.view_as_real(x * x.conj() + x).sin(), leaf(3, 4, dtype=torch.complex64)),
    "fft": (lambda x: (torch.fft.fft(x).abs(), torch.fft.irfft(torch.fft.rfft(x) * 2)), leaf(3, 4)),
    "angle": (lambda x: torch.view_as_complex(x.reshape(3, 2, 2) + 1).angle() * 2, leaf(3, 4)),
    "float8": (lambda x: x.to(torch.float8_e4m3fn).float() + x.to(torch.float8_e5m2).to(torch.bfloat16), X),
    "small integers": (lambda x: ((x * 9).to(torch.int8) * 3, (x.abs() * 9).to(torch.uint8) - 7, (x * 9).to(torch.int16) // 2), X),
    "uint16": (lambda x: (x.abs() * 9).to(torch.uint16).to(torch.int32) + 1, X),
    "nothing": (lambda x: (x + 1, x.sum(0), x @ x.t()), torch.empty(0, 4)),
    "one number": (lambda x: (x * 2 + x, x.expand(3), x.sum()), torch.tensor(2.0)),
    "channels_last": (lambda x: (x * 2 + 1, x.relu()), torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)),
    "an input is written": (lambda x: (x.mul_(2), x + 1), X),
    "views of an input are written": (on_views, X),
    "an intermediate is written": (lambda x: writes(x, lambda y: y[:, 2:].add_(y[:, :2])), leaf(3, 4)),
    "aliased": (aliased, X),
    "outputs twice": (twice, leaf(3, 4)),
    "no gradient": (lambda x, y: (x * 2, y.detach() * 3), leaf(3, 4), leaf(3, 4)),
    "numpy": (with_numpy, X),
    "torch.func": (of_torch_func, X),
    "sparse": (lambda x: (x.to_sparse() * 2).to_dense() + 1, X),
    "huge strides": (lambda x: x.as_strided((3, 4), (1, 0)).double() + 1, X.reshape(-1)),
}


MISSING = {
    "nested regions": "lowering takes the result of a second call of a region for a view of the first's: PyTorch describes both by one tensor",
    "flex_attention": "lowering passes no dictionaries on to a call",
}


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=name, marks=[pytest.mark.xfail(strict=True, reason=MISSING[name])] if name in MISSING else [])
        for name, case in FEATURES.items()
    ],
)
def test_equals_eager(case):
    check(*case)


@pytest.mark.parametrize("function", [lambda t: t * 2 + 1, lambda t: (t.sin() * t, t.sum()), lambda t: t @ t.t()])
def test_a_subclass_of_two_tensors(function):
    t = TwoTensors(X.clone(), X + 1)
    ours, eager = torch.compile(function, backend=backend)(t), function(t)
    ours, eager = (list(value) if isinstance(value, tuple) else [value] for value in (ours, eager))
    for one, two in zip(ours, eager, strict=True):
        assert type(one) is type(two) is TwoTensors
        same([one.a, one.b], [two.a, two.b])


def test_autocast():
    """Eager rounds gradients elsewhere, since it casts a weight once for several products: AOTAutograd run eagerly is the authority."""
    inputs = leaf(4, 4), leaf(4, 4)
    wanted = outcome(torch.compile(in_bfloat16, backend="aot_eager"), inputs)
    torch._dynamo.reset()
    same(outcome(torch.compile(in_bfloat16, backend=backend), inputs), wanted)


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


def test_checkpointed_dropout_drops_the_same_in_backward():
    x = torch.ones(64, 64, requires_grad=True)
    result = torch.compile(lambda x: checkpoint(lambda v: F.dropout(v * 2, 0.5).sin(), x, use_reentrant=False), backend=backend)(x)
    (gradient,) = torch.autograd.grad(result.sum(), x)
    torch.testing.assert_close(gradient == 0, result == 0)


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
}


@pytest.mark.parametrize("make", OPTIMISERS.values(), ids=OPTIMISERS)
def test_a_step_of_an_optimiser(make):
    eager = torch.nn.Linear(4, 3)
    ours = copy.deepcopy(eager)
    steps = []
    for model in (eager, ours):
        optimiser = make(model.parameters())
        steps.append(optimiser.step)
    steps[1] = torch.compile(steps[1], backend=backend)
    for _ in range(3):
        for model, step in zip((eager, ours), steps, strict=True):
            model.zero_grad()
            model(X).square().sum().backward()
            step()
    torch.testing.assert_close(list(ours.parameters()), list(eager.parameters()))


@pytest.mark.parametrize("gradient", [True, False])
def test_a_custom_op(gradient):
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    op = torch.library.custom_op(f"features::double_{gradient}", double, mutates_args=())
    op.register_fake(torch.empty_like)
    if gradient:
        op.register_autograd(lambda ctx, gradient: gradient * 2)
    check(lambda x: op(x + 1).sin(), leaf(3, 4) if gradient else X)


def test_a_custom_op_that_writes_to_its_argument():
    def fill(x: torch.Tensor, value: float) -> None:
        x.fill_(value)

    op = torch.library.custom_op("features::fill", fill, mutates_args=("x",))

    def f(x):
        y = x * 2
        op(y[1], 3.0)
        op(x, 4.0)
        return y + x

    check(f, X)


def test_an_address_beyond_32_bits():
    """A row that is 2**31 elements away is read where it is; the memory between is never touched."""
    far = torch.empty(2**31 + 4, dtype=torch.int8)
    far[-4:] = torch.tensor([1, 2, 3, 4], dtype=torch.int8)
    far[:4] = 5

    def f(x):
        return x.as_strided((2, 4), (2**31, 1)) * 2 + 1

    assert torch.compile(f, backend=backend)(far).tolist() == [[11] * 4, [3, 5, 7, 9]]
