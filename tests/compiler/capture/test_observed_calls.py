"""What Inductor calls instead of writing loops: as many calls as the code makes, each with its library and why, as of our own compiler."""

from __future__ import annotations

import re

import pytest

from compiler.options import Options
from compiler.snippet import run_snippet
from compiler.target import find_target
from compiler.trace import Trace

PROGRAMS = {
    "linalg": "def f(a):\n    q, r = torch.linalg.qr(a @ a.mT)\n    u, s, v = torch.linalg.svd(a)\n"
    "    return q + r, s, torch.linalg.inv(a), torch.linalg.det(a)\ninputs = [torch.randn(4, 4)]\n",
    "sort": "def f(a):\n    values, places = a.sort()\n    return values + 1, places, a.cumsum(0), torch.histc(a)\ninputs = [torch.randn(40)]\n",
    "put": "def f(a, i):\n    return torch.index_put(a, [i], a[0], accumulate=True), a.half().scatter_reduce(0, i[:, None], a.half(), 'prod')\n"
    "inputs = [torch.randn(5, 5), torch.tensor([1, 1])]\n",
    "nothing": "def f(a):\n    return torch.cat([a, a + 1])\ninputs = [torch.randn(5)]\n",
}


def traced(source, compiler="inductor", target="cpu"):
    events = []
    run_snippet("import torch\n" + source, Options.parse({"measure": False}), find_target(target), compiler, events.append)
    trace = Trace.fold(events)
    assert trace.status == "ok", trace.problem
    return trace


@pytest.mark.parametrize("target", ["cpu", "sm_90"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_calls_are_counted_once_and_have_reasons(name, target):
    trace = traced(PROGRAMS[name], target=target)
    loops, code = (trace.stage(stage, 0, "forward") for stage in ("loops", "code"))
    called = [decision for decision in loops.decisions if decision.verdict == "extern"]
    externs = [kernel for kernel in code.kernels if kernel.kind == "extern"]
    text = trace.stage("wrapper", 0, "forward").sections[0].text
    body = text[text.index("def call(") :]
    written = re.findall(r"(?:torch\.ops\.\w+\.\w+\.\w+|torch\.ops\.\w+\.\w+|extern_kernels\.\w+|aten\.\w+(?:\.\w+)?)\(", body)
    assert len(called) == len(externs) == loops.facts["extern_calls"] == len(written)
    assert all(decision.reason and decision.numbers["library"] and decision.origins for decision in called)
    assert {kernel.facts["reason"] for kernel in externs} == {decision.reason for decision in called}
    fallbacks = [decision for decision in called if decision.rule in ("fallback", "unsupported")]
    assert loops.facts["fallback_kernels"] == len(fallbacks)


def test_both_compilers_make_the_same_calls_of_linear_algebra():
    ours, theirs = (traced(PROGRAMS["linalg"], compiler).stage("loops", 0, "forward") for compiler in ("fuselab", "inductor"))
    assert ours.facts["extern_calls"] == theirs.facts["extern_calls"]
    assert ours.facts["fallbacks"] == theirs.facts["fallback_kernels"]


def test_reasons_tell_what_inductor_lacks():
    told = {d.numbers["op"]: (d.rule, d.reason) for d in traced(PROGRAMS["sort"]).stage("loops", 0, "forward").decisions}
    assert told["aten.histc.default"] == ("fallback", "Inductor has no lowering for this op: PyTorch's own kernel is called.")
    rule, reason = next(found for op, found in told.items() if op.startswith("aten.sort"))
    assert rule == "sort"
    assert "but not for these operands" in reason
    products = traced(PROGRAMS["linalg"]).stage("loops", 0, "forward").decisions
    assert ("extern_kernels.mm", "matmul", "oneMKL") in {(d.numbers["op"], d.rule, d.numbers["library"]) for d in products}
