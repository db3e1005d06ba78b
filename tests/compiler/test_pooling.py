"""Pooling with any window, stride, padding and layout is elementwise code that equals eager, and its gradients are as well."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler import backend
from compiler.interp import interpret
from compiler.ir import Nest
from compiler.lowering import lower
from compiler.lowering.pooling import LARGEST_WINDOW
from compiler.stats import TALLY
from compiler.target import find_target
from tests.compiler.programs import Program, assert_equal, parts_of

CPU = find_target("cpu")
KINDS = ("max", "average", "average without padding", "average with a divisor")


@st.composite
def poolings(draw):
    """A pooling, its name and an input that it takes: a few channels, sizes up to 9, windows that are written out."""
    axes, kind = draw(st.sampled_from((2, 2, 3))), draw(st.sampled_from(KINDS))
    kernel = [draw(st.integers(1, 3)) for _ in range(axes)]
    stride = [draw(st.integers(1, 3)) for _ in range(axes)]
    padding = [draw(st.integers(0, size // 2)) for size in kernel]
    dilation = [draw(st.integers(1, 2)) if kind == "max" else 1 for _ in range(axes)]
    sizes = [draw(st.integers(max(2, (size - 1) * step + 1), 9 if axes == 2 else 5)) for size, step in zip(kernel, dilation, strict=True)]
    ceil = draw(st.booleans())
    x = torch.randint(-4, 5, (2, 2, *sizes)).float().requires_grad_()
    if draw(st.booleans()):
        x = x.detach().movedim(1, -1).contiguous().movedim(-1, 1).requires_grad_()
    pool = {("max", 2): F.max_pool2d, ("max", 3): F.max_pool3d}.get((kind, axes), F.avg_pool2d if axes == 2 else F.avg_pool3d)
    given_ = {"kernel_size": kernel, "stride": stride, "padding": padding, "ceil_mode": ceil}
    if kind == "max":
        given_["dilation"] = dilation
    if kind.endswith("padding"):
        given_["count_include_pad"] = False
    if kind.endswith("divisor"):
        given_["divisor_override"] = 5
    return Program(kind, lambda: ((lambda value: pool(value, **given_)), (x,)), True, 1e-5), kernel


@settings(max_examples=60, deadline=None)
@given(poolings())
def test_pooling_equals_eager(drawn):
    program, kernel = drawn
    assert math.prod(kernel) <= LARGEST_WINDOW
    for part in parts_of(program):
        lowered = lower(part.gm, {}, CPU, retarget=False)
        assert lowered.graph.steps
        assert all(isinstance(step, Nest) for step in lowered.graph.steps)
        assert_equal(interpret(lowered.graph, part.inputs, lowered.constants), part.eager(), program.tolerance)


def test_a_long_window_goes_to_the_library():
    program = Program("long", lambda: ((lambda x: F.max_pool2d(x, 6)), (torch.randn(1, 1, 12, 12),)), False, 1e-5)
    (part,) = parts_of(program)
    lowered = lower(part.gm, {}, CPU, retarget=False)
    (decision,) = (decision for decision in lowered.decisions if decision.verdict == "extern")
    assert "36 elements" in decision.reason
    assert_equal(interpret(lowered.graph, part.inputs, lowered.constants), part.eager(), 1e-5)


@pytest.mark.parametrize(("shape", "out"), [((2, 3, 7, 9), (3, 4)), ((3, 8, 8), (4, 2)), ((1, 2, 5, 5), (7, 6)), ((2, 3, 6, 10), (1, 1))])
def test_adaptive_maxima_over_windows_of_several_sizes(shape, out):
    torch.manual_seed(0)
    x = torch.randn(shape, requires_grad=True)

    def function(x):
        return torch.nn.functional.adaptive_max_pool2d(x, out, return_indices=True)

    torch._dynamo.reset()
    TALLY.clear()
    sides = [torch.compile(function, backend=backend)(x), function(x)]
    assert not TALLY.report()["fallbacks"]
    torch.testing.assert_close(*sides)
    torch.testing.assert_close(*(torch.autograd.grad(values.square().sum(), x)[0] for values, _ in sides))
