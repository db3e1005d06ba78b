"""What becomes of runs when processes die, and of a worker where isolation is missing; and whole compilations through the real worker."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from app import landlock, store
from app.watchdog import processes
from tests.app.worker_harness import ROOT, RunningWorker

pytestmark = [pytest.mark.sandbox, pytest.mark.skipif(os.geteuid() != 0 or not landlock.version(), reason="needs root and Landlock")]

SLOW = "stage('eager')\ntime.sleep({seconds})\nsay('done')"


@pytest.fixture(params=["namespaces", "container, not root"])
def worker(request):
    running = RunningWorker(request.param, settings={"run_user": 61500, "stale_job_seconds": 1.0})
    yield running
    running.stop()


def begun(worker: RunningWorker, source: str) -> str:
    """The run, when its first stage is stored."""
    run = worker.submit(source)
    worker.until(lambda: worker.progress(run)[0] >= 3, 10, "the run has not begun")
    return run


def row(worker: RunningWorker, run: str) -> store.RunRow:
    with worker.sessions() as session:
        return store.find_run(session, run)


def kinds(worker: RunningWorker, run: str) -> list[str]:
    with worker.sessions() as session:
        return [each.kind for each in store.events_after(session, run)]


def gone(pids: list[int]) -> bool:
    known = processes()
    return not [pid for pid in pids if pid in known and known[pid].state != "Z"]


def test_a_killed_child_costs_its_own_run_only(worker):
    first, second = begun(worker, SLOW.format(seconds=20)), begun(worker, SLOW.format(seconds=2))
    busy = {pid: Path(f"/proc/{pid}/fd/3").readlink() for pid in worker.children()}
    events = {os.readlink(f"/proc/{pid}/fd/3"): pid for pid in busy}
    assert len(events) == 2
    # Which child does which run is not known outside, so both possibilities are right: one ends with a signal, the other as it should.
    os.kill(min(busy), signal.SIGKILL)
    worker.until(lambda: worker.progress(first)[1] or worker.progress(second)[1], 5, "neither run has ended")
    killed, other = (first, second) if worker.progress(first)[1] else (second, first)
    assert "SIGKILL" in worker.wait(killed).problem.message
    assert worker.wait(killed).stage("eager")
    if other == second:
        assert worker.wait(other).status == "ok"
    else:
        assert not worker.progress(other)[1]


def test_a_killed_zygote_is_replaced_and_its_runs_are_done_again(worker):
    run = begun(worker, SLOW.format(seconds=1.5))
    family = [worker.zygote(), *worker.children()]
    os.kill(worker.zygote(), signal.SIGKILL)
    trace = worker.wait(run)
    assert trace.status == "ok"
    assert trace.output == "done"
    assert kinds(worker, run) == ["begin", "region", "stage", "output", "end"], "what the first attempt said is gone"
    assert gone(family)
    assert worker.run("say(1)").output == "1"


def test_a_run_whose_zygote_always_dies_ends_as_an_error(worker):
    run = begun(worker, SLOW.format(seconds=30))
    os.kill(worker.zygote(), signal.SIGKILL)
    worker.until(lambda: worker.progress(run)[0] >= 3 and store_attempts(worker, run) == 2, 10, "it is not done again")
    os.kill(worker.zygote(), signal.SIGKILL)
    trace = worker.wait(run)
    assert trace.problem.kind == "worker"
    assert "died 2 times" in trace.problem.message
    assert trace.problem.hint


def store_attempts(worker: RunningWorker, run: str) -> int:
    from app.models import Job

    with worker.sessions() as session:
        return session.query(Job).filter_by(run_id=run).one().attempts


def test_a_killed_worker_leaves_no_process_and_loses_nothing(worker):
    done = worker.run("say('stored')")
    run = begun(worker, "stage('eager')\nif os.fork() == 0:\n    time.sleep(30)\ntime.sleep(1.5)\nsay('done')")
    inside = [pid for pid in worker.descendants() if pid != worker.process.pid]
    victim = worker.process.pid if worker.kind == "namespaces" else inside[0]
    os.kill(victim, signal.SIGKILL)
    worker.process.wait(5)
    worker.until(lambda: gone(inside), 5, "a process outlived its worker")
    assert row(worker, run).status == "running"
    time.sleep(worker.chosen.stale_job_seconds)
    worker.start()
    with worker.sessions() as session:  # what the web process does now and then
        assert store.requeue_stale(session, worker.chosen.stale_job_seconds) == 1
    assert worker.wait(run).output == "done"
    assert kinds(worker, run).count("begin") == 1
    assert done.output == "stored"


def test_a_stopped_worker_ends_at_once_and_its_runs_can_be_taken_over(worker):
    run = begun(worker, SLOW.format(seconds=30))
    inside = worker.descendants()
    worker.process.terminate()
    worker.process.wait(5)
    assert gone(inside)
    assert row(worker, run).status == "running", "another worker does it again"


def test_a_worker_ends_with_the_process_that_started_it(worker):
    inside = worker.descendants()
    worker.process.stdin.close()
    worker.process.wait(5)
    worker.until(lambda: gone(inside), 2, "a process outlived its worker")


def test_a_long_run_stays_with_its_worker(worker):
    run = begun(worker, SLOW.format(seconds=2.5))
    for _ in range(10):
        time.sleep(0.2)
        with worker.sessions() as session:
            assert store.requeue_stale(session, worker.chosen.stale_job_seconds) == 0
    assert worker.wait(run).output == "done"


def test_a_run_taken_away_is_dropped(worker):
    run = begun(worker, "stage('eager')\nfor _ in range(100):\n    time.sleep(0.05)\n    say('old')")
    with worker.sessions() as session:
        store.requeue_stale(session, -10)  # as if it had not been heard of
    trace = worker.wait(run)  # the same worker takes it again: only the second attempt's words are there
    assert trace.status == "ok"
    assert trace.output == "old" * 100


def test_idle_children_wait_in_the_sandbox(worker):
    """A child takes its layers on before it is given a run, not after."""
    for pid in worker.children():
        status = Path(f"/proc/{pid}/status").read_text()
        assert "Seccomp:\t2" in status
        assert "CapEff:\t0000000000000000" in status
        assert "NoNewPrivs:\t1" in status


# Too little isolation


def refused(around: list[str], **settings) -> subprocess.CompletedProcess:
    import sys

    values = {f"FUSELAB_{name.upper()}": value for name, value in settings.items()}
    command = [sys.executable, "-m", "tests.app.container", *around, sys.executable, "-m", "app.worker"]
    return subprocess.run(command, cwd=ROOT, env={"PATH": os.environ["PATH"], **values}, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    ("around", "said"),
    [
        (["--docker", "--without", "landlock_create_ruleset"], "Linux 5.13"),
        (["--docker", "--user", "61001", "--without", "landlock_create_ruleset"], "own users"),
    ],
)
def test_a_public_worker_refuses_to_start_below_level_c(around, said, tmp_path):
    done = refused(around, mode="public", database_url=f"sqlite:///{tmp_path}/x.db")
    assert done.returncode == 3
    assert "needs isolation level C, and this machine offers D" in done.stderr
    assert "Landlock: snippets may read every file" in done.stderr
    assert said in done.stderr, "it says how to get what is missing"
    assert not (tmp_path / "x.db").exists(), "it never came to work"


def test_a_private_worker_runs_at_any_level_and_says_what_is_missing():
    running = RunningWorker("container", settings={"run_user": 61520}, around=["--docker", "--without", "landlock_create_ruleset"])
    try:
        assert running.level == "D"
        assert "Landlock" in running.workers()[0].environment["missing isolation"]
        found = running.notes("attempt('socket', socket.socket)\nattempt('database', lambda: open('/etc/shadow').read())")
        assert found == {"socket": "EPERM", "database": "EACCES"}, "the layers that are there hold"
    finally:
        running.stop()


def test_a_public_worker_starts_at_level_c_and_runs_compilers_that_it_did_not_prepare():
    settings = {"run_user": 61540, "mode": "public", "warm_compilers": "fuselab"}
    running = RunningWorker("container", settings=settings, module="app.worker", keeps=False)
    try:
        assert running.level == "C"
        trace = running.run(ADD_MUL, compiler="inductor", seconds=100)
        assert trace.status == "ok", trace.problem
        assert trace.stage("numerics", part="forward").status == "ok"
        assert list((running.folder / "kept").iterdir()) == [], "no header was built for them"
    finally:
        running.stop()


# The real compiler

ADD_MUL = "import torch\n\ndef fn(a, b):\n    x = a + b\n    return x * 2\n\ninputs = [torch.randn(1000), torch.randn(1000)]\n"


@pytest.fixture(scope="module", params=["namespaces", "container, not root"])
def compiling(request):
    running = RunningWorker(request.param, settings={"run_user": 61560}, module="app.worker")
    yield running
    running.stop()


@pytest.mark.parametrize("target", ["cpu", "sm_90"])
def test_a_snippet_is_compiled_stage_by_stage(compiling, target):
    trace = compiling.run(ADD_MUL, target=target, options={"policy": "greedy"})
    assert trace.status == "ok", trace.problem
    assert [each for each in trace.stages if each.status == "error"] == []
    expected = {"dynamo", "aten", "loops", "fusion", "code", "sass"} | ({"timing"} if target == "cpu" else {"ttir", "ptx"})
    assert expected <= {each.name for each in trace.stages if each.status == "ok"}
    assert trace.environment["torch"].startswith("2.")


def test_training_and_processes_of_the_compiler_work_in_the_sandbox(compiling):
    source = (
        "import torch\nmodel = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))\n"
        "compiled = torch.compile(model)\nloss = compiled(torch.randn(4, 8)).square().mean()\nloss.backward()\nprint(float(loss) >= 0)"
    )
    trace = compiling.run(source)
    assert trace.status == "ok", trace.problem
    assert "True" in trace.output
    assert trace.stage("code", part="backward")


def test_an_error_of_the_snippet_has_its_line(compiling):
    trace = compiling.run("import torch\n\nx = torch.ones(3)\ny = x + undefined\n")
    assert trace.problem.kind == "snippet"
    assert trace.problem.line == 4


def test_a_child_forgets_what_another_changed(compiling):
    compiling.run("import torch\ntorch.sin = torch.cos\ntorch._dynamo.utils.counters['x']['y'] = 1\n" + ADD_MUL)
    trace = compiling.run("import torch\nprint(torch.sin(torch.zeros(1)).item(), dict(torch._dynamo.utils.counters))\n" + ADD_MUL)
    assert trace.output.startswith("0.0 {}")


# The real Inductor

POISON = """
import glob, os
import torch._inductor.codecache as codecache
from torch._inductor.runtime.cache_dir_utils import cache_dir

