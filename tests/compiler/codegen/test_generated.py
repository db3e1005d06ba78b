"""Generated kernels give eager PyTorch's results: as C++ on this machine, and as Triton through its interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from compiler.codegen import generate
from compiler.runtime.cache import KernelCache
from compiler.runtime.launch import load_program
from compiler.target import TARGETS
from tests.compiler.codegen.cases import CASES, LARGE, Case

ROOT = Path(__file__).parents[3]


def check(case: Case, results: list[torch.Tensor]) -> None:
    expected = case.results()
    assert len(results) == len(expected)
    for result, right in zip(results, expected, strict=True):
        assert (result.dtype, result.shape) == (right.dtype, right.shape)
        if case.exact:
            torch.testing.assert_close(result, right, rtol=0, atol=0, equal_nan=True)
        else:
            torch.testing.assert_close(result, right, equal_nan=True)


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> KernelCache:
    return KernelCache(tmp_path_factory.mktemp("kernels"))


@pytest.mark.parametrize("case", CASES + LARGE, ids=lambda case: case.name)
def test_cpp_gives_what_eager_gives(case: Case, cache: KernelCache) -> None:
    program = case.program()
    loaded = load_program(program, generate(program, TARGETS["cpu"]), TARGETS["cpu"], cache=cache)
    check(case, loaded(list(case.inputs.values())))


@pytest.fixture(scope="module")
def interpreted(tmp_path_factory) -> dict[str, object]:
    """The results of all cases, from one process in which Triton interprets."""
    folder = tmp_path_factory.mktemp("interpreted")
    arguments = []
    for case in CASES:
        program = case.program("cuda")
        paths = [folder / f"{case.name}{suffix}" for suffix in (".py", ".in.pt", ".out.pt")]
        paths[0].write_text(generate(program, TARGETS["sm_90"]).wrapper.text)
        torch.save(list(case.inputs.values()), paths[1])
        arguments += [str(path) for path in paths]
    command = [sys.executable, "-m", "compiler.runtime.interpret", *arguments]
    subprocess.run(command, cwd=ROOT, check=False, timeout=120, env=dict(os.environ, TRITON_INTERPRET="1"))
    return {case.name: torch.load(folder / f"{case.name}.out.pt", weights_only=True) for case in CASES}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_triton_gives_what_eager_gives(case: Case, interpreted: dict[str, object]) -> None:
    results = interpreted[case.name]
    assert isinstance(results, list), results
    check(case, results)
