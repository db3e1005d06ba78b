"""What our trace says of Inductor against what torch itself logs: ``python -m bench.fidelity`` prints the table of docs/fidelity.md.

Torch runs each program in a process without our code, with TORCH_LOGS and TORCH_TRACE; another process observes it. ``--build`` lets both
compile the generated C++; without it, kernels that are not there write zeros.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.fidelity_sides import FIELD, RECORD
from compiler.trace import Decision, Stage, Trace
from tests.compiler.observe.fidelity_programs import PROGRAMS

ROOT = Path(__file__).resolve().parent.parent
LOGS = "output_code,fusion,graph_breaks,recompiles,ir_post_fusion"
FORMAT = f"{RECORD}%(name)s{FIELD}%(message)s"
PLAIN = {"TORCHINDUCTOR_COMPILE_THREADS": "1", "TORCHINDUCTOR_FX_GRAPH_CACHE": "0", "TORCHINDUCTOR_AUTOGRAD_CACHE": "0"}
"""What differs from torch's defaults where it runs alone: one process, and nothing taken from a cache."""
ASPECTS = ("output code", "groups", "fusion log", "pairs", "scores", "refusals", "breaks", "recompiles")
NOTHING = "Dynamo captured no graph"
_CANNOT = re.compile(r"cannot fuse (\S+) with (\S+): (.*)", re.DOTALL)
_LISTED = re.compile(r"fuse_nodes_once, candidates:$|  ")


