"""Prints how long a warm run takes from POST to each stage, by our compiler and by the real ones, how soon the page can be used, and a cold
``torch.compile`` beside it."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from bench.browser import CHROMIUM, chromium
from bench.server import ROOT, Server

EXAMPLES = ROOT / "app" / "examples"
SOURCE = (EXAMPLES / "01_add-mul.py").read_text()
OBSERVED = ("01_add-mul", "04_softmax", "03_mlp-step")
"""Elementwise, a reduction, and a training step with its backward pass."""


def post(server: Server, source: str, target: str, compiler: str) -> str:
    body = json.dumps({"source": source, "target": target, "compiler": compiler}).encode()
    request = urllib.request.Request(server.url + "/api/runs", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return str(json.load(answer)["id"])


def one_run(server: Server, target: str, number: int, compiler: str = "fuselab", source: str = SOURCE) -> dict[str, float]:
    """Seconds from before the POST to the arrival of each stage and of the end, over HTTP as a page sees it."""
    arrived: dict[str, float] = {}
    began = time.perf_counter()
    run_id = post(server, f"# run {number}\n{source}", target, compiler)
    arrived["(accepted)"] = time.perf_counter() - began
    with urllib.request.urlopen(f"{server.url}/api/runs/{run_id}/events", timeout=120) as stream:
        for line in stream:
            if not line.startswith(b"data:"):
                continue
            event = json.loads(line[5:])
            name = event["name"] if event["event"] == "stage" else f"({event['event']})"
            arrived.setdefault(name, time.perf_counter() - began)
            if event["event"] == "stage":
                arrived["last " + name] = time.perf_counter() - began
                arrived["ms " + name] = arrived.get("ms " + name, 0.0) + event["millis"]
            if event["event"] == "end":
                if event["status"] != "ok":
                    raise SystemExit(f"the run failed: {event['problem']}")
                return arrived
    raise SystemExit("the stream ended before the run")


def observed_rows(server: Server, targets: Sequence[str], repeats: int) -> None:
    """Prints how long the real compilers take from POST to the last output code of a run, and to its end."""
    print(f"\nPOST to output code and to the end, torch.compile and eager, median of {repeats}\n")
    print(
        "| compiler | target | snippet | output code | 10th to 90th | end | 10th to 90th |\n| --- | --- | --- | ---: | ---: | ---: | ---: |"
    )
    for compiler in ("inductor", "eager"):
        for target in targets:
            for name in OBSERVED:
                source = (EXAMPLES / f"{name}.py").read_text()
                runs = [one_run(server, target, number, compiler, source) for number in range(-1, repeats)][1:]
                code = spread([run["last wrapper"] for run in runs]) if compiler == "inductor" else "none |"
                print(f"| {compiler} | {target} | {name[3:]} | {code} | {spread([run['(end)'] for run in runs])} |", flush=True)


def page_interactive(server: Server, repeats: int) -> list[float]:
    """Seconds until a fresh page has its editor and takes input."""
    times = []
    with chromium() as browser:
        for _ in range(repeats):
            page = browser.new_context().new_page()
            began = time.perf_counter()
            page.goto(server.url)
            page.wait_for_selector("html[data-ready]")
            times.append(time.perf_counter() - began)
            page.context.close()
    return times


def cold_compile() -> float:
    """Seconds that a new process needs to print Inductor's output code for the same snippet, with empty caches."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "snippet.py"
        script.write_text(SOURCE)
        given = os.environ | {"TORCH_LOGS": "output_code", "TORCHINDUCTOR_CACHE_DIR": folder + "/cache"}
        began = time.perf_counter()
        subprocess.run([sys.executable, str(script)], env=given, check=True, capture_output=True)
        return time.perf_counter() - began


def spread(values: list[float]) -> str:
    ordered = sorted(values)
    low, high = ordered[len(ordered) // 10], ordered[-1 - len(ordered) // 10]
    return f"{statistics.median(values) * 1000:>8.0f} | {low * 1000:.0f} to {high * 1000:.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--targets", nargs="*", default=["sm_90", "cpu"])
    parser.add_argument("--observed", type=int, default=5, help="how often each snippet by torch.compile and eager")
    parser.add_argument("--cold", type=int, default=3, help="how many cold torch.compile processes")
    chosen = parser.parse_args()
    machine = f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores"
    print(f"{time.strftime('%Y-%m-%d')}, {machine}, median of {chosen.repeats}; milliseconds")
    with tempfile.TemporaryDirectory() as folder, Server(Path(folder)) as server:
        server.wait_for_worker(300)
        print(next(line for line in (Path(folder) / "server.log").read_text().splitlines() if "ready in" in line))
        for target in chosen.targets if chosen.repeats else ():
            one_run(server, target, -1)
            runs = [one_run(server, target, number) for number in range(chosen.repeats)]
            print(f"\nPOST to each stage, target {target}\n")
            print("| stage | arrived | 10th to 90th | the stage itself |\n| --- | ---: | ---: | ---: |")
            for name in [name for name in runs[0] if not name.startswith(("ms ", "last "))]:
                own = [run["ms " + name] for run in runs if "ms " + name in run]
                cost = f"{statistics.median(own):.1f}" if own else ""
                print(f"| {name} | {spread([run[name] for run in runs if name in run])} | {cost} |", flush=True)
        if chosen.observed:
            observed_rows(server, chosen.targets, chosen.observed)
        if CHROMIUM:
            print(f"\n| page interactive | {spread(page_interactive(server, chosen.repeats))} |", flush=True)
        else:
            print("\npage interactive: not measured, no chromium")
    if chosen.cold:
        print(f"| cold python with TORCH_LOGS=output_code | {spread([cold_compile() for _ in range(chosen.cold)])} |")


if __name__ == "__main__":
    main()
