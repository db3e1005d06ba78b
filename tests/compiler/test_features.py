"""What people write beside plain ops on plain tensors: values, gradients, dtypes, strides and shared memory are those of eager."""

import numpy as np
import pytest
import torch

from compiler import backend
from tests.compiler.against_eager import X, check, leaf, outcome, same, sharing
from tests.compiler.two_tensors import TwoTensors

pytestmark = pytest.mark.usefixtures("fresh_dynamo")


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
    return y, y, x, x.view(-1), y[1:], y.t().contiguous(), x.detach()


def on_views(x):
    x[0].mul_(2)
    x.t()[1].add_(1)
    return x.sum(), x[0]


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


def further_of_torch_func(x):
    def loss(v):
        return (v.exp() * v).sum()

    _, tangent = torch.func.jvp(torch.tanh, (x,), (x + 1,))
    return tangent, torch.func.jacfwd(torch.sin)(x[0]), torch.func.hessian(loss)(x[0])


def small_integers(x):
    return (x * 9).to(torch.int8) * 100, (x.abs() * 9).to(torch.uint8) - 7, (x * 9).to(torch.int16) // 2, (x * 9).to(torch.int8) >> 1


def to_integers_and_back(x):
    """-0.1 is a zero without a sign by then, and what no integer holds is the least one, as the machine's conversion has it."""
    return 1 / x.long().float(), 1 / x.to(torch.int8).double(), (x * 1e30).int().float(), x.bfloat16().int().bfloat16().copysign(-x.int())


def ragged(x):
    parts = torch.nested.nested_tensor([x[:1], x[1:]], layout=torch.jagged)
    return (parts * 2).sin() + 1


FEATURES = {
    "no_grad": (no_gradient_inside, leaf(3, 4)),
    "inference_mode": (in_inference_mode, X),
    "complex arithmetic": (lambda x: (x * (1 + 2j) / (x + 3j)).conj() + 1, X),
    "complex factor": (lambda x: torch.view_as_real(x * (1 + 2j)), leaf(3, 4, dtype=torch.complex64)),
    "complex factor of one number": (lambda x: torch.view_as_real(x * (1 + 2j)), leaf(dtype=torch.complex64)),
    "complex128": (lambda x: torch.view_as_real(x * (1 + 2j / 3)), leaf(3, dtype=torch.complex128)),
    "conjugates": (lambda x: (x.conj() * 2, x.conj().imag, (x * x.conj()).real), leaf(3, 4, dtype=torch.complex64)),
    "complex gradient": (lambda x: torch.view_as_real(x * x.conj() + x).sin(), leaf(3, 4, dtype=torch.complex64)),
    "complex size": (lambda x: (x.abs(), x.real.sin(), x.sum(0), x @ x.t()), leaf(3, 4, dtype=torch.complex64)),
    "polar": (lambda x: torch.polar(x.abs() + 1, x), leaf(3, 4)),
    "fft": (lambda x: (torch.fft.fft(x).abs(), torch.fft.irfft(torch.fft.rfft(x) * 2)), leaf(3, 4)),
    "angle": (lambda x: torch.view_as_complex(x.reshape(3, 2, 2) + 1).angle() * 2, leaf(3, 4)),
    "float8": (lambda x: x.to(torch.float8_e4m3fn).float() + x.to(torch.float8_e5m2).to(torch.bfloat16), X),
    "float8 is kept": (lambda x: (x.to(torch.float8_e4m3fn).view(2, 6), x.to(torch.float8_e5m2).t()), X),
    "small integers": (small_integers, X),
    "to integers and back": (to_integers_and_back, X),
    "uint16": (lambda x: (x.abs() * 9).to(torch.uint16).to(torch.int32) + 1, X),
    "nothing": (lambda x: (x + 1, x.sum(0), x @ x.t()), torch.empty(0, 4)),
    "nothing, gradients": (lambda x: (x.sin(), x.sum(0)), torch.empty(0, 4, requires_grad=True)),
    "one number": (lambda x: (x * 2 + x, x.expand(3), x.sum()), torch.tensor(2.0)),
    "one number, gradients": (lambda x: (x * 2 + x, x.expand(3).sin(), x.sum()), leaf()),
    "channels_last": (lambda x: (x * 2 + 1, x.relu()), torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)),
    "an input is written": (lambda x: (x.mul_(2), x + 1), X),
    "views of an input are written": (on_views, X),
    "an input is replaced": (lambda x: (x.copy_(x.flip(0)), x.t_())[1], X),
    "an intermediate is written": (lambda x: writes(x, lambda y: y[:, 2:].add_(y[:, :2])), leaf(3, 4)),
    "aliased": (aliased, X),
    "outputs twice": (twice, leaf(3, 4)),
    "no gradient": (lambda x, y: (x * 2, y.detach() * 3), leaf(3, 4), leaf(3, 4)),
    "numpy": (with_numpy, X),
    "torch.func": (of_torch_func, X),
    "torch.func, forward": (further_of_torch_func, X),
    "sparse": (lambda x: (x.to_sparse() * 2).to_dense() + 1, X),
    "a sparse result": (lambda x: (x.relu() + 1).to_sparse(), X),
    "ragged": (ragged, X),
    "huge strides": (lambda x: x.as_strided((3, 4), (1, 0)).double() + 1, X.reshape(-1)),
}


