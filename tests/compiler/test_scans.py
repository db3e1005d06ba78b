"""Running reductions along any axis of any layout are loops of our own that equal eager, alone and fused."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.interp import interpret, interpret_program
from compiler.ir import Kernel, Nest
from compiler.lowering import lower
from compiler.options import POLICIES, Options
from compiler.schedule import schedule
from compiler.target import find_target
from compiler.verify import verify, verify_program
from tests.compiler.programs import Program, assert_equal, parts_of

CPU = find_target("cpu")
SCANS = {
    "cumsum": lambda x, dim: x.cumsum(dim),
    "cumprod": lambda x, dim: (x / 2).cumprod(dim),
    "logcumsumexp": lambda x, dim: x.logcumsumexp(dim),
    "cummax": lambda x, dim: x.cummax(dim),
    "cummin": lambda x, dim: x.cummin(dim),
}


@st.composite
def scans(draw):
    """A scan between elementwise ops, with ties and now and then a NaN or an infinity."""
    shape = draw(st.lists(st.integers(0, 7), min_size=0, max_size=3))
    x = torch.randint(-3, 4, shape).float()
    if x.numel() and draw(st.booleans()):
        x.view(-1)[draw(st.integers(0, x.numel() - 1))] = draw(st.sampled_from((float("nan"), float("inf"), float("-inf"))))
    if len(shape) > 1 and draw(st.booleans()):
        x = x.transpose(0, -1)
    name, dim = draw(st.sampled_from(sorted(SCANS))), draw(st.integers(-max(1, len(shape)), max(1, len(shape)) - 1))

    def function(value):
        made = SCANS[name](value.abs() - 1, dim)
        return [part * 2 for part in made] if isinstance(made, tuple) else (made + 1, made.sum())

    return Program(name, lambda: (function, (x,)), False, 1e-4)


@settings(max_examples=60, deadline=None)
@given(scans())
def test_scans_equal_eager(program):
    for part in parts_of(program):
        lowered = lower(part.gm, {}, CPU, retarget=False)
        verify(lowered.graph)
        assert all(isinstance(step, Nest) for step in lowered.graph.steps)
        wanted = part.eager()
        assert_equal(interpret(lowered.graph, part.inputs, lowered.constants), wanted, program.tolerance)
        for policy in POLICIES:
            scheduled, _ = schedule(lowered.graph, Options(policy=policy), CPU)
            verify_program(scheduled)
            assert_equal(interpret_program(scheduled, part.inputs, lowered.constants), wanted, program.tolerance)


def test_what_surrounds_a_scan_is_fused_with_it():
    program = Program("fused", lambda: ((lambda x: (x.exp().cumsum(1) * 2).relu()), (torch.randn(4, 9),)), False, 1e-4)
    (part,) = parts_of(program)
    scheduled, _ = schedule(lower(part.gm, {}, CPU, retarget=False).graph, Options(), CPU)
    (kernel,) = scheduled.steps
    assert isinstance(kernel, Kernel)
    assert len(kernel.steps) == 4
