"""Scripts as people paste them: what is compiled, where it comes from, what is printed, and what is said when it goes wrong."""

import io
import re
import sys
import textwrap

import pytest
import torch

from compiler.options import Options
from compiler.snippet import run_snippet
from compiler.target import find_target
from compiler.trace import Begin, End, Trace

QUICK = Options(measure=False)


def run(source, target="cpu", options=QUICK):
    events = []
    code = run_snippet(textwrap.dedent(source), options, find_target(target), "fuselab", events.append)
    assert isinstance(events[0], Begin)
    assert isinstance(events[-1], End)
    assert code == (0 if events[-1].status == "ok" else 1)
    assert [isinstance(event, Begin | End) for event in events].count(True) == 2
    return Trace.fold(events)


def fails(source, **given):
    trace = run(source, **given)
    assert trace.status == "error"
    return trace.problem


def lines(trace, stage="dynamo", region=0, part=""):
    return {(origin.line, origin.column, origin.end_column) for origin in trace.stage(stage, region, part).origins if origin.op}


def equal(trace):
    return [stage.facts.get("equal_to_eager") for stage in trace.stages if stage.name == "numerics"]


ADD_MUL = """
import torch
@torch.compile
def f(a, b):
    x = a + b
    y = x * 2
    return y
f(torch.randn(32, 32), torch.randn(32, 32))
"""


@pytest.mark.parametrize("target", ["cpu", "sm_90"])
def test_add_mul(target):
    trace = run(ADD_MUL, target)
    assert trace.status == "ok"
    assert [(region.title, region.line) for region in trace.regions] == [("f", 5)]
    assert lines(trace) == {(5, 8, 13), (6, 8, 13)}
    assert lines(trace, "aten", part="forward") == {(5, 8, 13), (6, 8, 13)}
    assert equal(trace) == [True]
    assert len(trace.stage("fusion", part="forward").kernels) == 1
    timing = trace.stage("timing", part="forward")
    assert timing.status == "skipped"
    if target == "sm_90":
        assert timing.reason == "Compiled for sm_90, not measured on: this machine has no such GPU."


def test_no_fusion_makes_two_kernels():
    trace = run(ADD_MUL, options=Options(policy="none", measure=False))
    assert len(trace.stage("fusion", part="forward").kernels) == 2


def test_marks_lead_from_a_line_of_the_graph_to_the_line_of_the_snippet():
    stage = run(ADD_MUL).stage("dynamo")
    (section,) = [section for section in stage.sections if section.title == "FX graph"]
    shown = section.text.splitlines()
    (place,) = [i for i, line in enumerate(shown) if line.strip().startswith("y = ")]
    assert [stage.origins[mark].line for mark in section.marks[place]] == [6]


PLAIN = """
import torch

a = torch.randn(64)
b = torch.randn(64)
n = 2
x = a + b
y = x * n
print(y.shape)
"""


def test_plain_statements_are_one_function():
    trace = run(PLAIN)
    assert trace.status == "ok"
    assert lines(trace) == {(7, 4, 9), (8, 4, 9)}
    assert trace.output == "torch.Size([64])\n"
    assert "lines 7 to 8" in trace.notes[0]
    assert trace.stage("aten", part="forward").facts["outputs"] == 1
    assert equal(trace) == [True]


