"""Ops that take functions, ops of a library's own, and recomputing: as in eager."""

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from compiler import backend
from tests.compiler.against_eager import X, check, leaf

pytestmark = pytest.mark.usefixtures("fresh_dynamo")


def branches(x, w):
    return torch.cond(x.sum() > 0, lambda v: v.sin() * w, lambda v: v.cos() + w, (x,))


def while_small(x):
    return torch.while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, v * 2 + 1), (torch.tensor(0), x))


def scanned(x, start):
    from torch._higher_order_ops.scan import scan

    return scan(lambda carry, v: (carry + v.sin(), carry * v), start, x)


def associatively(x):
    from torch._higher_order_ops.associative_scan import associative_scan

    return associative_scan(lambda a, b: a * b, x, 0, combine_mode="generic")


def mapped(x):
    from torch._higher_order_ops.map import map

    return map(lambda row, y: row.sin() + y, x, torch.ones(4))


@torch.compiler.nested_compile_region
def region(x):
    return x.sin() * 2


def two_regions(x):
    return region(region(x)) + region(x.view(4, 3)).view(3, 4)


def flexible(q):
    from torch.nn.attention.flex_attention import flex_attention

    return flex_attention(q, q + 1, q * 2, score_mod=lambda score, b, h, i, j: score + (i - j))


def recomputed(x, w):
    return checkpoint(lambda v: (v @ w).relu() @ w, x, use_reentrant=False)


PROGRAMS = {
    "cond, first branch": (branches, X + 2, X),
    "cond, second branch": (branches, X - 2, X),
    "cond, gradients of the first": (branches, (X + 2).requires_grad_(), leaf(3, 4)),
    "cond, gradients of the second": (branches, (X - 2).requires_grad_(), leaf(3, 4)),
    "while_loop": (while_small, X),
    "scan": (scanned, X, torch.ones(4)),
    "scan, gradients": (scanned, leaf(3, 4), leaf(4)),
    "associative_scan": (associatively, X),
    "associative_scan, gradients": (associatively, leaf(3, 4)),
    "map": (mapped, X),
    "map, gradients": (mapped, leaf(3, 4)),
    "nested regions": (two_regions, X),
    "nested regions, gradients": (two_regions, leaf(3, 4)),
    "flex_attention": (flexible, torch.randn(1, 2, 16, 16)),
    "checkpoint": (recomputed, leaf(4, 4), leaf(4, 4)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_equals_eager(name):
    check(*PROGRAMS[name])


def test_checkpointed_dropout_drops_the_same_in_backward():
    x = torch.ones(64, 64, requires_grad=True)
    result = torch.compile(lambda x: checkpoint(lambda v: F.dropout(v * 2, 0.5).sin(), x, use_reentrant=False), backend=backend)(x)
    (gradient,) = torch.autograd.grad(result.sum(), x)
    torch.testing.assert_close(gradient == 0, result == 0)


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


def test_a_custom_op_of_unknown_shape_is_refused_before_it_is_compiled():
    """Without a fake kernel Dynamo cannot trace it: its error says so, as with any backend."""

    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    op = torch.library.custom_op("features::no_fake", double, mutates_args=())
    with pytest.raises(torch._dynamo.exc.TorchRuntimeError, match="no fake impl registered"):
        torch.compile(lambda x: op(x) + 1, backend=backend)(X)


def test_a_triton_kernel_of_the_scripts_own_fails_as_in_eager_without_a_gpu():
    import triton
    import triton.language as tl

    @triton.jit
    def double(x, n: tl.constexpr):
        i = tl.arange(0, n)
        tl.store(x + i, tl.load(x + i) * 2)

    def f(x):
        y = x.clone()
        double[(1,)](y, 8)
        return y

    for one in (f, torch.compile(f, backend=backend)):
        with pytest.raises(RuntimeError, match="0 active drivers"):
            one(torch.ones(8))
