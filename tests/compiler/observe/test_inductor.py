"""What the trace says of Inductor equals what torch itself writes with TORCH_LOGS in a process of its own."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bench.fidelity import ROOT
from compiler.observe import inductor_names
from compiler.options import Options
from compiler.snippet import run_snippet
from compiler.target import find_target
from compiler.trace import Trace
from tests.compiler.observe.test_torch_names import resolve

PROGRAMS = {
    "add_mul": "@torch.compile\ndef f(x):\n    return (x + 1) * 2\nf(torch.ones(32, 16))",
    "softmax": "@torch.compile\ndef f(x):\n    return torch.softmax(x, -1)\nf(torch.ones(32, 16))",
    "matmul": "@torch.compile\ndef f(x, y):\n    return torch.relu(x @ y + 1)\nf(torch.ones(8, 8), torch.ones(8, 8))",
    "trained": "@torch.compile\ndef f(x):\n    return (x.sin() * x).sum()\nf(torch.ones(8, 8, requires_grad=True)).backward()",
    "graph_break": "@torch.compile\ndef f(x):\n    y = x + 1\n    print('hi')\n    return y.sin() * y\nf(torch.ones(8, 8))",
}

REFERENCE = """
import json, sys, torch, torch._functorch.config as functorch, torch._inductor.config as inductor
from bench.fidelity_sides import without_builds
without_builds()
functorch.enable_autograd_cache = False
inductor.compile_threads, inductor.fx_graph_cache = 1, False
for name, source in json.loads(sys.argv[1]).items():
    torch._dynamo.reset()
    sys.stdout.flush()
    sys.stderr.write(f"\\n#### {name}\\n")
    exec(compile("import torch\\n" + source, "snippet.py", "exec"), {})
"""


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    """What torch logs for each program; the C++ that it logs need not be built for that."""
    import os

    folder = tmp_path_factory.mktemp("reference")
    env = {**os.environ, "TORCH_LOGS": "output_code,fusion", "TORCHINDUCTOR_CACHE_DIR": str(folder)}
    made = subprocess.run([sys.executable, "-c", REFERENCE, json.dumps(PROGRAMS)], capture_output=True, text=True, env=env, cwd=ROOT)
    assert made.returncode == 0, made.stderr[-3000:]
    parts = re.split(r"^#### (\w+)$", made.stderr, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def traced(source, compiler="inductor", **options):
    events = []
    run_snippet("import torch\n" + source, Options.parse({"measure": False, **options}), find_target("cpu"), compiler, events.append)
    return Trace.fold(events)


def plain(text):
    """Without the prefixes of log lines, the paths of files and the lines of comments, which name nodes' places in files."""
    lines = [re.sub(r"^[VI]\d{4} .*?\] (\[\S+\] )?(\[__\w+\] ?)?", "", line) for line in text.splitlines()]
    lines = [re.sub(r"\S*/\w{2}/c\w+\.h", "HEADER", line.rstrip()) for line in lines]
    return [line for line in lines if line.strip() and not line.lstrip().startswith("#")]


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_trace_says_what_torch_logs(name, logs):
    trace = traced(PROGRAMS[name])
    assert trace.status == "ok", trace.problem
    log = "\n".join(plain(logs[name]))
    fusions = [stage for stage in trace.stages if stage.name == "fusion"]
    codes = [stage.sections[0].text for stage in trace.stages if stage.name == "wrapper"]
    assert codes
    for code in codes:
        assert "\n".join(plain(code)) in log
    assert len(codes) == len(re.findall(r"^Output code:", log, re.MULTILINE))
    assert sum(stage.facts["refusals_said"] for stage in fusions) == len(re.findall(r"cannot fuse \S+ with \S+: ", log))
    fused = {d.subject.replace(" + ", " with ") for stage in fusions for d in stage.decisions if d.verdict == "fused"}
    assert fused == set(re.findall(r"fusing (\S+ with \S+)", log))
    refused = {d.subject.replace(" + ", " with ") + ": " + d.reason for s in fusions for d in s.decisions if d.verdict == "refused"}
    said = set(re.findall(r"cannot fuse (\S+ with \S+: .*)", log))
    assert {line.splitlines()[0] for line in refused if "without a reason" not in line} <= {line.rstrip() for line in said}
    numerics = [stage for stage in trace.stages if stage.name == "numerics"]
    assert numerics
    assert all(stage.status == "ok" and stage.facts["equal_to_eager"] for stage in numerics)


