"""Whole programs through every pass and both generators: what comes out equals eager, whatever was fused."""

import functools
import subprocess
import sys

import pytest
import torch

from compiler.codegen import generate
from compiler.interp import interpret, interpret_program
from compiler.ir import Kernel
from compiler.lowering import lower
from compiler.options import POLICIES, Options
from compiler.runtime.launch import load_program
from compiler.schedule import schedule
from compiler.target import find_target
from compiler.verify import verify, verify_program
from tests.compiler.programs import PROGRAMS, Program, assert_equal, copy_of, parts_of

CPU, GPU = find_target("cpu"), find_target("sm_90")
ALL = pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
TRITON_LIMIT = 70_000  # elements; the interpreter runs one block at a time


@functools.cache
def parts(program: Program):
    return parts_of(program)


@ALL
@pytest.mark.parametrize("target", [CPU, GPU], ids=lambda target: target.name)
def test_interpreter_equals_eager(program, target):
    for part in parts(program):
        lowered = lower(part.gm, {}, target, retarget=target.is_gpu)
        verify(lowered.graph)
        wanted = part.eager()
        assert_equal(interpret(lowered.graph, part.inputs, lowered.constants), wanted, program.tolerance)
        for policy in POLICIES:
            scheduled, _ = schedule(lowered.graph, Options(policy=policy), target)
            verify_program(scheduled)
            assert_equal(interpret_program(scheduled, part.inputs, lowered.constants), wanted, program.tolerance)


@ALL
def test_cpp_equals_eager(program):
    for part in parts(program):
        wanted = part.eager()
        lowered = lower(part.gm, {}, CPU, retarget=False)
        for policy in POLICIES:
            scheduled, _ = schedule(lowered.graph, Options(policy=policy), CPU)
            loaded = load_program(scheduled, generate(scheduled, CPU, lowered.constants), CPU, lowered.constants)
            assert_equal(loaded([copy_of(value) for value in part.inputs]), wanted, program.tolerance)


@pytest.fixture(scope="module")
def triton_results(tmp_path_factory):
    """Every program's kernels, run by Triton's interpreter in one process of its own."""
    folder = tmp_path_factory.mktemp("triton")
    cases = {}
    for program in PROGRAMS:
        for part in parts(program):
            if sum(value.numel() for value in part.inputs if isinstance(value, torch.Tensor)) > TRITON_LIMIT:
                continue
            lowered = lower(part.gm, {}, GPU, retarget=True)
            for policy in ("none", "greedy"):
                scheduled, _ = schedule(lowered.graph, Options(policy=policy), GPU)
                stem = folder / f"{program.name}-{part.name}-{policy}"
                stem.with_suffix(".py").write_text(generate(scheduled, GPU, lowered.constants).wrapper.text)
                constants = {name: value for name, value in lowered.constants.items() if isinstance(value, torch.Tensor)}
                torch.save({"inputs": [copy_of(value) for value in part.inputs], "constants": constants}, stem.with_suffix(".in"))
                cases[program.name, part.name, policy] = stem
    triples = [str(stem.with_suffix(end)) for stem in cases.values() for end in (".py", ".in", ".out")]
    done = subprocess.run([sys.executable, "-m", "compiler.runtime.interpret", *triples], capture_output=True, text=True)
    return cases, done.stderr


@ALL
def test_triton_equals_eager(program, triton_results):
    cases, stderr = triton_results
    for part in parts(program):
        for policy in ("none", "greedy"):
            if (program.name, part.name, policy) not in cases:
                pytest.skip("larger than Triton's interpreter handles in seconds; test_interpreter covers its schedule")
            stem = cases[program.name, part.name, policy]
            results = torch.load(stem.with_suffix(".out")) if stem.with_suffix(".out").exists() else stderr[-2000:]
            assert not isinstance(results, str), results
            assert_equal(results, part.eager(), program.tolerance)


@pytest.mark.parametrize("program", [program for program in PROGRAMS if program.kernels], ids=lambda program: program.name)
def test_greedy_leaves_so_many_kernels(program):
    part = parts(program)[0]
    for target in (CPU, GPU):
        lowered = lower(part.gm, {}, target, retarget=target.is_gpu)
        scheduled, _ = schedule(lowered.graph, Options(), target)
        assert sum(isinstance(step, Kernel) for step in scheduled.steps) == program.kernels


def test_add_mul_is_two_kernels_without_fusion():
    part = parts(PROGRAMS[0])[0]
    scheduled, decisions = schedule(lower(part.gm, {}, CPU, retarget=False).graph, Options(policy="none"), CPU)
    assert sum(isinstance(step, Kernel) for step in scheduled.steps) == 2
    assert {decision.rule for decision in decisions} == {"policy_none"}


def test_fusion_changes_no_bit():
    """A policy may change speed, never the answer: elementwise programs agree in every bit."""
    for name in ("bfloat16_rounds_as_eager", "chain_of_many", "rotary", "concatenate"):
        (program,) = (program for program in PROGRAMS if program.name == name)
        part = parts(program)[0]
        lowered = lower(part.gm, {}, CPU, retarget=False)
        results = []
        for policy in POLICIES:
            scheduled, _ = schedule(lowered.graph, Options(policy=policy), CPU)
            loaded = load_program(scheduled, generate(scheduled, CPU, lowered.constants), CPU, lowered.constants)
            results.append(loaded([copy_of(value) for value in part.inputs]))
        for other in results[1:]:
            for one, two in zip(results[0], other, strict=True):
                assert torch.equal(
                    one.view(torch.int16 if one.element_size() == 2 else torch.int32),
                    two.view(torch.int16 if two.element_size() == 2 else torch.int32),
                )
