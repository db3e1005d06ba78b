"""Every row of the table against eager PyTorch, its C++ and its Triton against its reference, on ordinary and on special values."""

import ctypes
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from compiler.codegen.cpp_prelude import FLAGS, LIBRARIES, prelude
from compiler.ops import ATEN, CPP_TYPES, OPS, REDUCTIONS, Row, kind_of
from compiler.runtime.triton_private import compile_stages
from compiler.target import find_target
from tests.compiler.op_kernels import DTYPES, source
from tests.compiler.op_samples import computing_dtypes, operand_dtypes, result_dtype, sample, tolerance

CASES = [(row, dtype) for row in OPS.values() for dtype in computing_dtypes(row)]
SPELLINGS = [(overload, row) for overload, rows in ATEN.items() for row in rows]


def case_id(value: object) -> str:
    return value.name if isinstance(value, Row) else str(value)


def overload_of(name: str) -> torch._ops.OpOverload:
    _, packet, overload = name.split(".")
    return getattr(getattr(torch.ops.aten, packet), overload)


def test_there_are_at_least_as_many_rows_as_in_the_tables_of_inductor():
    assert len(OPS) >= 120
    assert len({overload for row in OPS.values() for overload in row.aten}) <= len(ATEN)


@pytest.mark.parametrize(("overload", "row"), SPELLINGS, ids=case_id)
def test_each_overload_exists_and_has_the_parameters_that_the_row_names(overload, row):
    schema = overload_of(overload)._schema
    names = {argument.name for argument in schema.arguments}
    assert set(row.operands) <= names
    assert set(row.when) <= names
    left = names - set(row.operands) - set(row.when)
    # What a row leaves out must not change the result.
    assert left <= {"self_is_result", "buffer"} | ({"self"} if overload.startswith("aten.fill") else set())


def eager_arguments(overload: str, row: Row, columns: list[torch.Tensor]) -> dict[str, object]:
    """Arguments by name; an operand that the schema wants as a number gets its first value. Also puts that value into the column."""
    arguments: dict[str, object] = dict(row.when)
    for parameter in overload_of(overload)._schema.arguments:
        if parameter.name in row.operands:
            column = columns[row.operands.index(parameter.name)]
            if "Tensor" not in str(parameter.type):
                number = column[0].item()
                column.fill_(number)
                arguments[parameter.name] = int(number) if str(parameter.type) == "int" else number
            else:
                arguments[parameter.name] = column
        elif parameter.name == "buffer":
            arguments[parameter.name] = torch.exp(-columns[1].abs())
        elif parameter.name == "self_is_result":
            arguments[parameter.name] = False
        elif parameter.name == "self":
            arguments[parameter.name] = torch.zeros_like(columns[0])
    return arguments


def eager_dtypes(row: Row) -> list[str]:
    if row.name in ("rand", "randn"):
        return []
    # In 16 bits eager rounds a quotient before it truncates it, and takes the root of -inf by pow on the CPU, by sqrt on a GPU.
    apart = row.name in ("trunc_divide", "pow_half", "pow_minus_half")
    halves = ["float16", "bfloat16"] if "float" in row.kinds and row.opmath and not apart else []
    integers = ["int64", "uint8", "bool"] if row.promote == "float" else []
    return [*computing_dtypes(row), *halves, *integers]


def computed(row: Row, dtype: str) -> str:
    """The dtype in which operands of ``dtype`` are computed."""
    if row.promote == "float" and kind_of(dtype) != "float":
        return "float32"
    return "float32" if row.opmath and dtype in ("float16", "bfloat16") else dtype


def settled(compute: Callable[[list[torch.Tensor]], torch.Tensor], columns: list[torch.Tensor]) -> torch.Tensor:
    """Where eager says the same of an element among others as of that element alone: on some CPUs its vectors turn gelu(inf) into NaN."""
    among = compute(columns)
    alone = torch.cat([compute([column[at : at + 1] for column in columns]) for at in range(len(among))])
    return (among == alone) | (among.isfinite() & alone.isfinite()) | (among.isnan() & alone.isnan())


@pytest.mark.parametrize(("overload", "row"), SPELLINGS, ids=case_id)
def test_the_reference_is_what_eager_computes(overload, row):
    tried = 0
    for dtype in eager_dtypes(row):
        computing = computed(row, dtype)
        columns = [column.to(getattr(torch, each)) for column, each in zip(sample(row, computing), operand_dtypes(row, dtype), strict=True)]

        def eager(columns):
            return overload_of(overload)(**eager_arguments(overload, row, columns))

        try:
            expected = eager(columns)
        except (RuntimeError, NotImplementedError):  # eager has no such kernel for this dtype, so that nobody can ask for it
            continue
        operands = [column.to(getattr(torch, each)) for column, each in zip(columns, operand_dtypes(row, computing), strict=True)]
        actual = row.reference(*operands)
        rounded = actual if row.promote == "bool" or kind_of(dtype) != "float" else actual.to(getattr(torch, dtype))
        assert expected.dtype == rounded.dtype, dtype
        same = settled(eager, columns) & settled(lambda given: row.reference(*given), operands)
        close = {"float16": {"rtol": 2e-3, "atol": 1e-3}, "bfloat16": {"rtol": 1.6e-2, "atol": 1e-2}}.get(dtype, tolerance(row, computing))
        torch.testing.assert_close(rounded[same], expected[same], equal_nan=True, **close, msg=lambda text, dtype=dtype: f"{dtype}: {text}")
        tried += 1
    assert tried


