"""Snippets through the real server, its worker and the compiler, over HTTP; and processes killed in the middle of it."""

from __future__ import annotations

import json
import signal
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.pages.context import EXAMPLES
from bench.server import Server
from compiler.trace import STAGE_NAMES, End, Trace, parse_event

BELOW_TRITON = {"ttir", "ttgir", "llir", "ptx"}
NOT_OURS = {"passes", "autotune"}
"""Our compiler runs no passes over the graph and tries no configurations: both tabs say so."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("site")) as server:
        server.wait_for_worker(300)
        yield server


def post(server: Server, source: str, target: str = "cpu", compiler: str = "fuselab", **options: Any) -> str:
    body = json.dumps({"source": source, "target": target, "compiler": compiler, "options": options}).encode()
    request = urllib.request.Request(server.url + "/api/runs", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["id"]


def finish(server: Server, run_id: str, seconds: float = 120) -> Trace:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with urllib.request.urlopen(f"{server.url}/api/runs/{run_id}/trace") as answer:
            trace = Trace.from_json(answer.read())
        if trace.status != "running":
            return trace
        time.sleep(0.1)
    raise AssertionError(f"run {run_id} has not ended:\n{(server.folder / 'server.log').read_text()[-3000:]}")


def kernels(trace: Trace) -> int:
    return sum(kernel.kind != "extern" for stage in trace.stages if stage.name == "code" for kernel in stage.kernels)


@pytest.fixture(scope="module")
def posted(request: pytest.FixtureRequest, server: Server) -> dict[tuple[str, str, str], str]:
    """The runs of the examples that the chosen tests ask for, all posted at once, so that no slot of the worker is idle."""
    runs: dict[tuple[str, str, str], str] = {}
    for item in request.session.items:
        if isinstance(item, pytest.Function) and item.module is request.module and "posted" in item.fixturenames:
            example, target = item.callspec.params["example"], item.callspec.params["target"]
            compiler = "inductor" if "inductor" in item.name else "fuselab"
            runs[example.name, target, compiler] = post(server, example.source, target, compiler)
    return runs


@pytest.mark.slow
@pytest.mark.parametrize("target", ["cpu", "sm_90"])
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_every_example_has_every_stage(server, posted, example, target):
    trace = finish(server, posted[example.name, target, "fuselab"])
    assert trace.status == "ok", trace.problem
    for region in trace.regions:
        states = {(stage.name, stage.status) for stage in trace.stages if stage.region == region.id}
        assert {name for name, _ in states} == set(STAGE_NAMES)
        failed = [stage for stage in trace.stages if stage.status == "error"]
        assert not failed, [(stage.name, stage.reason) for stage in failed]
        skipped = {name for name, status in states if status == "skipped"}
        trained = any(stage.region == region.id and stage.part == "backward" for stage in trace.stages)
        allowed = NOT_OURS | (BELOW_TRITON if target == "cpu" else {"timing"}) | (set() if trained else {"joint"})
        assert skipped <= allowed or kernels(trace) == 0, skipped
        assert ("joint" in skipped) is not trained


# The real compilers

EVERY_DAY = {("mlp-step", "cpu"), ("graph-break", "cpu"), ("softmax", "sm_90"), ("mlp-step", "sm_90")}
"""Training, two regions in one script, and Triton; the other examples take long on two cores."""


def sources(*, slow: bool) -> list[Any]:
    return [
        pytest.param(example, target, marks=pytest.mark.slow if slow else (), id=f"{example.name}-{target}")
        for example in EXAMPLES
        for target in ("cpu", "sm_90")
        if ((example.name, target) in EVERY_DAY) != slow
    ]


def check_observed(trace: Trace, target: str) -> None:
    """Every stage is there or skipped with a reason; on the CPU, where Inductor's code ran, its results equal those of eager."""
    assert trace.status == "ok", trace.problem
    for region in trace.regions:
        stages = [stage for stage in trace.stages if stage.region == region.id]
        assert {stage.name for stage in stages} == set(STAGE_NAMES)
        assert not [(stage.name, stage.reason) for stage in stages if stage.status == "error"]
        assert all(stage.reason for stage in stages if stage.status == "skipped")
        seen = {stage.name for stage in stages if stage.status == "ok"}
        assert {"dynamo", "eager", "aten", "loops", "fusion", "code", "wrapper"} <= seen
        assert {"numerics", "timing"} <= seen or target != "cpu"
        code = "".join(section.text for stage in stages if stage.name == "wrapper" for section in stage.sections)
        assert ("def triton_" if target != "cpu" else "async_compile.cpp") in code or "extern_kernels" in code
    for stage in trace.stages:
        if stage.name == "numerics" and stage.status == "ok":
            assert stage.facts["equal_to_eager"] is True, stage.decisions


