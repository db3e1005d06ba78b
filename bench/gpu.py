"""Runs snippets through a real worker on this machine's GPU and prints what it measured as a table: eager beside ours, with spread and
bandwidth.
"""

from __future__ import annotations

import argparse
import datetime
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from app import store
from app.settings import Settings
from compiler.trace import Stage, Timing, Trace

ROOT = Path(__file__).resolve().parent.parent


def run_all(paths: list[Path], target: str, seconds: float) -> dict[str, Trace]:
    """Each snippet as a run of a worker of its own database; runs go one after the other."""
    with tempfile.TemporaryDirectory(prefix="fuselab-gpu-") as folder:
        chosen = Settings(database_url=f"sqlite:///{folder}/runs.db", run_seconds=seconds, worker_slots=1)
        sessions = store.session_factory(chosen)
        store.migrate(sessions.kw["bind"])
        Path(folder).chmod(0o755)
        values = {f"FUSELAB_{name.upper()}": str(value) for name, value in chosen.model_dump().items()}
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": os.environ.get("PYTHONPATH", ""), **values}
        worker = subprocess.Popen([sys.executable, "-m", "app.worker"], cwd=ROOT, env=environment)
        try:
            return {path.stem: run_one(sessions, path, target, seconds, worker) for path in paths}
        finally:
            worker.terminate()
            worker.wait(20)


def run_one(sessions: store.SessionFactory, path: Path, target: str, seconds: float, worker: subprocess.Popen[bytes]) -> Trace:
    with sessions() as session:
        run, _ = store.submit(session, path.read_text(), "fuselab", target, {})
    deadline = time.monotonic() + seconds + 120
    while time.monotonic() < deadline and worker.poll() is None:
        with sessions() as session:
            if store.progress(session, run.id)[1]:
                return store.trace(session, run.id)
        time.sleep(0.05)
    raise SystemExit(f"{path.name}: the worker ended with {worker.poll()} or gave no answer")


def call(stage: Stage, compiler: str) -> Timing | None:
    return next((timing for timing in stage.timings if timing.scope == "call" and timing.compiler == compiler), None)


def rows(name: str, trace: Trace) -> list[str]:
    """A row for each measured part of each region, and one for each of our kernels."""
    found: list[str] = []
    for stage in (stage for stage in trace.stages if stage.name == "timing" and stage.status == "ok"):
        numerics = trace.stage("numerics", stage.region, stage.part)
        verdict = "" if numerics is None else "; ".join(decision.verdict + " " + decision.rule for decision in numerics.decisions[:1])
        eager, ours = call(stage, "eager"), call(stage, "fuselab")
        if eager and ours:
            ratio = f"{eager.median_us / ours.median_us:.2f}" if ours.median_us else ""
            cells = [f"**{name}** {stage.part}", "call", microseconds(eager), microseconds(ours), ratio, bandwidth(ours), verdict]
            found.append(f"| {' | '.join(cells)} |")
        kernels = [timing for timing in stage.timings if timing.scope == "kernel" and timing.compiler == "fuselab"]
        found += [f"| | {timing.subject} | | {microseconds(timing)} | | {bandwidth(timing)} | |" for timing in kernels]
    if trace.status != "ok":
        found.append(f"| **{name}** | failed | {trace.problem.message.splitlines()[0] if trace.problem else ''} | | | | |")
    return found


def microseconds(timing: Timing) -> str:
    return f"{timing.median_us:.1f} ({timing.low_us:.1f} to {timing.high_us:.1f})"


def bandwidth(timing: Timing) -> str:
    if timing.gb_per_s is None:
        return ""
    share = f", {timing.copy_fraction:.0%} of copy" if timing.copy_fraction is not None else ""
    return f"{timing.gb_per_s:.0f} GB/s{share}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="sm_90")
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--traces", type=Path, help="a folder for the whole traces")
    parser.add_argument("snippets", nargs="*", type=Path)
    arguments = parser.parse_args()
    paths = arguments.snippets or [
        *sorted((ROOT / "bench" / "gpu_snippets").glob("*.py")),
        *sorted((ROOT / "app" / "examples").glob("*.py")),
    ]
    traces = run_all(paths, arguments.target, arguments.seconds)
    first = next(iter(traces.values()))
    print(f"{datetime.date.today()}, " + ", ".join(f"{key} {value}" for key, value in first.environment.items() if value not in ("", None)))
    print("\n| snippet | what | eager, us (p10 to p90) | Fuselab, us (p10 to p90) | eager / Fuselab | Fuselab's bandwidth | results |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name, trace in traces.items():
        print("\n".join(rows(name, trace)))
        if arguments.traces:
            arguments.traces.mkdir(parents=True, exist_ok=True)
            (arguments.traces / f"{name}.json").write_text(trace.to_json())
    failed = [name for name, trace in traces.items() if trace.status != "ok"]
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