@pytest.mark.parametrize("name", inductor_names.RELIES_ON)
def test_the_name_exists(name):
    resolve(name)


@pytest.mark.parametrize("stage", ["joint", "passes", "loops", "fusion", "autotune", "code"])
def test_a_missing_name_costs_its_stage_only(monkeypatch, stage):
    monkeypatch.setitem(inductor_names.NEEDED, stage, ("torch._inductor.scheduler.Scheduler.no_such_name",))
    trace = traced(PROGRAMS["add_mul"])
    assert trace.status == "ok", trace.problem
    told = {found.name: found for found in trace.stages if found.part in ("", "forward")}
    without = told[stage]
    assert "no_such_name" in without.reason + "".join(section.text for section in without.sections)
    for name in {"passes", "loops", "fusion", "code", "wrapper", "aten"} - {stage, "wrapper" if stage == "code" else ""}:
        assert told[name].status == "ok", name
    assert "no_such_name" not in "".join(section.text for section in told["aten"].sections)


def test_without_the_core_names_the_region_runs_eagerly(monkeypatch):
    monkeypatch.setattr(inductor_names, "CORE", ("torch._inductor.compile_fx.no_such_name",))
    trace = traced(PROGRAMS["add_mul"])
    assert (trace.status, trace.stage("fusion", 0, "forward").status) == ("ok", "skipped")


def test_every_line_of_loops_and_kernels_leads_to_the_snippet():
    trace = traced(PROGRAMS["softmax"])
    for name, title in (("loops", 0), ("fusion", 0), ("code", 0)):
        stage = trace.stage(name, 0, "forward")
        section = stage.sections[title]
        lines = section.text.split("\n")
        assert len(section.marks) == len(lines)
        for line, marks in zip(lines, section.marks, strict=True):
            assert marks or not line.strip(), (name, line)
            assert all(stage.origins[place].line in (0, 4) for place in marks)
    wrapper = trace.stage("wrapper", 0, "forward")
    calls = [
        marks for line, marks in zip(wrapper.sections[0].text.split("\n"), wrapper.sections[0].marks, strict=True) if "cpp_fused" in line
    ]
    assert calls
    assert all(calls)


def test_inductor_counts_as_many_rewrites_as_the_passes_tell():
    source = "@torch.compile\ndef f(x, y, z):\n    return torch.cat([x, y]).sin() + (x @ y.T @ z).sum() * 1 + 0\n"
    trace = traced(source + "f(torch.ones(8, 8), torch.ones(8, 8), torch.ones(8, 8))")
    passes, wrapper = trace.stage("passes", 0, "forward"), trace.stage("wrapper", 0, "forward")
    counted = wrapper.facts.get("pattern_matcher_count", 0)
    assert sum(d.numbers.get("rewrites", 0) for d in passes.decisions) == counted
    for stage in (passes, trace.stage("passes")):
        diffs = [section for section in stage.sections if section.language == "diff"]
        assert [section.title for section in diffs] == [decision.subject for decision in stage.decisions]


def test_what_is_saved_is_what_the_backward_graph_takes():
    trace = traced(PROGRAMS["trained"])
    joint, backward = trace.stage("joint"), trace.stage("aten", 0, "backward")
    saved = {decision.subject for decision in joint.decisions if decision.rule == "saved"}
    inputs = set(re.findall(r"^    (\w+),", backward.sections[0].text, re.MULTILINE))
    assert saved == {name for name in inputs if not name.startswith("tangents")}
    assert trace.stage("joint").facts["saved_bytes"] == 8 * 8 * 4
    assert traced(PROGRAMS["add_mul"]).stage("joint").status == "skipped"


def test_a_backward_pass_that_the_script_never_runs_is_compiled():
    trace = traced(PROGRAMS["trained"].replace(".backward()", ""))
    assert trace.stage("code", 0, "backward").status == "ok"
    assert any("never runs the backward" in note for note in trace.notes)


