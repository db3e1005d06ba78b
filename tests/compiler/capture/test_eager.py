"""Eager as a compiler: its ops are those that PyTorch's profiler sees, forward and backward, with their bytes, times and places."""

import re
from collections import Counter

import pytest
import torch

from compiler.options import Options
from compiler.snippet import run_snippet
from compiler.target import find_target
from compiler.trace import STAGE_NAMES, Trace

MLP = """
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
x, labels = torch.randn(5, 6), torch.tensor([0, 1, 2, 0, 1])
@torch.compile
def step(x, labels):
    return torch.nn.functional.cross_entropy(model(x), labels)
step(x, labels).backward()
"""
VIEWS = """
import torch
@torch.compile
def f(x):
    return x.t().reshape(-1)[2:] + x.view(-1)[:-2], x.expand(3, 4, 6).sum(0), torch.empty(3)
f(torch.randn(4, 6))
"""
IN_PLACE = """
import torch
@torch.compile
def f(x, index, bias):
    index.add_(1)
    y = x[index]
    y.mul_(2)
    return y + bias
f(torch.randn(4, 6), torch.tensor([0, 1, 2]), torch.zeros(6, requires_grad=True))
"""
ATTENTION = """
import torch
@torch.compile
def f(q):
    return torch.nn.functional.scaled_dot_product_attention(q, q, q)
f(torch.randn(1, 2, 8, 16))
"""
NO_KERNEL = {
    "empty",
    "empty_like",
    "empty_strided",
    "view",
    "t",
    "slice",
    "expand",
    "as_strided",
    "detach",
    "alias",
    "reshape",
    "_unsafe_view",
}


def traced(source, target="cpu", **options):
    events = []
    run_snippet(source, Options(**options), find_target(target), "eager", events.append)
    return Trace.fold(events)


def profiled(source):
    """The names of the ops that PyTorch's profiler sees when the script runs as it is, without torch.compile."""
    with torch.profiler.profile() as profile:
        exec(source.replace("@torch.compile\n", ""), {"__name__": "__main__"})
    return Counter(event.name.removeprefix("aten::") for event in profile.events() if event.name.startswith("aten::"))


def names(stage, part):
    return Counter(kernel.name.split(".")[1] for kernel in stage.kernels if kernel.part == part)


@pytest.mark.parametrize("source", [MLP, VIEWS, IN_PLACE, ATTENTION], ids=["mlp", "views", "in place", "attention"])
def test_its_ops_are_those_that_the_profiler_sees(source):
    trace = traced(source, measure=False)
    assert trace.status == "ok", trace.problem
    stage = trace.stage("eager")
    seen = profiled(source)
    assert not names(stage, "forward") - seen
    if source is MLP:
        assert not names(stage, "forward") + names(stage, "backward") - seen
    assert not set(names(stage, "forward")) & NO_KERNEL
    assert stage.facts["kernels"] == len(stage.kernels) == sum(kernel.kind == "extern" for kernel in stage.kernels)


def test_a_training_step_has_its_backward_pass():
    stage = traced(MLP, measure=False).stage("eager")
    backward = names(stage, "backward")
    assert backward["mm"] == 3, "two weights, and the input of the second layer"
    assert {"native_batch_norm_backward", "threshold_backward", "nll_loss_backward", "_log_softmax_backward_data"} <= set(backward)
    assert stage.facts["backward_kernels"] == backward.total()
    text, marks = next((section.text, section.marks) for section in stage.sections if "backward" in section.title)
    for row, places in zip(text.splitlines(), marks, strict=True):
        line = stage.origins[places[0]].line if places else 0
        if "nll_loss" in row or "log_softmax" in row:
            assert line == 8
        if "threshold" in row:
            assert line == 4, "a layer inside of a container comes from where it was built"


@pytest.mark.parametrize(("function", "read", "written"), [
    ("x + x", 4 * 96, 4 * 96), ("x + 1", 4 * 96, 4 * 96), ("x.sum()", 4 * 96, 4), ("x.sum(0)", 4 * 96, 4 * 8), ("x @ x.t()", 4 * 96, 4 * 144),
    ("x[:, :1].expand(12, 8) + 1", 4 * 12, 4 * 96), ("x.double()", 4 * 96, 8 * 96), ("torch.ones(5)", 0, 20),
])  # fmt: skip
def test_bytes(function, read, written):
    trace = traced(f"import torch\n@torch.compile\ndef f(x):\n    return {function}, x + 0\nf(torch.randn(12, 8))\n", measure=False)
    first = trace.stage("eager").kernels[0]
    assert (first.facts["bytes_read"], first.facts["bytes_written"], first.facts["bytes"]) == (read, written, read + written)


def test_each_op_and_each_call_is_timed():
    trace = traced(MLP)
    stage = trace.stage("eager")
    assert [(item.subject, item.part) for item in stage.timings] == [(kernel.name, kernel.part) for kernel in stage.kernels]
    for part in ("forward", "backward"):
        timing = trace.stage("timing", part=part)
        assert [(item.scope, item.compiler) for item in timing.timings] == [("call", "eager")]
        assert timing.facts["launches"] == sum(kernel.part == part for kernel in stage.kernels)
        assert all(0 < item.low_us <= item.median_us <= item.high_us and item.repeats >= 5 for item in (*timing.timings, *stage.timings))


def test_a_write_in_place_disturbs_no_other_measurement():
    trace = traced(IN_PLACE)
    assert trace.status == "ok", trace.problem
    timed = {item.subject for item in trace.stage("eager").timings}
    assert {"aten.add_.Tensor", "aten.mul_.Tensor", "aten.index.Tensor", "aten.add.Tensor"} <= timed


@pytest.mark.parametrize("target", ["cpu", "sm_90"])
def test_other_stages_are_skipped_with_one_reason(target):
    trace = traced(MLP, target, measure=False)
    told = {stage.name: stage for stage in trace.stages}
    assert set(told) == set(STAGE_NAMES)
    shown = {name for name, stage in told.items() if stage.status == "ok"}
    assert shown == {"eager", "dynamo"}
    assert len({stage.reason for name, stage in told.items() if name not in {*shown, "timing", "numerics"}}) == 1
    assert [note for note in trace.notes if "without compiling" in note]


def test_an_absent_gpu_is_not_measured_on():
    trace = traced(MLP, "sm_90")
    stage = trace.stage("eager")
    assert stage.kernels
    assert not stage.timings
    assert "dispatched_on_cpu" in {decision.rule for decision in stage.decisions}
    assert re.search("[Nn]ot measured on sm_90", trace.stage("timing", part="forward").reason)


def test_without_gradients_there_is_no_backward_pass():
    trace = traced(
        "import torch\n@torch.compile\ndef f(x):\n    return x.sin()\nwith torch.no_grad():\n    f(torch.randn(4, requires_grad=True))\n"
    )
    assert trace.stage("eager").facts["backward_kernels"] == 0
    assert trace.stage("timing", part="backward") is None