@pytest.mark.parametrize("name", FEATURES)
def test_equals_eager(name):
    check(*FEATURES[name])


@pytest.mark.parametrize("function", [lambda t: t * 2 + 1, lambda t: (t.sin() * t, t.sum()), lambda t: t @ t.t()])
@pytest.mark.parametrize("gradient", [False, True])
def test_a_subclass_of_two_tensors(function, gradient):
    results = []
    for one in (torch.compile(function, backend=backend), function):
        t = TwoTensors(X.clone(), X + 1).requires_grad_(gradient)
        values = one(t)
        values = list(values) if isinstance(values, tuple) else [values]
        gradients = torch.autograd.grad(sum(value.sum() for value in values), t) if gradient else ()
        assert all(type(value) is TwoTensors for value in (*values, *gradients))
        results.append([inner for value in (*values, *gradients) for inner in (value.a, value.b)])
    same(*results)


def test_autocast():
    """Eager rounds gradients elsewhere, since it casts a weight once for several products: AOTAutograd run eagerly is the authority."""
    inputs = leaf(4, 4), leaf(4, 4)
    wanted = outcome(torch.compile(in_bfloat16, backend="aot_eager"), inputs)
    torch._dynamo.reset()
    same(outcome(torch.compile(in_bfloat16, backend=backend), inputs), wanted)


def test_a_tensor_of_a_graph_is_written():
    """An input that is no leaf may be written to, and its gradient is that of what was written.

    Where the backward pass needs what stood there before, PyTorch's partition refuses, with every compiler.
    """

    def f(x):
        x.mul_(3).add_(1)
        return x * 2

    sides = []
    for one in (torch.compile(f, backend=backend), f):
        start = leaf(3, 4)
        x = start * 3
        result = one(x)
        sides.append([result, x, *torch.autograd.grad((result * x).sum(), start), sharing([result, x])])
    same(*sides)


def test_a_huge_view_of_one_number():
    """More than 2**31 elements of one address: they are counted and added without any memory of theirs."""
    wide = torch.ones(1, dtype=torch.int8).expand(2**31 + 16)
    result = torch.compile(lambda x: (x.sum(), x.numel(), (x[-4:] * 2)), backend=backend)(wide)
    assert (result[0].item(), result[1], result[2].tolist()) == (2**31 + 16, 2**31 + 16, [2] * 4)


def test_an_address_beyond_32_bits():
    """A row that is 2**31 elements away is read where it is; the memory between is never touched."""
    far = torch.empty(2**31 + 4, dtype=torch.int8)
    far[-4:] = torch.tensor([1, 2, 3, 4], dtype=torch.int8)
    far[:4] = 5

    def f(x):
        return x.as_strided((2, 4), (2**31, 1)) * 2 + 1

    assert torch.compile(f, backend=backend)(far).tolist() == [[11] * 4, [3, 5, 7, 9]]
