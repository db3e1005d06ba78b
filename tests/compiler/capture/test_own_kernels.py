"""A script's own Triton kernels for a GPU that is not here: in the graph, in the code and down to SASS, with the answer of eager PyTorch."""

import importlib

import pytest
import torch
import triton.language as tl

from compiler.observe import own_kernels
from compiler.options import Options
from compiler.runtime import triton_launches
from compiler.snippet import run_snippet
from compiler.target import find_target
from compiler.trace import Trace
from tests.compiler.observe.test_torch_names import resolve

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="with a GPU the kernels run on it")

HEAD = """import torch
import triton
import triton.language as tl
"""
REDUCTION = """
@triton.jit
def twice(x):
    return x * 2

@triton.jit
def own(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * n + i, mask=i < n, other=0.0)
    tl.store(out_ptr + tl.program_id(0), tl.sum(twice(x), axis=0))

def launch(x):
    out = torch.empty(x.shape[0], device=x.device)
    own[(x.shape[0],)](x, out, x.shape[1], BLOCK=128)
    return out

def plain(x):
    return (x * 2).sum(1)
"""
AUTOTUNED = """
@triton.autotune(configs=[triton.Config({"BLOCK": 64}, num_warps=2), triton.Config({"BLOCK": 128})], key=["n"])
@triton.jit
def own(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n) * 2, mask=i < n)

def launch(x):
    out = torch.empty_like(x)
    own[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel())
    return out

def plain(x):
    return x * 2
"""
IN_PLACE = """
@triton.jit
def own(x_ptr, n):
    i = tl.program_id(0) * 64 + tl.arange(0, 64)
    tl.store(x_ptr + i, tl.exp(tl.load(x_ptr + i, mask=i < n)), mask=i < n)

def launch(x):
    y = x.clone()
    own[(triton.cdiv(x.numel(), 64),)](y, x.numel())
    return y

def plain(x):
    return x.exp()
"""
TAIL = """
x = torch.randn(8, 100, device="cuda")
result = torch.compile(lambda x: launch(x.sin()) + 1)(x)
torch.testing.assert_close(result, plain(x.sin()) + 1)
"""
KERNELS = {"reduction": REDUCTION, "autotuned": AUTOTUNED, "in place": IN_PLACE}


def traced(source, compiler, target="sm_90"):
    events = []
    run_snippet(source, Options.parse({"measure": False}), find_target(target), compiler, events.append)
    return Trace.fold(events)


@pytest.mark.parametrize("target", ["sm_90", "gfx942"])
@pytest.mark.parametrize("name", KERNELS)
def test_inductor_takes_the_launch_into_its_graph_and_the_kernel_reaches_machine_code(name, target):
    trace = traced(HEAD + KERNELS[name] + TAIL, "inductor", target)
    assert trace.status == "ok", trace.problem
    assert len(trace.regions) == 1
    dynamo, code, sass = (trace.stage(stage, 0, part) for stage, part in (("dynamo", ""), ("code", "forward"), ("sass", "forward")))
    assert dynamo.facts["graph_breaks"] == 0
    own = [kernel for kernel in code.kernels if kernel.name.startswith("own")]
    assert [kernel.kind for kernel in own] == ["triton"]
    assert own[0].name in {section.title for section in sass.sections}
    assert next(kernel for kernel in sass.kernels if kernel.name == own[0].name).facts["instructions"] > 0
    assert any("own" in note and "interpreter" in note for note in trace.notes)
    assert "triton.own" in [kernel.name for kernel in trace.stage("eager").kernels]


@pytest.mark.parametrize("compiler", ["fuselab", "eager"])
@pytest.mark.parametrize("name", KERNELS)
def test_elsewhere_the_graph_breaks_at_the_launch_which_runs_all_the_same(name, compiler):
    trace = traced(HEAD + KERNELS[name] + TAIL, compiler)
    assert trace.status == "ok", trace.problem
    breaks = [one for stage in trace.stages if stage.name == "dynamo" for one in stage.decisions if one.rule == "graph_break"]
    assert any("Triton kernel of its own" in one.reason for one in breaks)
    assert "own[" in (HEAD + KERNELS[name] + TAIL).splitlines()[breaks[0].numbers["line"] - 1]
    assert not trace.output


def test_what_the_interpreter_cannot_run_is_said(monkeypatch):
    monkeypatch.setattr(triton_launches, "SECONDS", 0.0)
    slow = traced(HEAD + AUTOTUNED + TAIL.rpartition("torch.testing")[0], "inductor")
    assert slow.status == "ok", slow.problem
    assert any("own was not run to its end" in note and "slow" in note for note in slow.notes)


def test_nothing_stays_behind():
    def state():
        jit, tuner = (
            importlib.import_module("triton.runtime.jit").JITFunction,
            importlib.import_module("triton.runtime.autotuner").Autotuner,
        )
        return [
            jit.run,
            jit.__call__,
            tuner.run,
            tuner._bench,
            torch.utils._triton.has_triton(),
            *(vars(tl)[name] for name in sorted(vars(tl))),
        ]

    before = state()
    traced(HEAD + REDUCTION + TAIL, "inductor")
    assert state() == before


@pytest.mark.parametrize("name", [*own_kernels.RELIES_ON, *triton_launches.RELIES_ON])
def test_the_name_exists(name):
    resolve(name)
