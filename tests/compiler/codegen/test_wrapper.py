"""The wrapper module runs alone, gives memory back, and calls libraries on the views that the program says."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from compiler.codegen import generate
from compiler.ir import Allocation, Apply, Buffer, Extern, Graph, Kernel, Load, Phase, Program, Ref, Store, Symbol, Tiling
from compiler.runtime.cache import KernelCache
from compiler.runtime.launch import load_program
from compiler.target import TARGETS
from compiler.trace import Origin
from tests.compiler.codegen.cases import CASES


def chain(name: str, op: str, source: str, result: str) -> Kernel:
    body = (
        Load(source, 0, (1,), "float32", origin=1),
        Apply(op, (0,), "float32", origin=1),
        Store(result, 0, (1,), 1, "float32", origin=1),
    )
    return Kernel(name, (name,), (64,), (), False, (Phase(0, 3, False),), body, (source, result), (result,), Tiling(64, 1, 1), 512, 1)


def program(device: str = "cpu") -> Program:
    """relu, then a product with a transposed view and a constant, then exp in the memory of the first result."""
    shape, strides = (8, 8), (8, 1)
    buffers = {name: Buffer(name, "float32", shape, strides, device) for name in ("x", "weight", "a", "c", "d")}
    buffers["b"] = Buffer("b", "float32", shape, (1, 8), device)  # the library returns it with other strides
    view = Ref("a", (8, 7), (1, 8), 8)
    product = Extern("product", "aten.mm", "torch.ops.aten.mm.default", (view, Ref("weight", (7, 8), (8, 1))), (), ("b",), True, "cuBLAS", "gemm",
                     "matrix products are a library's", 2)  # fmt: skip
    sums = Extern("sums", "aten.sum", "torch.ops.aten.sum.dim_IntList", (Ref("b", shape, (1, 8)), (0,), False), (("dtype", Symbol("torch.float32")),), ("e",), True,
                  "aten", "fallback", "not lowered", 2)  # fmt: skip
    buffers["e"] = Buffer("e", "float32", (8,), (1,), device)
    steps = (chain("k0", "relu", "x", "a"), product, chain("k1", "exp", "b", "c"), sums, chain("k2", "neg", "c", "d"))
    graph = Graph(
        buffers,
        ("x", None),
        ("weight",),
        (),
        (Ref("d", (8, 8), (1, 8)), 3, None, Ref("e", (8,), (1,))),
        (Origin(), Origin(line=1), Origin(line=2)),
    )
    allocations = ((Allocation("a"),), (), (Allocation("c", "a"),), (), (Allocation("d"),))
    return Program(graph, steps, allocations, ((), (), (), ("b",), ("c",)), 1024)


def expected(x: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    a = x.relu()
    b = a.as_strided((8, 7), (1, 8), 8) @ weight[:7]
    return -b.exp(), b.sum(0)


def test_steps_views_constants_and_reused_memory(tmp_path) -> None:
    x, weight = torch.randn(8, 8), torch.randn(8, 8)
    made = program()
    sources = generate(made, TARGETS["cpu"], {"weight": weight})
    assert "takes over its memory" in sources.wrapper.text
    assert "del b" in sources.wrapper.text
    loaded = load_program(made, sources, TARGETS["cpu"], {"weight": weight}, KernelCache(tmp_path))
    results = loaded([x, None])
    exp, total = expected(x, weight)
    torch.testing.assert_close(results[0], exp)
    assert results[1:3] == [3, None]
    torch.testing.assert_close(results[3], total)


def test_steps_can_be_repeated_without_changing_what_others_read(tmp_path) -> None:
    x, weight = torch.randn(8, 8), torch.randn(8, 8)
    made = program()
    loaded = load_program(made, generate(made, TARGETS["cpu"]), TARGETS["cpu"], {"weight": weight}, KernelCache(tmp_path))
    steps = list(loaded.steps([x, None]))
    assert [name for name, _ in steps] == ["k0", "product", "k1", "sums", "k2"]
    for _, step in steps * 3:
        step()
    torch.testing.assert_close(steps[4][1].arguments[1].t(), expected(x, weight)[0])


def test_marks_lead_from_the_wrapper_to_origins() -> None:
    wrapper = generate(program(), TARGETS["cpu"]).wrapper
    lines = wrapper.text.splitlines()
    assert len(lines) == len(wrapper.marks)
    launch = next(number for number, line in enumerate(lines) if line.strip().startswith("k1("))
    call = next(number for number, line in enumerate(lines) if "aten.mm.default" in line)
    assert (wrapper.marks[launch], wrapper.marks[call]) == ((1,), (2,))


@pytest.mark.parametrize(("target", "interpret"), [("cpu", "0"), ("sm_90", "1")])
def test_a_downloaded_wrapper_runs_alone(tmp_path, target: str, interpret: str) -> None:
    """In a fresh process, in a folder from which this project cannot be imported."""
    case = next(case for case in CASES if case.name == "rounding_bfloat16")
    made = case.program("cuda" if target != "cpu" else "cpu")
    file = tmp_path / "wrapper.py"
    file.write_text(generate(made, TARGETS[target]).wrapper.text)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([sys.executable, "-P", str(file)], cwd=tmp_path, capture_output=True, text=True, timeout=100,
                          env=environment | {"TRITON_INTERPRET": interpret}, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert "(2, 5, 128) torch.bfloat16 sum" in done.stdout
    assert "fuselab" not in {line.split()[1] for line in file.read_text().splitlines() if line.startswith(("import ", "from "))}


def test_names_that_collide_with_the_module_are_renamed() -> None:
    made = program()
    graph = made.graph
    renamed = Graph(
        {**graph.buffers, "torch": Buffer("torch", "float32", (2,), (1,), "cpu")},
        ("torch",),
        (),
        (),
        (Ref("torch", (2,), (1,)),),
        graph.origins,
    )
    text = generate(Program(renamed, (), (), (), 0), TARGETS["cpu"]).wrapper.text
    namespace: dict[str, object] = {}
    exec(compile(text, "wrapper", "exec"), namespace)
    given = torch.randn(2)
    assert namespace["call"]([given])[0] is given
