"""Regions out of the ordinary: graphs that Dynamo drops, ops that take functions, ragged tensors, other backends; each is told, none breaks."""

import pytest
import torch

from compiler.observe.inductor_config import UnknownEntry, checked_entries
from compiler.options import Options
from compiler.snippet import run_snippet
from compiler.target import find_target
from compiler.trace import STAGE_NAMES, Stage, Trace

NUMBERS = """
@torch.compile
def f(x, s):
    return x + s if s > 1e4 else x.sin() + 1
for s in (1.5, 2.5, 3.5):
    f(torch.ones(4), s)
"""
BROKEN = """
@torch.compile
def f(x):
    s = x.abs().max().item()
    if s > 1e4:
        print("large")
    return x.sin() + 1
for n in (4, 5, 6):
    f(torch.randn(n))
"""
COND = """
f = torch.compile(lambda x: torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos() + 1, (x,)), fullgraph=True)
f(torch.ones(4))
"""
WHILE = """
from torch._higher_order_ops import while_loop
f = torch.compile(lambda i, x: while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, x * 1.5), (i, x)), fullgraph=True)
f(torch.tensor(0), torch.ones(4))
"""
FLEX = """
from torch.nn.attention.flex_attention import flex_attention
f = torch.compile(lambda q, k, v: flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s + (i - j) * 0.1))
f(*(torch.randn(1, 2, 128, 16) for _ in range(3)))
"""
RAGGED = """
x = torch.nested.nested_tensor([torch.randn(3, 8), torch.randn(5, 8)], layout=torch.jagged)
f = torch.compile(lambda x: x.relu() * 2)
f(x)
"""
KERNEL = """
import triton
import triton.language as tl

@triton.jit
def double(x, n: tl.constexpr):
    i = tl.arange(0, n)
    tl.store(x + i, tl.load(x + i) * 2)
"""


def events_of(source, compiler, target):
    events = []
    run_snippet("import torch\n" + source, Options.parse({"measure": False}), find_target(target), compiler, events.append)
    return events


def eager_ops(trace):
    return [kernel.name for stage in trace.stages if stage.name == "eager" for kernel in stage.kernels]


@pytest.mark.parametrize(
    ("source", "compiler", "count"),
    [
        (NUMBERS, "fuselab", 1),
        (NUMBERS, "inductor", 1),
        (NUMBERS, "eager", 0),  # AOTAutograd, which finds the constants, is not run
        (BROKEN, "fuselab", 1),
        (BROKEN, "inductor", 1),
        (BROKEN, "eager", 0),
    ],
)
def test_a_graph_that_dynamo_drops_says_so_in_every_stage(source, compiler, count):
    events = events_of(source, compiler, "sm_90")
    for stage in (event for event in events if isinstance(event, Stage)):
        items = (*stage.decisions, *stage.kernels, *stage.timings, *(stage.drawing.nodes if stage.drawing else ()))
        places = [place for section in stage.sections for row in section.marks for place in row]
        places += [place for item in items for place in item.origins]
        assert all(place < len(stage.origins) for place in places), (stage.region, stage.name)
    trace = Trace.fold(events)
    assert trace.status == "ok"
    anew = [region for region in trace.regions if region.title.endswith(", traced anew")]
    assert len(anew) == count
    given_up = {region.id - 1 for region in anew}
    for region in given_up:
        dropped = [stage for stage in trace.stages if stage.region == region]
        assert {stage.name for stage in dropped} == set(STAGE_NAMES)
        assert all(stage.reason for stage in dropped if stage.name != "dynamo")
        assert "traced_anew" in {decision.rule for stage in dropped for decision in stage.decisions}
    frames = [stage.facts["frame"] for stage in trace.stages if stage.name == "dynamo" and stage.region not in given_up]
    assert len(frames) == len(set(frames))  # one region for each graph that Dynamo kept


@pytest.mark.parametrize("target", ["cpu", "sm_90"])
@pytest.mark.parametrize(
    ("source", "ops"),
    [
        (COND, {"aten.sin.default": 1, "aten.cos.default": 0}),
        (WHILE, {"aten.mul.Tensor": 5, "aten.add.Tensor": 5, "aten.lt.Scalar": 6}),
        (FLEX, {"aten.matmul.default": 2, "aten.logsumexp.default": 1}),
    ],
    ids=["cond", "while", "flex"],
)
def test_ops_inside_of_ops_that_take_functions_are_eager_kernels(source, ops, target):
    trace = Trace.fold(events_of(source, "eager", target))
    assert trace.status == "ok", trace.problem
    found = eager_ops(trace)
    assert {name: found.count(name) for name in ops} == ops


@pytest.mark.parametrize("compiler", ["inductor", "eager"])
def test_ragged_tensors_have_stages(compiler):
    trace = Trace.fold(events_of(RAGGED, compiler, "sm_90"))
    assert trace.status == "ok", trace.problem
    eager = next(stage for stage in trace.stages if stage.name == "eager")
    relu = next(kernel for kernel in eager.kernels if kernel.name == "aten.relu.default")
    assert relu.facts["bytes_read"] == (3 + 5) * 8 * 4


@pytest.mark.parametrize(
    "argument", ["backend='eager'", "backend='aot_eager'", "backend=lambda gm, inputs: gm.forward"], ids=["eager", "aot", "own"]
)
def test_another_backend_is_said_not_to_be_run(argument):
    trace = Trace.fold(events_of(f"torch.compile(lambda x: x + 1, {argument})(torch.ones(3))", "inductor", "sm_90"))
    assert trace.status == "ok"
    assert any("was not run" in note for note in trace.notes)


@pytest.mark.parametrize(
    ("argument", "named", "meant"),
    [("backend='inductr'", "inductr", "inductor"), ("options={'max_fusion_sise': 3}", "max_fusion_sise", "max_fusion_size")],
)
def test_a_wrong_name_is_answered_with_the_nearest(argument, named, meant):
    problem = Trace.fold(events_of(f"\ntorch.compile(lambda x: x + 1, {argument})(torch.ones(3))", "inductor", "sm_90")).problem
    assert problem is not None
    assert named in problem.message
    assert meant in problem.hint
    assert problem.line == 3


@pytest.mark.parametrize("name", ["post_grad_custom_pre_pass", "custom_partitioner_fn", "inductor_choices_class"])
def test_an_entry_that_takes_a_function_takes_no_text(name):
    with pytest.raises(UnknownEntry, match="is a function"):
        checked_entries([(f"inductor.{name}", "print")])


@pytest.mark.skipif(torch.cuda.is_available(), reason="with a GPU the kernel runs")
def test_a_kernel_of_the_script_needs_a_gpu_and_says_so(tmp_path, monkeypatch):
    (tmp_path / "own_kernels.py").write_text(KERNEL)  # Triton reads a kernel's source from a file
    monkeypatch.syspath_prepend(tmp_path)
    source = "from own_kernels import double\n\nf = torch.compile(lambda x: double[(1,)](x.sin(), 4))\nf(torch.ones(4))"
    problem = Trace.fold(events_of(source, "inductor", "cpu")).problem
    assert problem is not None
    assert "Triton" in problem.hint
    assert problem.line == 4


def test_a_class_without_a_module_is_named():
    source = "class Net(torch.nn.Module):\n    def forward(self, x):\n        return x.sin()"
    problem = Trace.fold(events_of(source, "inductor", "cpu")).problem
    assert problem is not None
    assert "Net" in problem.message
