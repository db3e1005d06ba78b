"""Every level exists for every target without a GPU, and each line leads back to the origin that it was written for."""

from __future__ import annotations

import re
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from compiler.assembly import assemble, assemble_many, assemble_stepwise, disassemble_cpp
from compiler.codegen import generate
from compiler.codegen.sources import KernelSource
from compiler.errors import CompileError
from compiler.ir import Tiling
from compiler.runtime.build import build_cpp
from compiler.runtime.cache import KernelCache
from compiler.target import TARGETS, Target
from tests.compiler.codegen.cases import CASES, Case, softmax

GPUS = [target for target in TARGETS.values() if target.is_gpu]
ROWS = softmax("softmax", 64, 1000, True, Tiling(1, 1024, 4), torch.float32)
MAXIMUM, DIFFERENCE, EXPONENTIAL, QUOTIENT, STORED = 3, 4, 5, 7, 9  # origins of the lines of the softmax


def source(case: Case, target: Target) -> KernelSource:
    return generate(case.program("cuda"), target).kernels[0]


def origins_where(level, pattern: str) -> set[int]:
    return {
        origin for line, marks in zip(level.text.splitlines(), level.marks, strict=True) if re.search(pattern, line) for origin in marks
    }


@pytest.mark.parametrize("target", GPUS, ids=lambda target: target.name)
def test_all_levels_lead_back_to_their_origins(target: Target) -> None:
    assembly = assemble(source(ROWS, target), target)
    nvidia = target.kind == "cuda"
    assert [level.stage for level in assembly.levels] == ["ttir", "ttgir", "llir", *(["ptx"] if nvidia else []), "sass"]
    for level in assembly.levels:
        assert level.text.count("\n") == len(level.marks)
        assert not re.search(r"\.py\b|!dbg|#loc|\.loc\b", level.text), "debug information belongs into the marks"
    assert origins_where(assembly.level("ttir"), r"math\.exp ") == {EXPONENTIAL}
    assert origins_where(assembly.level("ttir"), r"arith\.subf") == {DIFFERENCE}
    assert origins_where(assembly.level("ttgir"), r"(tt\.|amdg\.buffer_)store") == {STORED}
    assert origins_where(assembly.level("ttgir"), r"arith\.maximumf") == {MAXIMUM}
    sass = assembly.level("sass")
    if nvidia:
        assert origins_where(assembly.level("ptx"), r"ex2\.approx") == {EXPONENTIAL}
        assert origins_where(assembly.level("ptx"), r"st\.global") == {STORED}
        assert origins_where(sass, r"\bMUFU\.EX2\b") == {EXPONENTIAL}
        assert origins_where(sass, r"\bSTG\b") == {STORED}
        assert origins_where(sass, r"\bFMNMX3?\b") <= {MAXIMUM}
    else:
        assert origins_where(sass, r"v_exp_f32") == {EXPONENTIAL}
        assert origins_where(sass, r"global_store|buffer_store") == {STORED}
        assert origins_where(sass, r"v_max(imum)?3?_f32") <= {MAXIMUM}


@pytest.mark.parametrize("target", GPUS, ids=lambda target: target.name)
def test_facts_of_the_machine_code(target: Target) -> None:
    facts = assemble(source(ROWS, target), target).facts
    assert 8 <= facts["registers"] <= 64
    assert facts["stack_bytes"] == 0
    assert facts["shared_bytes"] == 16  # one partial result of each of the four warps
    assert facts["threads"] == 4 * target.warp
    assert facts["occupancy"] == 1.0
    assert facts["instructions"] > 50


@pytest.mark.parametrize("target", [TARGETS["sm_80"], TARGETS["gfx942"]], ids=lambda target: target.name)
def test_every_kind_of_kernel_compiles(target: Target) -> None:
    """Type errors that the interpreter lets pass would show here."""
    for case in CASES:
        kernel = source(case, target)
        stages = []
        for level in assemble_stepwise(kernel, target):
            stages.append(level.stage)
            if level.stage == "llir":
                break
        assert stages == ["ttir", "ttgir", "llir"], case.name


def test_levels_come_before_the_next_one_is_made() -> None:
    steps = assemble_stepwise(source(ROWS, TARGETS["sm_90"]), TARGETS["sm_90"])
    assert next(steps).stage == "ttir"
    steps.close()


def test_several_kernels_at_once() -> None:
    target = TARGETS["sm_90"]
    named = [source(case, target) for case in CASES if case.name in ("broadcast_add", "shifted")]
    kernels = [KernelSource(**{field: getattr(kernel, field) for field in kernel.__slots__} | {"name": name,
               "text": kernel.text.replace("def k(", f"def {name}(")}) for name, kernel in zip("ab", named, strict=True)]  # fmt: skip
    levels = list(assemble_many(kernels, target))
    for name in "ab":
        assert [level.stage for level in levels if level.kernel == name] == ["ttir", "ttgir", "llir", "ptx", "sass"]


def test_a_kernel_that_does_not_compile_names_its_level() -> None:
    kernel = source(ROWS, TARGETS["sm_90"])
    broken = KernelSource(
        **{field: getattr(kernel, field) for field in kernel.__slots__} | {"text": kernel.text.replace("tl.exp(", "tl.nothing(")}
    )
    with pytest.raises(CompileError, match="nothing") as caught:
        assemble(broken, TARGETS["sm_90"])
    assert caught.value.stage == "ttir"


def test_disassembly_is_cached_by_the_binary(tmp_path) -> None:
    cache, kernel = KernelCache(tmp_path), source(ROWS, TARGETS["sm_80"])
    first = assemble(kernel, TARGETS["sm_80"], cache)
    again = assemble(kernel, TARGETS["sm_80"], cache)
    assert (cache.hits, cache.misses) == (1, 1)
    assert first.level("sass").text == again.level("sass").text


def test_x86_code_leads_back_to_origins(tmp_path) -> None:
    program = ROWS.program()
    sources = generate(program, TARGETS["cpu"])
    library = build_cpp(sources.unit.text, KernelCache(tmp_path))
    (level,) = disassemble_cpp(library, sources.unit, sources.kernels)
    assert level.stage == "sass"
    assert level.language == "asm"
    assert "_ZGV" in level.facts["vector_calls"], "the exponential must be a vector one"
    assert origins_where(level, r"call .*_ZGV\w+_expf") == {EXPONENTIAL}
    assert origins_where(level, r"v?sub[sp]s") <= {DIFFERENCE, EXPONENTIAL, 0}


def test_many_threads_parse_kernels() -> None:
    """CPython counts the parser's depth for all threads together, so that two at once may end in a SystemError."""
    target = TARGETS["sm_90"]
    kernels = [source(case, target) for case in CASES] * 6
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(4) as pool:
            levels = list(pool.map(lambda kernel: next(assemble_stepwise(kernel, target)).stage, kernels))
    finally:
        sys.setswitchinterval(before)
    assert set(levels) == {"ttir"}