def cpp_function(row: Row, dtype: str) -> str:
    """A loop like those of the generator, on one line; bools lie in memory as bytes."""
    types = [CPP_TYPES[each] for each in operand_dtypes(row, dtype)]
    result = CPP_TYPES[result_dtype(row, dtype)]
    parameters = ", ".join(f"const {'uint8_t' if kind == 'bool' else kind}* p{k}" for k, kind in enumerate(types))
    loads = " ".join(f"const {kind} a{k} = p{k}[i]{' != 0' if kind == 'bool' else ''};" for k, kind in enumerate(types))
    value = row.print("cpp", [f"a{k}" for k in range(len(types))], dtype)
    return (
        f'extern "C" void {row.name}_{dtype}(int64_t n, {parameters}, {result}* __restrict out) {{ _Pragma("omp simd") '
        f"for (int64_t i = 0; i < n; ++i) {{ {loads} const {result} value = {value}; out[i] = value; }} }}\n"
    )


@pytest.fixture(scope="session")
def built(tmp_path_factory) -> tuple[Path, str]:
    """The library of all rows for all their dtypes, and g++'s remarks."""
    folder: Path = tmp_path_factory.mktemp("rows")
    functions = "".join(cpp_function(row, dtype) for row, dtype in CASES)
    (folder / "rows.cpp").write_text(prelude(functions) + "\n" + functions)
    flags = [
        *(flag for flag in FLAGS if not flag.startswith("-g")),
        "-fno-ipa-icf",
        "-Wall",
        "-Wno-unused-variable",
        "-fopt-info-vec-optimized",
    ]
    command = ["g++", *flags, str(folder / "rows.cpp"), "-o", str(folder / "rows.so"), *LIBRARIES]
    done = subprocess.run(command, check=True, stderr=subprocess.PIPE, text=True)
    assert "warning" not in done.stderr
    return folder / "rows.so", done.stderr


@pytest.fixture(scope="session")
def library(built) -> ctypes.CDLL:
    return ctypes.CDLL(str(built[0]))


def test_gcc_vectorises_every_row_that_no_scalar_function_of_the_library_stands_in(built):
    lines = built[0].with_suffix(".cpp").read_text().splitlines()
    vectorised = {int(number) for number in re.findall(r"rows\.cpp:(\d+):\d+: optimized: loop vectorized", built[1])}
    names = {number: match[1] for number, line in enumerate(lines, 1) if (match := re.match(r'extern "C" void (\w+)_float32\(', line))}
    scalar = {name for number, name in names.items() if number not in vectorised}
    calls = {
        "fmod",
        "remainder",
        "floor_divide",
        "lgamma",
        "nextafter",
        *(f"bessel_{kind}" for kind in ("i0", "i1", "j0", "j1", "y0", "y1", "i0e", "i1e", "k0", "k1")),
        *("scaled_bessel_k0", "scaled_bessel_k1", "spherical_bessel_j0", "airy_ai", "ndtri", "log_ndtr", "digamma", "trigamma"),
        *("frexp_mantissa", "frexp_exponent"),
        *(row.name for row in OPS.values() if row.only_cpp),
    }
    assert scalar <= calls | {"identity"}  # the identity is a call of memcpy


@pytest.mark.parametrize(("row", "dtype"), CASES, ids=case_id)
def test_the_cpp_template_computes_the_reference(row, dtype, library):
    columns = sample(row, dtype)
    expected = row.reference(*columns)
    actual = torch.empty(len(columns[0]), dtype=getattr(torch, result_dtype(row, dtype)))
    pointers = [ctypes.c_void_p(column.data_ptr()) for column in (*columns, actual)]
    getattr(library, f"{row.name}_{dtype}")(ctypes.c_int64(len(actual)), *pointers)
    assert expected.dtype == actual.dtype
    same = settled(lambda given: row.reference(*given), columns)
    torch.testing.assert_close(actual[same], expected[same], equal_nan=True, **tolerance(row, dtype))


@pytest.fixture(scope="session")
def interpreted(tmp_path_factory) -> dict[str, torch.Tensor]:
    """What Triton's interpreter makes of all rows, by "NAME DTYPE"."""
    file: Path = tmp_path_factory.mktemp("interpreted") / "rows.pt"
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    command = [sys.executable, "-W", "ignore", "-m", "tests.compiler.op_kernels", str(file)]
    subprocess.run(command, env=environment, check=True, cwd=Path(__file__).parents[2])
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize(("row", "dtype"), [case for case in CASES if not case[0].only_cpp], ids=case_id)
def test_the_triton_template_computes_the_reference(row, dtype, interpreted):
    columns = sample(row, dtype)
    actual, expected = interpreted[f"{row.name} {dtype}"], row.reference(*columns)
    assert expected.dtype == actual.dtype
    same = settled(lambda given: row.reference(*given), columns)
    torch.testing.assert_close(actual[same], expected[same], equal_nan=True, **tolerance(row, dtype))


@pytest.mark.parametrize("target", ["sm_90", "gfx942"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_triton_templates_compile_for_a_gpu(dtype, target):
    names = []
    for name, text, _ in compile_stages(source(dtype), find_target(target)):
        names.append(name)
        if name == "llir":  # what comes after knows no op of ours
            assert f"@rows_{dtype}(" in str(text)
            break
    assert names == ["ttir", "ttgir", "llir"]


@pytest.mark.parametrize("op", REDUCTIONS)
def test_the_identity_of_a_reduction_changes_nothing(op):
    row = REDUCTIONS[op]
    for dtype in ("float32", "int64", "int8"):
        value = torch.tensor([[3, -7, 7, 2]], dtype=getattr(torch, dtype))
        start = torch.full((1, 1), row.identity(dtype)).to(value.dtype)
        assert torch.equal(row.reference(torch.cat([value, start], 1), 1), row.reference(value, 1))