def test_a_backward_pass_may_be_run_twice_where_pytorch_allows_it():
    source = "@torch.compile\ndef f(x):\n    return torch.softmax(x.sin(), -1)\nx = torch.ones(8, 8, requires_grad=True)\n"
    source += "y = f(x).pow(2).sum()\ny.backward(retain_graph=True)\ny.backward()"
    for compiler in ("inductor", "fuselab"):
        assert traced(source, compiler).status == "ok"


def test_each_kernel_is_timed():
    trace = traced(PROGRAMS["matmul"], measure=True)
    stage, code = trace.stage("timing", 0, "forward"), trace.stage("code", 0, "forward")
    assert [timing.subject for timing in stage.timings if timing.scope == "kernel"] == [kernel.name for kernel in code.kernels]
    assert any(kernel.name == "extern_kernels.mm" for kernel in code.kernels)


class TestOptions:
    def config(self, source, compiler="inductor", **options):
        trace = traced(source, compiler, **options)
        assert trace.status == "ok", trace.problem
        return trace.stage("wrapper", 0, "forward").facts["config"]

    def test_an_entry_is_in_force_and_changes_the_code(self):
        source = "@torch.compile\ndef f(x):\n    return torch.softmax(x, -1)\nf(torch.ones(32, 16))"
        trace = traced(source, **{"inductor.max_fusion_size": 1})
        assert trace.stage("wrapper", 0, "forward").facts["config"] == "inductor.max_fusion_size=1"
        assert trace.stage("fusion", 0, "forward").facts["fused"] == 0
        assert traced(source).stage("fusion", 0, "forward").facts["fused"] > 0

    def test_what_the_script_assigns_is_in_force_and_ends_with_the_run(self):
        source = "import torch._inductor.config as c\nc.max_fusion_size = 7\n" + PROGRAMS["add_mul"]
        assert self.config(source) == "inductor.max_fusion_size=7"
        assert self.config(PROGRAMS["add_mul"]) == "defaults"

    def test_the_mode_is_that_of_torch_compile(self):
        import torch

        found = self.config(PROGRAMS["add_mul"], mode="max-autotune")
        assert set(found.split("; ")) == {f"inductor.{k}={v}" for k, v in torch._inductor.list_mode_options("max-autotune").items()}

    def test_an_unknown_entry_is_named_before_anything_runs(self):
        trace = traced("print('ran')\n" + PROGRAMS["add_mul"], **{"inductor.max_fusoin_size": 1})
        assert (trace.status, trace.problem.kind, trace.output) == ("error", "snippet", "")
        assert "max_fusoin_size" in trace.problem.message
        assert "inductor.max_fusion_size" in trace.problem.hint

    def test_a_value_of_another_type_is_refused(self):
        assert "int" in traced(PROGRAMS["add_mul"], **{"inductor.max_fusion_size": "many"}).problem.message

    def test_fullgraph_makes_a_break_an_error(self):
        assert traced(PROGRAMS["graph_break"], fullgraph=True).status == "error"

    def test_our_own_compiler_says_what_it_ignores(self):
        trace = traced(PROGRAMS["add_mul"], "fuselab", mode="max-autotune", **{"inductor.max_fusion_size": 1})
        assert any("max-autotune" in note and "inductor.max_fusion_size" in note for note in trace.notes)


def test_what_is_watched_is_put_back():
    from torch._inductor.scheduler import Scheduler, WhyNoFuse

    before = Scheduler.can_fuse, WhyNoFuse.__call__
    traced(PROGRAMS["add_mul"])
    assert before == (Scheduler.can_fuse, WhyNoFuse.__call__)


def test_eager_lists_its_ops():
    trace = traced(PROGRAMS["add_mul"], "eager")
    assert trace.status == "ok"
    assert trace.compiler == "eager"
    assert "aten.mul" in trace.stage("eager").sections[0].text
    assert trace.stage("fusion", 0, "forward").status == "skipped"


def test_the_folder_is_private():
    from compiler.capture.observed import private_folder

    assert Path(private_folder()).stat().st_mode & 0o077 == 0