def attempt(what, action):
    try:
        action()
        print("GOT", what)
    except OSError as error:
        pass

header = next(iter(codecache._precompile_header.__closure__[0].cell_contents.values()))
for path in (header, header + ".gch"):
    attempt(path, lambda: open(path, "ab"))
    attempt("unlink " + path, lambda: os.unlink(path))
attempt("new", lambda: open(os.path.dirname(header) + "/new.h", "w"))
attempt("/trusted", lambda: os.makedirs("/trusted/torchinductor_run/precompiled_headers"))
# Its own folders are its own: whatever was compiled there is replaced by something else.
os.makedirs(codecache._HEADER_DIR, exist_ok=True)
open(codecache._HEADER_DIR + "/" + os.path.basename(header), "w").write("#error poisoned")
places = [cache_dir(), os.environ["TRITON_CACHE_DIR"], os.environ["FUSELAB_CACHE"], *glob.glob(os.environ["TMPDIR"] + "/inductor-*")]
for place in places:
    os.makedirs(place, exist_ok=True)
    for folder, _, files in os.walk(place):
        for name in [*files, "marker"]:
            open(f"{folder}/{name}", "w").write("poisoned")
print("planted in", len(places))
"""
CLEAN = """
import glob, os
import torch._inductor.codecache as codecache
from torch._inductor.runtime.cache_dir_utils import cache_dir