@dataclass(slots=True)
class Said:
    """What one side says of one program. Each list is in the order of what happened; ``traced``: the output code in TORCH_TRACE."""

    codes: list[str] = field(default_factory=list)
    traced: list[str] = field(default_factory=list)
    groups: list[list[str]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    pairs: list[int] = field(default_factory=list)
    scores: list[tuple[str, str, str]] = field(default_factory=list)
    refusals: list[tuple[str, str, str]] = field(default_factory=list)
    breaks: list[tuple[int | None, tuple[str, ...]]] = field(default_factory=list)
    recompiles: list[tuple[str, ...]] = field(default_factory=list)
    failed: str = ""


def run_side(side: str, programs: Mapping[str, str], folder: Path, build: bool) -> str:
    """Runs a process of one side; its standard error. The folder gets ``trace`` (torch) or one file a program (ours)."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("TORCH_LOGS", "TORCH_TRACE", "TORCHINDUCTOR", "STUB"))}
    env |= {"TORCHINDUCTOR_CACHE_DIR": str(folder / f"cache-{side}"), "PYTHONPATH": str(ROOT)} | ({} if build else {"STUB": "1"})
    if side == "torch":
        env |= {**PLAIN, "TORCH_LOGS": LOGS, "TORCH_LOGS_FORMAT": FORMAT, "TORCH_TRACE": str(folder / "trace")}
    command = [sys.executable, "-m", "bench.fidelity_sides", side, str(folder)]
    done = subprocess.run(command, input=json.dumps(dict(programs)), capture_output=True, text=True, env=env, cwd=ROOT)
    if done.returncode:
        raise RuntimeError(f"the process of {side} ended with {done.returncode}: {done.stderr[-2_000:]}")
    return done.stderr


# What torch says


def torch_says(programs: Mapping[str, str], folder: Path, build: bool = False) -> dict[str, Said]:
    return read_torch(run_side("torch", programs, folder, build), folder)


def read_torch(stderr: str, folder: Path) -> dict[str, Said]:
    """Torch's records, taken apart by program."""
    found: dict[str, Said] = {}
    said = Said()
    for record in stderr.split(RECORD)[1:]:
        kind, _, text = record.partition(FIELD)
        text = text.rstrip("\n")
        if kind == "program":
            said = found.setdefault(text.split()[0], Said())
        elif kind == "end":
            said = Said()
        else:
            _read_record(said, kind.rpartition(".__")[2], text)
    for name, codes in read_structured(folder / "trace").items():
        found[name].traced = codes
    return found


def _read_record(said: Said, kind: str, text: str) -> None:
    match kind:
        case "output_code" if text.startswith("Output code: \n"):
            said.codes.append(text.removeprefix("Output code: \n"))
        case "ir_post_fusion":
            nodes = re.findall(r"^(\w+): \w*SchedulerNode\w*\(", text, re.MULTILINE)
            said.groups.append([node for node in nodes if not any(node in other.split("_") for other in nodes if other != node)])
        case "fusion" if not _LISTED.match(text):
            said.lines.append(text)
            if counted := re.match(r"found (\d+) possible fusions", text):
                said.pairs.append(int(counted[1]))
            if refused := _CANNOT.match(text):
                said.refusals.append((refused[1], refused[2], refused[3]))
        case "graph_breaks":
            reason, _, stack = text.partition("Graph Break Reason: ")[2].partition("\nUser code traceback:")
            lines = re.findall(r'File "snippet\.py", line (\d+)', stack)
            said.breaks.append((int(lines[-1]) if lines else None, words(reason)))
        case "recompiles":
            details = text.partition("guard failure(s):\n")[2]
            said.recompiles.append(tuple(line.strip().removeprefix("- ").strip() for line in details.splitlines()))
        case "score":
            first, second, parts = json.loads(text)
            said.scores.append((first, second, numbers_text(parts)))
        case "failed":
            said.failed = text.strip().splitlines()[-1]


def words(reason: str) -> tuple[str, ...]:
    """The parts of a graph break's reason that a visitor reads."""
    rows = [row.strip() for row in reason.partition("Stack variable source attribution")[0].splitlines() if row.strip()]
    left_out = (
        "Developer debug context",
        "For more details",
        "Encountered graph break when",
        "Failed to handle graph break",
        "***",
        "Hint: Please report",
    )
    return tuple(re.sub("^(Explanation|Hint): ", "", row).rstrip(".") for row in rows if not row.startswith(left_out))


def numbers_text(parts: Mapping[str, Any]) -> str:
    return json.dumps({name: value for name, value in parts.items() if isinstance(value, int | float)}, sort_keys=True)


def read_structured(folder: Path) -> dict[str, list[str]]:
    """The output code of each program in TORCH_TRACE."""
    found: dict[str, list[str]] = {}
    name = ""
    for path in sorted(folder.glob("*.log")):
        for entry in re.split(r"^(?=[VIWE]\d{4} )", path.read_text(), flags=re.MULTILINE):
            head, _, payload = entry.partition("\n")
            payload = "\n".join(line.removeprefix("\t") for line in payload.splitlines())
            if '"name": "program"' in head:
                name = payload.strip()
            elif '"inductor_output_code"' in head:
                found.setdefault(name, []).append(payload)
    return found


# What our trace says


def trace_says(programs: Mapping[str, str], folder: Path, build: bool = False) -> dict[str, Said]:
    run_side("trace", programs, folder, build)
    return {name: read_trace(Trace.from_json((folder / f"{name}.json").read_text())) for name in programs}


def read_trace(trace: Trace) -> Said:
    said = Said()
    if trace.problem and trace.problem.message.startswith(NOTHING):
        said.breaks.append((trace.problem.line, (f"{trace.problem.message} {trace.problem.hint}",)))
    elif trace.problem:
        said.failed = trace.problem.message
    for stage in trace.stages:
        match stage.name:
            case "wrapper" if stage.status == "ok":
                said.codes.append(stage.sections[0].text)
            case "fusion" if stage.status == "ok":
                _read_fusion(said, stage)
            case "dynamo":
                _read_dynamo(said, stage)
    for note in trace.notes:
        if found := re.match(r"Graph break at line (\d+): (.*)", note, re.DOTALL):
            said.breaks.append((int(found[1]), (found[2],)))
    return said


def _read_fusion(said: Said, stage: Stage) -> None:
    sections = {section.title: section.text for section in stage.sections}
    heads = re.findall(r"^# (\w+)(?:: \d+ nodes fused| gives |: |$)", sections["Loops after fusion"], re.MULTILINE)
    said.groups.append([head for head in heads if not any(head in other.split("_") for other in heads if other != head)])
    said.lines += [line for line in sections["Fusion log"].splitlines() if line]
    found = str(stage.facts["possible_fusions"])
    said.pairs += [int(count) for count in found.split(", ")] if found else []
    for decision in stage.decisions:
        first, _, second = decision.subject.partition(" + ")
        parts = {name: value for name, value in decision.numbers.items() if name != "buffers"}
        if parts:
            said.scores.append((first, second, numbers_text(parts)))
        if decision.verdict == "refused" and "without a reason" not in decision.reason:
            said.refusals.append((first, second, decision.reason))


def _read_dynamo(said: Said, stage: Stage) -> None:
    again: dict[str, list[str]] = {}
    for decision in stage.decisions:
        match decision.rule:
            case "graph_break":
                said.breaks.append((_number(decision, "line"), (decision.reason,)))
            case "recompile":
                again.setdefault(str(decision.numbers["compiled"]), []).append(decision.reason)
    said.recompiles += [tuple(line.strip() for reason in reasons for line in reason.splitlines()) for reasons in again.values()]


def _number(decision: Decision, name: str) -> int:
    value = decision.numbers.get(name)
    return value if isinstance(value, int) else 0


# The comparison


def same_code(code: str) -> list[str]:
    """The lines of output code without the paths of headers, which lie in each process's cache, and without comments of places in files."""
    lines = [re.sub(r'"[^"]*/\w{2}/c\w+\.h"', '"HEADER"', line.rstrip()) for line in code.splitlines()]
    return [re.sub(r"# (kernel path|Source file|File): .*", r"# \1", line) for line in lines if line]


def differences(torch: Said, trace: Said) -> dict[str, str]:
    """By aspect, in what the two differ; nothing for what is equal."""
    found = {
        "output code": _listed([same_code(code) for code in torch.codes], [same_code(code) for code in trace.codes])
        or _listed([same_code(code) for code in torch.codes], [same_code(code) for code in torch.traced]),
        "groups": _listed(torch.groups, trace.groups),
        "fusion log": _counted(torch.lines, trace.lines),
        "pairs": _listed(torch.pairs, trace.pairs),
        "scores": _counted(set(torch.scores), set(trace.scores)),
        "refusals": _counted(set(torch.refusals), set(trace.refusals)),
        "breaks": _breaks(torch, trace),
        "recompiles": _counted(torch.recompiles, trace.recompiles),
    }
    if torch.failed != trace.failed:
        found["failure"] = f"torch: {torch.failed or 'none'}; trace: {trace.failed or 'none'}"
    return {aspect: text for aspect, text in found.items() if text}


def _listed(torch: Sequence[Any], trace: Sequence[Any]) -> str:
    if len(torch) != len(trace):
        return f"torch has {len(torch)}, the trace {len(trace)}"
    for place, (mine, other) in enumerate(zip(torch, trace, strict=True)):
        if mine != other:
            if not isinstance(mine, list):
                return f"at {place}: torch {mine}, the trace {other}"
            first = next((pair for pair in zip(mine, other, strict=False) if pair[0] != pair[1]), (len(mine), len(other)))
            return f"at {place}: torch {first[0]!r}, the trace {first[1]!r}"
    return ""


def _counted(torch: Iterable[Any], trace: Iterable[Any]) -> str:
    mine, other = Counter(torch), Counter(trace)
    parts = [f"only torch: {list((mine - other).elements())[:3]}"] * bool(mine - other)
    parts += [f"only the trace: {list((other - mine).elements())[:3]}"] * bool(other - mine)
    return "; ".join(parts)


def _breaks(torch: Said, trace: Said) -> str:
    """Each of torch's breaks is one of the trace's: at the same line of the script, with each part of torch's reason.

    Torch leaves out the place of a break that it has told before. Where nothing was compiled, the problem of the run tells the reason.
    """
    left = list(trace.breaks)
    for line, parts in torch.breaks:
        fitting = next((one for one in left if line in (None, one[0]) and all(part in one[1][0] for part in parts)), None)
        if fitting is None:
            return f"line {line}: torch says {' | '.join(parts)[:300]}, the trace {[(place, text[0][:300]) for place, text in left]}"
        left.remove(fitting)
    return f"only the trace: {[(line, text[0][:200]) for line, text in left]}" if left else ""


def compared(programs: Mapping[str, str], build: bool = False) -> tuple[dict[str, Said], dict[str, Said]]:
    """Both sides, one process each, side by side."""
    from concurrent.futures import ThreadPoolExecutor

    with tempfile.TemporaryDirectory(prefix="fidelity-") as name, ThreadPoolExecutor(2) as pool:
        alone, observed = pool.submit(torch_says, programs, Path(name), build), pool.submit(trace_says, programs, Path(name), build)
        return alone.result(), observed.result()


def table(torch: Mapping[str, Said], trace: Mapping[str, Said]) -> str:
    """A row for each program: how much there was to compare, and whether it was equal; then each difference."""
    rows = [f"| program | {' | '.join(ASPECTS)} |", f"| --- |{' --- |' * len(ASPECTS)}"]
    told: list[str] = []
    whole = 0
    for name, mine in torch.items():
        found = differences(mine, trace[name])
        whole += not found
        rest: list[Sequence[object]] = [mine.scores, mine.refusals, mine.breaks, mine.recompiles]
        sizes = [len(mine.codes), len(mine.groups), len(mine.lines), sum(mine.pairs), *map(len, rest)]
        cells = ["**differs**" if aspect in found else f"= {size}" if size else "" for aspect, size in zip(ASPECTS, sizes, strict=True)]
        rows.append(f"| {name} | {' | '.join(cells)} |")
        told += [f"- {name}, {aspect}: {text}" for aspect, text in found.items()]
    rows += ["", f"{whole} of {len(torch)} programs are equal in everything."]
    return "\n".join([*rows, "", *told]).rstrip()


def main() -> None:
    import torch

    parser = argparse.ArgumentParser(description=textwrap.dedent(__doc__ or ""))
    parser.add_argument("--build", action="store_true", help="compile the generated C++ on both sides")
    parser.add_argument("names", nargs="*", help="programs; all if none is given")
    asked = parser.parse_args()
    programs = {name: PROGRAMS[name] for name in asked.names or PROGRAMS}
    print(f"torch {torch.__version__}, {len(programs)} programs, generated C++ {'compiled' if asked.build else 'not compiled'}\n")
    print(table(*compared(programs, asked.build)))


if __name__ == "__main__":
    main()
