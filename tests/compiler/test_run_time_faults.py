"""What eager raises as well when a compiled function runs: whichever compiler made it, the error has the line and the op that eager has."""

from __future__ import annotations

import pytest

from compiler.options import Options
from compiler.snippet import run_snippet
from compiler.target import find_target
from compiler.trace import Trace

EMBEDDING = """import torch

@torch.compile
def f(table, ids):
    x = table * 2
    rows = torch.nn.functional.embedding(ids, x)
    return rows.sin()

"""
CALL = "f(torch.randn(10, 4, requires_grad={grad}), torch.tensor([1, {index}]))\n"
PRODUCT = """import torch

@torch.compile
def f(a, b):
    x = a.sin()
    return x @ b

f(torch.randn(4, 4), torch.randn(4, 4).half())
"""
PROGRAMS = {
    "first call": (EMBEDDING + CALL.format(index=20, grad=False), 6, "aten.embedding.default"),
    "first call, trained": (EMBEDDING + CALL.format(index=20, grad=True), 6, "aten.embedding.default"),
    "later call": (EMBEDDING + CALL.format(index=2, grad=False) + CALL.format(index=20, grad=False), 6, "aten.embedding.default"),
    "later call, trained": (EMBEDDING + CALL.format(index=2, grad=True) + CALL.format(index=20, grad=True), 6, "aten.embedding.default"),
    "dtypes": (PRODUCT, 6, "aten.mm.default"),
    "dtypes of a module": (
        "import torch\nm = torch.compile(torch.nn.Linear(8, 8).half())\nm(torch.randn(2, 8))\n",
        3,
        "aten.addmm.default",
    ),
}


def traced(source, compiler):
    events = []
    run_snippet(source, Options.parse({"measure": False}), find_target("cpu"), compiler, events.append)
    return Trace.fold(events)


@pytest.mark.parametrize("compiler", ["inductor", "fuselab"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_error_has_the_place_that_eager_has(name, compiler):
    source, line, op = PROGRAMS[name]
    trace = traced(source, compiler)
    problem = trace.problem
    assert problem is not None
    assert problem.line == line
    assert problem.op in (op, "embedding")  # the name in the graph, where only that one was run
    assert "Eager PyTorch raises" in problem.hint
    assert problem.kind != "internal"


@pytest.mark.parametrize("compiler", ["inductor", "fuselab"])
def test_a_caught_error_of_one_call_is_not_laid_to_the_next(compiler):
    source = EMBEDDING + CALL.format(index=2, grad=False)
    source += "try:\n    " + CALL.format(index=20, grad=False) + "except (IndexError, RuntimeError):\n    print('caught')\n" + "boom\n"
    problem = traced(source, compiler).problem
    assert (problem.line, problem.op) == (14, "")
    assert "boom" in problem.message