found = [f"{folder}/{name}" for folder, _, files in os.walk(os.environ["TMPDIR"]) for name in files]
found += [name for name in (codecache._HEADER_DIR, "/trusted/torchinductor_run") if os.path.exists(name)]
print("found", found)
"""


def test_inductor_compiles_with_the_header_that_was_built_before(compiling):
    trace = compiling.run(ADD_MUL, compiler="inductor", seconds=60)
    assert trace.status == "ok", trace.problem
    assert [each for each in trace.stages if each.status == "error"] == []
    assert {"dynamo", "aten", "loops", "fusion", "code", "wrapper", "timing", "numerics"} <= {
        each.name for each in trace.stages if each.status == "ok"
    }
    again = "import torch._inductor.codecache as c\nfor (header, _), path in c._precompile_header.__closure__[0].cell_contents.items(): print(header, path)\n"
    assert "cpp_prefix.h" in compiling.run(again + ADD_MUL).output


def test_no_run_finds_what_another_left_in_inductors_caches(compiling):
    first = compiling.run(ADD_MUL + POISON, compiler="inductor", seconds=60)
    assert first.status == "ok", first.problem
    assert first.output.startswith("planted in"), first.output
    for _ in range(2):  # each slot
        second = compiling.run(CLEAN + ADD_MUL, compiler="inductor", seconds=60)
        assert second.status == "ok", second.problem
        assert second.output.strip() == "found []"
        assert second.stage("numerics", part="forward").status == "ok"


def test_two_runs_at_once_compile_with_inductor(compiling):
    runs = [compiling.submit(ADD_MUL.replace("* 2", f"* {number}"), compiler="inductor") for number in (3, 4)]
    for number, run in zip((3, 4), runs, strict=True):
        trace = compiling.wait(run, 100)
        assert trace.status == "ok", trace.problem
        assert f"static_cast<float>({number}.0)" in "".join(section.text for section in trace.stage("code", part="forward").sections)


def test_eager_compiles_nothing(compiling):
    trace = compiling.run(ADD_MUL, compiler="eager")
    assert trace.status == "ok", trace.problem
    assert trace.stage("eager").facts["kernels"] == 2
    assert all(each.reason for each in trace.stages if each.status == "skipped")
