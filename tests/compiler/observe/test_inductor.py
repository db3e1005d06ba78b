"""What the trace says of Inductor equals what torch itself writes with TORCH_LOGS in a process of its own."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

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
import json, logging, sys, torch, torch._functorch.config as functorch, torch._inductor.config as inductor
functorch.force_non_lazy_backward_lowering, functorch.enable_autograd_cache = True, False
inductor.compile_threads, inductor.fx_graph_cache = 1, False
for name, source in json.loads(sys.argv[1]).items():
    torch._dynamo.reset()
    sys.stdout.flush()
    sys.stderr.write(f"\\n#### {name}\\n")
    exec(compile("import torch\\n" + source, "snippet.py", "exec"), {})
"""


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    """What torch logs for each program."""
    import os

    folder = tmp_path_factory.mktemp("reference")
    env = {**os.environ, "TORCH_LOGS": "output_code,fusion", "TORCHINDUCTOR_CACHE_DIR": str(folder)}
    made = subprocess.run([sys.executable, "-c", REFERENCE, json.dumps(PROGRAMS)], capture_output=True, text=True, env=env)
    assert made.returncode == 0, made.stderr[-3000:]
    parts = re.split(r"^#### (\w+)$", made.stderr, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def traced(source, compiler="inductor"):
    events = []
    run_snippet("import torch\n" + source, Options(measure=False), find_target("cpu"), compiler, events.append)
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


def test_a_missing_name_skips_the_stages_only(monkeypatch):
    monkeypatch.setattr(inductor_names, "RELIES_ON", ("torch._inductor.scheduler.Scheduler.no_such_name",))
    trace = traced(PROGRAMS["add_mul"])
    stage = trace.stage("fusion", 0, "forward")
    assert (trace.status, stage.status) == ("ok", "skipped")
    assert "no_such_name" in stage.reason


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