def test_a_training_step_has_both_parts():
    trace = run("""
        import torch
        from torch import nn
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 3))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        @torch.compile
        def loss_of(x, target):
            return nn.functional.cross_entropy(model(x), target)
        loss = loss_of(torch.randn(5, 6), torch.tensor([0, 1, 2, 0, 1]))
        loss.backward()
        optimizer.step()
        print(f"{model[0].weight.sum().item():.5f}")
    """)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.GELU(), torch.nn.Linear(8, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.nn.functional.cross_entropy(model(torch.randn(5, 6)), torch.tensor([0, 1, 2, 0, 1])).backward()
    optimizer.step()
    assert trace.output == f"{model[0].weight.sum().item():.5f}\n"
    for name in ("aten", "loops", "fusion", "code", "wrapper", "numerics"):
        assert {stage.part for stage in trace.stages if stage.name == name} == {"forward", "backward"}
    assert equal(trace) == [True, True]
    # The layers come from the line that made them, the loss from its own.
    assert {line for line, _, _ in lines(trace)} == {5, 9}
    assert {line for line, _, _ in lines(trace, "aten", part="backward")} <= {0, 5, 9}
    assert 5 in {line for line, _, _ in lines(trace, "aten", part="backward")}


def test_graph_break_says_why_and_where():
    trace = run("""
        import torch
        def step(x):
            y = torch.sin(x) + 1
            print("sum", y.sum().item())
            return torch.cos(y) * 2
        compiled = torch.compile(step)
        compiled(torch.zeros(8))
    """)
    assert trace.status == "ok"
    assert [(region.title, region.line) for region in trace.regions] == [("step", 4), ("step, after the break at line 5", 6)]
    (decision,) = [d for d in trace.stage("dynamo").decisions if d.rule == "graph_break"]
    assert decision.numbers["line"] == 5
    assert "item()" in decision.reason
    assert trace.stage("dynamo", 1).facts["graph_breaks"] == 0
    assert trace.output == "sum 8.0\n"
    assert lines(trace, region=1) == {(6, 11, 23), (6, 11, 27)}


@pytest.mark.parametrize(
    "how",
    [
        "torch.compile(model)(x)",
        "model.compile(); model(x)",
        "torch.compile()(model)(x)",
        "torch.compile(mode='max-autotune', dynamic=False)(model)(x)",
    ],
)
def test_every_way_to_call_torch_compile(how):
    trace = run(f"import torch\nmodel = torch.nn.Linear(4, 3)\nx = torch.randn(2, 4)\n{how}\n")
    assert trace.status == "ok"
    assert len(trace.regions) == 1


@pytest.mark.parametrize(("source", "said"), [
    ("def f(x): return x + 1\ninputs = [torch.ones(3)]", "Compiled f, called with inputs."),
    ("def fn(x, y): return x + y\nx = torch.ones(3)\ny = 2", "Compiled fn(x, y): the script names no inputs."),
    ("def other(p, q): return p * q\na = torch.ones(3)\nb = torch.ones(3)", "Compiled other(p=a, q=b): the script names no inputs."),
    ("def get_inputs(): return [torch.ones(3)]\ndef g(x): return x * 2", "Compiled g, called with get_inputs()."),
    ("model = torch.nn.Linear(3, 2).eval()\ninputs = [torch.ones(1, 3)]", "Compiled model, called with inputs."),
    ("class Model(torch.nn.Module):\n    def __init__(self, s):\n        super().__init__()\n        self.s = s\n    def forward(self, x):\n        return x * self.s\n"
     "def get_inputs(): return [torch.ones(3)]\ndef get_init_inputs(): return [2.5]", "Compiled Model(2.5), called with get_inputs()."),
    ("@torch.compile\ndef h(x): return x + 1\ninputs = {'x': torch.ones(3)}", "Compiled h, called with the keywords of inputs."),
])  # fmt: skip
def test_conventions(source, said):
    trace = run(f"import torch\n{source}\n")
    assert trace.status == "ok", trace.problem
    assert trace.notes == (said,)
    assert equal(trace) == [True]


def test_a_loss_found_by_convention_is_differentiated():
    trace = run("""
        import torch
        def f(x):
            return (x * x).sum()
        inputs = [torch.randn(4, requires_grad=True)]
    """)
    assert trace.status == "ok"
    assert {stage.part for stage in trace.stages if stage.name == "aten"} == {"forward", "backward"}


def test_a_module_found_by_convention_runs_forward_only():
    trace = run("import torch\nmodel = torch.nn.Linear(3, 2)\ninputs = [torch.ones(1, 3)]\n")
    assert {stage.part for stage in trace.stages if stage.name == "aten"} == {"forward"}


CUDA = """
import torch
device = "cuda" if torch.cuda.is_available() else "cpu"
start = torch.cuda.Event(enable_timing=True)
model = torch.nn.Linear(8, 4).cuda().to(torch.device("cuda:0"))
x = torch.randn(2, 8, device=device, requires_grad=True)
start.record()
@torch.compile
def f(x):
    return model(x).relu() + torch.arange(4, device="cuda")
f(x).sum().backward()
torch.cuda.synchronize()
print(torch.cuda.get_device_name())
"""


@pytest.mark.parametrize("target", ["cpu", "sm_90"])
def test_cuda_without_a_gpu(target):
    trace = run(CUDA, target)
    assert trace.status == "ok", trace.problem
    assert "speaks of a GPU" in trace.notes[0]
    assert equal(trace) == [True, True]
    assert lines(trace) == {(10, 11, 26), (10, 29, 59), (10, 11, 59)}
    text = trace.stage("aten", part="forward").sections[0].text
    assert ("float32[2, 8] (8, 1) cuda" in text) == (target == "sm_90")


@pytest.mark.parametrize(("source", "line", "column", "message"), [
    ("import torch\nx = = 3\n", 2, 4, "SyntaxError"),
    ("import torch\nx = 3\ny = undefined + x\n", 3, 4, "NameError: name 'undefined' is not defined"),
    ("import torch\ndef g(x):\n    return x @ x\ng(torch.ones(2, 3))\n", 3, 11, "RuntimeError: mat1 and mat2"),
    ("import torch\n@torch.compile\ndef g(x):\n    return x @ x\ng(torch.ones(2, 3))\n", 4, 11, "RuntimeError: a and b must have same reduction dim"),
    ("import nothing_like_this\n", 1, 0, "ModuleNotFoundError"),
    ("import torch\ndef g(x):\n    return x\n", 2, 0, "no tensor for its parameter 'x'"),
    ("import torch\n", 0, 0, "nothing to compile"),
    ("", 0, 0, "empty"),
    ("import sys\nsys.exit(3)\n", 2, 0, "status 3"),
    ("raise ValueError('own')\n", 1, 0, "ValueError: own"),
    ("x = '\\0'\0\n", 0, 0, "null byte"),
])  # fmt: skip
def test_faults_stand_at_their_place(source, line, column, message):
    problem = fails(source)
    assert problem.kind == "snippet"
    assert message in problem.message
    assert (problem.line, problem.column) == (line, column)


@pytest.mark.parametrize(("statement", "hint"), [
    ("input()", "write the value into the snippet"),
    ("import socket; socket.getaddrinfo('no.such.name.invalid', 80)", "no network"),
    ("import urllib.request; urllib.request.urlopen('http://no.such.name.invalid')", "no network"),
    ("raise PermissionError(13, 'Permission denied')", "temporary folder"),
])  # fmt: skip
def test_what_a_snippet_cannot_have_comes_with_what_to_do(statement, hint, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert hint in fails(statement).hint


@pytest.mark.parametrize(("statement", "hint"), [
    ("import nothing_like_this", "nothing_like_this is not installed where this snippet runs."),
    ("from nothing_like_this.inner import x", "nothing_like_this is not installed where this snippet runs."),
    ("import torch.nothing_like_this", "torch is installed where this snippet runs, but has no module torch.nothing_like_this"),
    ("import math.inner", "math is installed where this snippet runs, but has no module math.inner"),
    ("try:\n    import nothing_like_this\nexcept ImportError:\n    raise ValueError('needed')", "nothing_like_this is not installed"),
])  # fmt: skip
def test_a_missing_module_is_named_and_no_other_is_called_missing(statement, hint):
    told = fails("import math\nimport torch\n" + statement).hint
    assert told.startswith(hint)
    assert "Only" not in told


def test_an_error_of_imports_without_a_name_has_no_hint():
    assert fails("raise ModuleNotFoundError('something')").hint == ""


@pytest.mark.parametrize(("source", "line", "hint"), [
    (">>> import torch\n>>> f = torch.compile(lambda x: x+1)\n", 1, "prompts"),
    ("import torch\n>>> def f(x):\n...     return x\n", 2, "prompts"),
    ("x = 3\n... y = 4\n", 2, "prompts"),
    ("In [1]: import torch\n", 1, "prompts"),
    ("%matplotlib inline\nimport torch\n", 1, "IPython"),
    ("import torch\n%%timeit\n", 2, "IPython"),
    ("import torch\n!pip install x\n", 2, "IPython"),
    ("def f():\n    %time 3\n", 2, "IPython"),
    ("files = !ls\n", 1, "IPython"),
    ("import torch\ntorch.compile?\n", 2, "IPython"),
    ("?print\n", 1, "IPython"),
    ("```python\nimport torch\n```\n", 1, "marks around the code"),
    ("import torch\n```\n", 2, "marks around the code"),
    ("$ python file.py\n", 1, "shell"),
    ("import torch\nx = = 3\n", 2, "This line is not Python."),
])  # fmt: skip
def test_what_is_pasted_with_python_is_to_be_left_out(source, line, hint):
    problem = fails(source)
    assert (problem.kind, problem.line) == ("snippet", line)
    assert hint in problem.hint


def test_a_break_where_none_is_allowed_is_dynamos():
    problem = fails("import torch\n@torch.compile(fullgraph=True)\ndef f(x):\n    print('hi')\n    return x\nf(torch.ones(2))\n")
    assert (problem.stage, problem.line, problem.column) == ("dynamo", 4, 4)
    assert "print" in problem.message
    assert "Hint" not in problem.message
    assert "fullgraph=True" in problem.hint
    assert "report an issue" not in problem.message + problem.hint


@pytest.mark.parametrize("asked", ['backend="inductor"', 'mode="max-autotune"', 'options={"max_autotune": True}'])
def test_what_torch_compile_was_asked_for_in_vain_is_said_once(asked):
    trace = run(f"import torch\n@torch.compile({asked})\ndef f(x):\n    return x + 1\ng = torch.compile(f, {asked})\nf(torch.ones(2))\n")
    (note,) = trace.notes
    assert asked.split("=")[0] in note
    assert "ignored" in note


@pytest.mark.parametrize("program", [
    "print(torch.nn.Linear(4, 4)(x))", "model = torch.nn.Linear(4, 4)\nprint('result', model(x), sep=': ')", "print(x)\ny = x * 2\nprint(y)",
])  # fmt: skip
def test_what_is_computed_only_to_be_printed_is_compiled(program):
    trace = run(f"import torch\nx = torch.ones(2, 4)\n{program}\n")
    assert trace.problem is None
    assert len(trace.regions) == 1
    assert "tensor(" in trace.output
    assert re.fullmatch(r"Compiled line \d as one function( of x)?\.", trace.notes[-1])


def test_a_script_sees_no_foreign_arguments():
    assert run(ADD_MUL + "\nimport argparse\nargparse.ArgumentParser().parse_args()\n").status == "ok"


def test_many_lines_are_few_events():
    trace = run("for i in range(5_000):\n    print(i, flush=True)\n" + ADD_MUL.lstrip())
    assert trace.output == "".join(f"{i}\n" for i in range(5_000))
    events = []
    run_snippet("for i in range(50_000):\n    print('line', i)\n" + ADD_MUL, QUICK, find_target("cpu"), "fuselab", events.append)
    assert len(events) < 500
    assert events[-1].status == "ok"


def test_what_ran_before_a_fault_is_in_the_trace():
    trace = run(ADD_MUL + "\nprint('so far')\n1 / 0\n")
    assert trace.status == "error"
    assert trace.problem.line == 11
    assert trace.output == "so far\n"
    assert trace.stage("code", part="forward").status == "ok"
    assert equal(trace) == [True]


def test_exit_with_zero_is_no_fault():
    assert run(ADD_MUL + "\nimport sys\nsys.exit(0)\n").status == "ok"


def test_the_process_is_as_before():
    main, compile_, module_init, out = sys.modules["__main__"], torch.compile, torch.nn.Module.__init__, sys.stdout
    run(CUDA, "sm_90")
    assert (sys.modules["__main__"], torch.compile, torch.nn.Module.__init__, sys.stdout) == (main, compile_, module_init, out)


def test_output_is_bounded():
    trace = run("import torch\nprint('x' * 1_000_000)\nprint('never')\n" + ADD_MUL)
    assert len(trace.output) < 300_000
    assert "cut off" in trace.output


def test_the_script_is_main():
    trace = run("""
        import torch
        from dataclasses import dataclass
        @dataclass
        class Point:
            x: int
        def f(x):
            return x + 1
        if __name__ == "__main__":
            print(Point(3).x, __name__)
            torch.compile(f)(torch.ones(2))
    """)
    assert trace.output == "3 __main__\n"
    assert trace.status == "ok"


def test_dropout_compares_shapes_only():
    trace = run("import torch\ndef f(x): return torch.dropout(x, 0.5, True)\ninputs = [torch.ones(64)]\n")
    assert trace.status == "ok"
    assert trace.stage("numerics", part="forward").facts["random"] is True


def test_the_script_sees_its_own_random_numbers():
    """Looking at a region draws none of the script's."""
    trace = run("""
        import torch
        torch.manual_seed(7)
        f = torch.compile(lambda x: x + 1)
        f(torch.ones(3))
        print(torch.rand(1).item())
    """)
    torch.manual_seed(7)
    assert trace.output == f"{torch.rand(1).item()}\n"


def test_eager_stage_lists_what_is_dispatched():
    stage = run(ADD_MUL).stage("eager")
    assert stage.facts["kernels"] == 2
    assert stage.facts["bytes_read"] == 3 * 32 * 32 * 4
    assert stage.facts["bytes_written"] == 2 * 32 * 32 * 4
    assert [stage.origins[mark].line for marks in stage.sections[0].marks for mark in marks] == [5, 6]


def test_inputs_written_in_place_are_compared_too():
    trace = run("import torch\ndef f(x):\n    x.add_(1)\n    return x * 2\ninputs = [torch.ones(4)]\n")
    names = [decision.subject for decision in trace.stage("numerics", part="forward").decisions]
    assert names == ["result 0", "input 0, written in place"]
    assert equal(trace) == [True]


def test_timing_of_a_training_step():
    trace = run(
        """
        import torch
        def f(x):
            return torch.tanh(x * 2).sum()
        inputs = [torch.randn(64, 64, requires_grad=True)]
        """,
        options=Options(),
    )
    for part in ("forward", "backward"):
        stage = trace.stage("timing", part=part)
        assert stage.status == "ok", stage.reason
        calls = [timing for timing in stage.timings if timing.scope == "call"]
        assert [timing.compiler for timing in calls] == ["eager", "fuselab"]
        assert all(0 < timing.low_us <= timing.median_us <= timing.high_us for timing in stage.timings)
        assert {timing.subject for timing in stage.timings if timing.scope == "kernel"} == {
            k.name for k in trace.stage("fusion", part=part).kernels
        }
        assert stage.facts["copy_gb_per_s"] > 0
    ops = trace.stage("eager").timings
    assert {timing.scope for timing in ops} == {"op"}
    assert [timing.subject for timing in ops if timing.part == "forward"] == ["aten.mul.Tensor", "aten.tanh.default", "aten.sum.default"]
    assert {"aten.tanh_backward.default", "aten.mul.Tensor"} <= {timing.subject for timing in ops if timing.part == "backward"}


def test_a_function_compiled_for_other_shapes_is_told_apart():
    trace = run("import torch\n@torch.compile\ndef f(x):\n    return x * 2\nfor n in (4, 8, 12):\n    f(torch.ones(n, n + 1))\n")
    assert [region.title for region in trace.regions] == ["f", "f, compiled again (2)"]


OPEN = """
import torch
@torch.compile(dynamic=True)
def f(x, w):
    return torch.softmax(x @ w, -1) * x.shape[0]
for rows in (6, 9, 30):
    x = torch.randn(rows, 8, requires_grad=True)
    f(x, torch.randn(8, 5)).sum().backward()
"""


@pytest.mark.parametrize("target", ["cpu", "sm_90"])
def test_open_sizes_are_one_region_with_symbols_in_every_stage(target):
    trace = run(OPEN, target, Options(measure=target == "cpu"))
    assert trace.status == "ok"
    assert len(trace.regions) == 1
    assert set(equal(trace)) == {True}
    for stage in ("loops", "fusion", "code", "wrapper"):
        for part in ("forward", "backward"):
            assert re.search(r"\bs\d+\b", trace.stage(stage, 0, part).sections[0].text), stage


SPARSE = """
import torch
bag = torch.nn.EmbeddingBag(10, 3, mode="sum", sparse=True)
@torch.compile
def f(places, starts):
    return (bag(places, starts) * 2).sin().sum()
f(torch.tensor([1, 2, 4, 5, 4, 3]), torch.tensor([0, 3])).backward()
print(bag.weight.grad.layout)
"""

OWN_OP = """
import torch
@torch.library.custom_op("mylib::scale_add", mutates_args=())
def scale_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x * 2 + y
@scale_add.register_fake
def _(x, y):
    return torch.empty_like(x)
@torch.compile
def f(x, y):
    return scale_add(x.sin(), y).relu()
f(torch.randn(4), torch.randn(4))
"""


@pytest.mark.parametrize("target", ["cpu", "sm_90"])
def test_sparse_gradients_are_compared_with_their_zeros(target):
    trace = run(SPARSE, target)
    assert trace.status == "ok", trace.problem
    assert equal(trace) == [True, True]


@pytest.mark.parametrize("target", ["cpu", "sm_90"])
def test_an_op_of_the_programs_own_is_no_error_where_only_an_interpreter_runs_the_kernels(target):
    trace = run(OWN_OP, target)
    assert trace.status == "ok", trace.problem
    numerics = trace.stage("numerics", part="forward")
    assert (numerics.status, "mylib.scale_add" in numerics.reason) == (("ok", False) if target == "cpu" else ("skipped", True))