@pytest.mark.parametrize(("example", "target"), sources(slow=False))
def test_inductor_is_observed(server, posted, example, target):
    check_observed(finish(server, posted[example.name, target, "inductor"]), target)


@pytest.mark.parametrize(("example", "target"), sources(slow=True))
def test_inductor_is_observed_on_every_example(server, posted, example, target):
    check_observed(finish(server, posted[example.name, target, "inductor"]), target)


@pytest.mark.parametrize("target", ["cpu", "sm_90"])
def test_eager_compiles_nothing(server, target):
    source = next(example.source for example in EXAMPLES if example.name == "mlp-step")
    trace = finish(server, post(server, source, target, "eager"))
    assert trace.status == "ok", trace.problem
    assert {stage.name for stage in trace.stages} == set(STAGE_NAMES)
    assert {"dynamo", "eager"} <= {stage.name for stage in trace.stages if stage.status == "ok"}
    assert all(stage.reason for stage in trace.stages if stage.status == "skipped")


# Our own compiler


@pytest.mark.parametrize("target", ["cpu", "sm_90"])
def test_the_articles_example_is_one_kernel_or_two(server, target):
    source = EXAMPLES[0].source
    assert kernels(finish(server, post(server, source, target, policy="greedy"))) == 1
    assert kernels(finish(server, post(server, source, target, policy="none"))) == 2


@pytest.mark.parametrize("target", ["cpu", "sm_90"])
def test_softmax_is_one_kernel(server, target):
    source = next(example.source for example in EXAMPLES if example.name == "softmax")
    assert kernels(finish(server, post(server, source, target))) == 1


def test_an_error_names_its_line(server):
    trace = finish(server, post(server, "import torch\n\nx = torch.ones(2)\nraise ValueError('no')\n"))
    assert trace.status == "error"
    assert trace.problem is not None
    assert (trace.problem.kind, trace.problem.line) == ("snippet", 4)
    assert "no" in trace.problem.message


def test_what_the_snippet_prints_is_kept(server):
    trace = finish(
        server, post(server, "import torch\nprint('hello from the snippet')\nf = torch.compile(lambda x: x + 1)\nf(torch.ones(3))\n")
    )
    assert "hello from the snippet" in trace.output


def test_two_listeners_hear_the_same_run(server):
    run_id = post(server, "# listened\n" + EXAMPLES[0].source)
    heard = []
    for _ in range(2):
        with urllib.request.urlopen(f"{server.url}/api/runs/{run_id}/events", timeout=120) as stream:
            heard.append([parse_event(line[6:]) for line in stream if line.startswith(b"data: ")])
    assert heard[0] == heard[1]
    assert isinstance(heard[0][-1], End)


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_is_lost_when_the_web_process_dies(tmp_path: Path, how: int):
    """Stored runs read the same afterwards; the run that went on is done again or ends as an error."""
    with Server(tmp_path, warm_compilers="fuselab", stale_job_seconds=3) as server:
        server.wait_for_worker()
        done = post(server, EXAMPLES[0].source)
        before = finish(server, done)
        cut = post(server, "import time, torch\ntime.sleep(2)\nf = torch.compile(lambda x: x * 2)\nf(torch.ones(3))\n")
        waiting = [post(server, f"x = {number}\n") for number in range(3)]
        time.sleep(0.7)
        server.stop(how)
        server.start()
        assert finish(server, done) == before
        assert finish(server, cut).status == "ok"
        assert all(finish(server, run_id).status in ("ok", "error") for run_id in waiting)
