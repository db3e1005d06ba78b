"""Whole programs on a real GPU: the compiled kernels equal eager on the same device, under every policy."""

import pytest
import torch

import compiler
from compiler.capture.present import native_target
from compiler.codegen import generate
from compiler.ir import Kernel
from compiler.lowering import lower
from compiler.options import POLICIES, Options
from compiler.runtime.launch import load_program
from compiler.schedule import schedule
from compiler.verify import verify, verify_program
from tests.compiler.programs import PROGRAMS, assert_equal, parts_of

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here; this file is for machines with one")]


def _real(value):
    return isinstance(value, torch.Tensor) and value.is_floating_point()


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_program_equals_eager(program):
    target = native_target()
    for number, part in enumerate(parts_of(program, "cuda")):
        wanted = part.eager()
        lowered = lower(part.gm, {}, target, retarget=False)
        verify(lowered.graph)
        for policy in POLICIES:
            scheduled, _ = schedule(lowered.graph, Options(policy=policy), target)
            verify_program(scheduled)
            loaded = load_program(scheduled, generate(scheduled, target, lowered.constants), target, lowered.constants)
            ours = loaded(part.copies())
            # Library attention also returns the state of its random numbers and unused memory, which are of no one value.
            numbers = [k for k, value in enumerate(wanted) if "attention" not in str(part.gm.graph) or _real(value)]
            assert_equal([ours[k] for k in numbers], [wanted[k] for k in numbers], max(program.tolerance, 1e-4))
        if program.kernels and number == 0:
            greedy, _ = schedule(lowered.graph, Options(), target)
            assert sum(isinstance(step, Kernel) for step in greedy.steps) == program.kernels


def test_torch_compile_with_our_backend_trains():
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.LayerNorm(128), torch.nn.Linear(128, 8)).cuda()
    x = torch.randn(32, 64, device="cuda")
    model(x).square().mean().backward()
    wanted = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    torch.compile(model, backend=compiler.backend)(x).square().mean().backward()
    for parameter, gradient in zip(model.parameters(), wanted, strict=True):
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-3, atol=1e-5)
