"""The generated text: literals are exact, masks appear only where needed, every line knows its origins, wide spaces use 64-bit indices."""

from __future__ import annotations

import math
import struct
from dataclasses import replace

import pytest

from compiler.codegen import generate
from compiler.codegen.cpp_text import cpp_number
from compiler.codegen.triton import triton_source
from compiler.codegen.triton_text import triton_number
from compiler.ir import Buffer, Kernel, Load, Store, Tiling
from compiler.target import TARGETS
from tests.compiler.codegen.cases import CASES, broadcast_add, pointwise, softmax, transposed

SM90 = TARGETS["sm_90"]


@pytest.mark.parametrize("value", [0.1, 1e-45, 3.4e38, -0.0, 1 / 3, 1e-5, 16777217.0])
def test_float_literals_are_exact(value: float) -> None:
    single = struct.unpack("f", struct.pack("f", value))[0]
    text = cpp_number(value, "float32").strip("()").rstrip("f")
    assert struct.pack("f", float(text)) == struct.pack("f", single)
    assert float(cpp_number(value, "float64").strip("()")) == value
    assert float(triton_number(value, "float64")) == value


def test_special_numbers() -> None:
    assert eval(triton_number(float("-inf"), "float32")) == -math.inf
    assert math.isnan(eval(triton_number(math.nan, "float32")))
    assert "inff" in cpp_number(math.inf, "float32")
    assert cpp_number(-(2**63), "int64") == "(-INT64_C(9223372036854775807) - 1)"
    assert cpp_number(1e39, "float32") == "(__builtin_inff())"


def text_of(kernel: Kernel, buffers: dict[str, Buffer]) -> str:
    return triton_source(kernel, buffers, SM90).text


def test_no_mask_where_the_block_divides_the_space() -> None:
    body = (Load("a", 0, (1,), "float32"), Store("out", 0, (1,), 0, "float32"))
    buffers = {name: Buffer(name, "float32", (128,), (1,), "cuda") for name in ("a", "out")}
    assert "mask" not in text_of(pointwise("k", (128,), body, ["a", "out"], ["out"], 64), buffers)
    assert "x_mask = x < 100" in text_of(pointwise("k", (100,), body, ["a", "out"], ["out"], 64), buffers)


def test_loops_that_memory_walks_as_one_are_one() -> None:
    """(4, 8, 16) contiguous is one index; only the broadcast along the middle needs two."""
    body = (Load("a", 0, (128, 16, 1), "float32"), Load("b", 0, (16, 0, 1), "float32"), Store("out", 0, (128, 16, 1), 0, "float32"))
    buffers = {"a": Buffer("a", "float32", (4, 8, 16), (128, 16, 1), "cuda"), "b": Buffer("b", "float32", (4, 16), (16, 1), "cuda"),
               "out": Buffer("out", "float32", (4, 8, 16), (128, 16, 1), "cuda")}  # fmt: skip
    text = text_of(pointwise("k", (4, 8, 16), body, ["a", "b", "out"], ["out"], 64), buffers)
    assert "tl.load(a + x)" in text
    assert "tl.store(out + x, " in text
    assert "i0 = x // 128" in text
    assert "i2 = x % 16" in text
    assert "i1" not in text


def test_spaces_beyond_32_bits_use_64_bit_indices() -> None:
    size = 2**31
    body = (Load("a", 0, (1,), "int8"), Store("out", 0, (1,), 0, "int8"))
    buffers = {name: Buffer(name, "int8", (size,), (1,), "cuda") for name in ("a", "out")}
    assert "tl.program_id(0).to(tl.int64)" in text_of(pointwise("k", (size,), body, ["a", "out"], ["out"], 1024), buffers)
    small = {name: replace(buffer, shape=(1000,)) for name, buffer in buffers.items()}
    assert "int64" not in text_of(pointwise("k", (1000,), body, ["a", "out"], ["out"], 1024), small)


def test_long_rows_loop_once_for_each_reduced_phase() -> None:
    case = softmax("s", 4, 1000, False, Tiling(1, 256, 4))
    text = generate(case.program("cuda"), SM90).kernels[0].text
    assert text.count("for start in range(0, 1000, ROW):") == 3
    case = softmax("s", 4, 1000, True, Tiling(1, 1024, 4))
    assert "for " not in generate(case.program("cuda"), SM90).kernels[0].text


@pytest.mark.parametrize("target", ["cpu", "sm_90"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_line_has_marks_and_every_store_its_own_origin(case, target: str) -> None:
    sources = generate(case.program("cuda" if target != "cpu" else "cpu"), TARGETS[target])
    for kernel in sources.kernels:
        assert kernel.text.endswith("\n")
        lines = kernel.text.splitlines()
        assert len(lines) == len(kernel.marks)
        used = {origin for marks in kernel.marks for origin in marks}
        stores = {line.origin for line in case.kernel.body if isinstance(line, Store)}
        assert stores <= used
    if sources.unit:
        assert sources.unit.text.count("\n") == len(sources.unit.marks)


def test_tiles_of_two_axes_only_where_accesses_disagree() -> None:
    assert "y_mask" in generate(transposed().program("cuda"), SM90).kernels[0].text
    assert "y = " not in generate(broadcast_add().program("cuda"), SM90).kernels[0].text, "210 elements are too few"


def test_comments_name_the_aten_ops() -> None:
    case = broadcast_add()
    for target in ("cpu", "sm_90"):
        text = generate(case.program("cuda" if target != "cpu" else "cpu"), TARGETS[target]).kernels[0].text
        assert "aten.op3" in text


def test_no_fused_rounding_is_asked_for() -> None:
    """Neither compiler may contract a product and a sum: eager rounds both."""
    case = broadcast_add()
    assert "enable_fp_fusion=False" in generate(case.program("cuda"), SM90).wrapper.text
    assert "-ffp-contract=off" in generate(case.program(), TARGETS["cpu"]).wrapper.text
