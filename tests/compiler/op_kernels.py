"""All Triton templates of the table as one kernel per dtype, in the text that is compiled for GPUs and run by Triton's interpreter.

``python -m tests.compiler.op_kernels FILE`` runs the kernels in the interpreter and saves the results by row and dtype.
"""

import importlib.util
import os
import sys
from pathlib import Path

import torch

from compiler.codegen.sources import KernelSource
from compiler.ops import OPS, TRITON_TYPES, Row, triton_prelude
from compiler.runtime.interpreted_libdevice import install
from tests.compiler.op_samples import computing_dtypes, operand_dtypes, result_dtype, sample

DTYPES = ("float32", "float64", "int64", "int32", "int8", "uint8", "bool")
HEAD = "import triton\nimport triton.language as tl\nfrom triton.language.extra import libdevice\n\n\n"
COUNT = 512


def rows_for(dtype: str) -> list[Row]:
    return [row for row in OPS.values() if dtype in computing_dtypes(row) and not row.only_cpp]


def stored(dtype: str) -> str:
    """Bools lie in memory as bytes."""
    return "int8" if dtype == "bool" else dtype


def kernel(dtype: str, rows: list[Row]) -> str:
    """``rows_DTYPE(out_0, ..., in_0_0, ...)``: each row on its own operands."""
    outs = [f"out_{n}" for n in range(len(rows))]
    ins = [f"in_{n}_{k}" for n, row in enumerate(rows) for k in range(len(row.operands))]
    lines = ["@triton.jit", f"def rows_{dtype}({', '.join(outs + ins)}, COUNT: tl.constexpr):", "    at = tl.arange(0, COUNT)"]
    for n, row in enumerate(rows):
        for k, each in enumerate(operand_dtypes(row, dtype)):
            load = f"tl.load(in_{n}_{k} + at)"
            lines.append(f"    a_{n}_{k} = {load} != 0" if each == "bool" else f"    a_{n}_{k} = {load}")
        lines.append(f"    v_{n} = {row.print('triton', [f'a_{n}_{k}' for k in range(len(row.operands))], dtype)}")
        result = result_dtype(row, dtype)
        lines.append(f"    tl.static_assert(v_{n}.dtype == {TRITON_TYPES[result]}, '{row.name}')")
        lines.append(f"    tl.store(out_{n} + at, v_{n}.to({TRITON_TYPES[stored(result)]}))")
    return "\n".join(lines) + "\n"


def module_text() -> str:
    kernels = "\n\n".join(kernel(dtype, rows_for(dtype)) for dtype in DTYPES)
    return f"{HEAD}{triton_prelude(kernels)}\n\n{kernels}"


def source(dtype: str) -> KernelSource:
    """The kernel of all rows for that dtype, one element a thread."""
    rows = rows_for(dtype)
    body = kernel(dtype, rows)
    parameters = {f"out_{n}": stored(result_dtype(row, dtype)) for n, row in enumerate(rows)}
    parameters |= {f"in_{n}_{k}": stored(each) for n, row in enumerate(rows) for k, each in enumerate(operand_dtypes(row, dtype))}
    text = f"{HEAD}{triton_prelude(body)}\n\n{body}"
    names = tuple(parameters)
    return KernelSource(f"rows_{dtype}", "triton", text, (), names, names, tuple(parameters.values()), 0, 1, (("COUNT", 128),))


def load_module(folder: Path) -> object:
    path = folder / "row_kernels.py"
    path.write_text(module_text())
    spec = importlib.util.spec_from_file_location("row_kernels", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def interpret_rows(file: Path) -> None:
    install()
    module = load_module(file.parent)
    results = {}
    for dtype in DTYPES:
        rows = rows_for(dtype)
        outs, ins = [], []
        for row in rows:
            columns = sample(row, dtype)
            padded = [torch.ones(COUNT, dtype=column.dtype) for column in columns]
            for pad, column in zip(padded, columns, strict=True):
                pad[: len(column)] = column
            ins += [pad.to(torch.int8) if pad.dtype == torch.bool else pad for pad in padded]
            outs.append(torch.empty(COUNT, dtype=getattr(torch, stored(result_dtype(row, dtype)))))
        getattr(module, f"rows_{dtype}")[(1,)](*outs, *ins, COUNT)
        for row, out in zip(rows, outs, strict=True):
            results[f"{row.name} {dtype}"] = out[: len(sample(row, dtype)[0])].to(getattr(torch, result_dtype(row, dtype)))
    torch.save(results, file)


if __name__ == "__main__":
    assert os.environ["TRITON_INTERPRET"] == "1"
    interpret_rows(Path(sys.argv[1]))
