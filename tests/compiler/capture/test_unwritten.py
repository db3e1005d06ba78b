"""Results that are memory which nobody wrote are not compared with eager, and all others are."""

from __future__ import annotations

import pytest

from compiler.options import Options
from compiler.snippet import run_snippet
from compiler.target import find_target
from compiler.trace import Trace

BODIES = {
    "not at all": ("return torch.empty_like(x), x + 1", ["unwritten", "within_tolerance"]),
    "partly": ("y = x.new_empty(x.shape)\n    y[:2] = x[:2]\n    return y, x.sin()", ["unwritten", "within_tolerance"]),
    "read": ("return torch.empty(4, 3) + x", ["unwritten"]),
    "whole numbers": ("return torch.empty(4, dtype=torch.int64)", ["unwritten"]),
    "bools": ("return torch.empty(4, dtype=torch.bool)", ["unwritten"]),
    "in two steps": ("y = torch.empty_like(x)\n    y[:2] = x[2:]\n    y[2:] = x[:2]\n    return y", ["within_tolerance"]),
    "copied": ("y = torch.empty_like(x)\n    y.copy_(x * 2)\n    return y", ["within_tolerance"]),
    "out": ("y = torch.empty_like(x)\n    torch.sin(x, out=y)\n    return y", ["within_tolerance"]),
    "the shape alone": ("return torch.zeros_like(torch.empty_like(x)) + x", ["within_tolerance"]),
    "none": ("return x + 1", ["within_tolerance"]),
}


def traced(body, compiler="fuselab", target="cpu"):
    events = []
    source = f"import torch\n@torch.compile\ndef f(x):\n    {body}\nf(torch.randn(4, 3))\n"
    run_snippet(source, Options.parse({"measure": False}), find_target(target), compiler, events.append)
    trace = Trace.fold(events)
    assert trace.status == "ok", trace.problem
    return trace.stage("numerics", 0, "forward")


@pytest.mark.parametrize(("compiler", "target"), [("fuselab", "cpu"), ("inductor", "cpu"), ("fuselab", "sm_90")])
@pytest.mark.parametrize("name", BODIES)
def test_only_what_was_written_is_compared(name, compiler, target):
    body, rules = BODIES[name]
    stage = traced(body, compiler, target)
    if stage.status == "skipped":
        pytest.skip(stage.reason)
    assert [decision.rule for decision in stage.decisions] == rules
    assert stage.facts["equal_to_eager"] is True
    assert stage.facts.get("never_written", 0) == rules.count("unwritten")
