"""What the ``dynamo`` stage says equals what torch itself logs in a process of its own, for programs that break, recompile and specialise."""

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field

import pytest

from compiler.options import Options
from compiler.snippet import run_snippet
from compiler.target import find_target
from compiler.trace import Trace
from tests.compiler.capture.dynamo_programs import PROGRAMS

REFERENCE = """
import json, linecache, sys, torch
for name, source in json.loads(sys.argv[1]).items():
    torch._dynamo.reset()
    sys.stdout.flush()
    sys.stderr.write(f"\\n#### {name}\\n")
    linecache.cache["snippet.py"] = (len(source), None, source.splitlines(keepends=True), "snippet.py")
    exec(compile(source, "snippet.py", "exec"), {"__name__": "__main__"})
"""
SOURCES = {name: "import torch" + source for name, source in PROGRAMS.items()}
ROW = re.compile(r"^[VIW]\d{4} \S+ \d+ \S+\] (?:\[(?P<id>\d+/\d+)\S*\] )?(?:\[__(?P<log>\w+)\] ?)?(?P<text>.*)$")


@dataclass
class Logged:
    """What torch logged for one program, by log and compile id: rows of text."""

    rows: dict = field(default_factory=dict)

    def text(self, log, compile_id=None):
        wanted = [rows for (name, key), rows in self.rows.items() if name == log and compile_id in (None, key)]
        return "\n".join(row for rows in wanted for row in rows)

    def ids(self, log):
        return [key for name, key in self.rows if name == log]


@pytest.fixture(scope="module")
def logs():
    env = {**os.environ, "TORCH_LOGS": "graph_breaks,recompiles,bytecode,dynamic,guards"}
    made = subprocess.run([sys.executable, "-c", REFERENCE, json.dumps(SOURCES)], capture_output=True, text=True, env=env)
    assert made.returncode == 0, made.stderr[-3000:]
    found = {}
    for part in re.split(r"^#### ", made.stderr, flags=re.MULTILINE)[1:]:
        name, _, text = part.partition("\n")
        logged = found[name] = Logged()
        for row in text.splitlines():
            if match := ROW.match(row):
                logged.rows.setdefault((match["log"] or "dynamic", match["id"] or ""), []).append(match["text"])
    return found


def traced(source, compiler="eager", **options):
    events = []
    run_snippet(source, Options(measure=False, **options), find_target("cpu"), compiler, events.append)
    return Trace.fold(events)


@pytest.fixture(scope="module")
def traces():
    return {name: traced(source) for name, source in SOURCES.items()}


def stages(trace):
    return [stage for stage in trace.stages if stage.name == "dynamo"]


def decisions(trace, rule):
    return [decision for stage in stages(trace) for decision in stage.decisions if decision.rule == rule]


def section(stage, title):
    return next((section.text for section in stage.sections if section.title == title), "")


def words(text):
    return " ".join(text.split())


def plain_code(text):
    """Disassembly without the numbers that Dynamo counts up in a process."""
    text = re.sub(r"__compiled_fn_\d+_\w+", "__compiled_fn", text)
    text = re.sub(r"(__resume_at_\d+|__builtins_dict__)_\d+", r"\1", text)
    return [words(row) for row in text.splitlines() if row.strip()]


each = pytest.mark.parametrize("name", PROGRAMS)


@each
def test_it_runs_and_is_told_apart(name, traces, logs):
    trace = traces[name]
    assert (trace.status == "ok") == (name != "loop"), trace.problem
    assert all(stage.status == "ok" and not stage.facts.get("not_observed") for stage in stages(trace))


@each
def test_graph_breaks(name, traces, logs):
    told = logs[name].text("graph_breaks")
    trace = traces[name]
    lines = [int(decision.numbers["line"]) for decision in decisions(trace, "graph_break")]
    said = " ".join(decision.reason for decision in decisions(trace, "graph_break"))
    if name == "loop":
        assert trace.problem.message.startswith("Dynamo captured no graph, so nothing was compiled. Failed to trace builtin operator")
        lines, said = [trace.problem.line], f"{trace.problem.message} {trace.problem.hint}"
    assert sorted(lines) == sorted(int(line) for line in re.findall(r"in user code at snippet\.py:(\d+)", told))
    for words_of in re.findall(r"(?:Explanation|Hint): (.*)", told):
        assert words_of.rstrip(".") in said or "report an issue" in words_of
    shown = "\n".join(section(stage, "Graph breaks") for stage in stages(trace))
    assert set(re.findall(r"more: (\S+)", shown)) == (set(re.findall(r"please visit: (\S+)", told)) if stages(trace) else set())


@each
def test_user_stacks_of_graph_breaks(name, traces, logs):
    told = logs[name].text("graph_breaks")
    stacks = [re.findall(r'File "snippet\.py", line (\d+)', part) for part in told.split("User code traceback:")[1:]]
    texts = "\n".join(section(stage, "Graph breaks") for stage in stages(traces[name]))
    shown = [re.findall(r"^    line (\d+):", part, re.MULTILINE) for part in texts.split("  reached by:")[1:]]
    if shown:
        # the rows after a traceback may be those of the next break, which names its place before its own traceback
        assert all(any(stack[: len(one)] == one for stack in stacks) for one in shown)
        assert all(any(stack[: len(one)] == one for one in shown) for stack in stacks)


@each
def test_recompiles(name, traces, logs):
    trace = traces[name]
    ids = set(logs[name].ids("recompiles"))
    limits = decisions(trace, "recompile_limit")
    found = {}
    for decision in decisions(trace, "recompile"):
        found.setdefault(decision.numbers["compiled"], []).append(decision.reason)
    assert len(ids) == len(found) + len(limits)
    assert bool(limits) == (name == "limit")
    for compile_id, reasons in found.items():
        told = logs[name].text("recompiles", compile_id).partition("guard failure(s):")[2]
        assert words(re.sub(r"^ *- ", "", told, flags=re.MULTILINE)) == words("\n".join(reasons))
    for decision in limits:
        assert words(decision.reason).endswith(words(logs[name].text("recompiles").split("    - ")[-2].strip()))
    counts = {stage.facts["frame"]: stage.facts["recompiles"] for stage in stages(trace)}
    assert all(count == int(frame.split("/")[1]) for frame, count in counts.items())


@each
def test_bytecode(name, traces, logs):
    for stage in stages(traces[name]):
        told = logs[name].text("bytecode", stage.facts["frame"])
        before, _, after = told.partition("MODIFIED BYTECODE")
        assert plain_code(section(stage, "Bytecode before")) == plain_code(before)[1:]
        assert plain_code(section(stage, "Bytecode after")) == plain_code(after)[1:]


@each
def test_resume_functions(name, traces, logs):
    titles = [region.title for region in traces[name].regions]
    for stage in stages(traces[name]):
        for part in re.split(r"^(?=torch_dynamo_resume_in_)", section(stage, "Resume functions"), flags=re.MULTILINE)[1:]:
            head, _, text = part.partition("\n")
            function, line = re.match(r"torch_dynamo_resume_in_(\w+)_at_(\d+)\(", head).groups()
            assert head.endswith(f"the rest of {function}, after the break at line {line}")
            told = logs[name].text("bytecode").split(f"ORIGINAL BYTECODE torch_dynamo_resume_in_{function}_at_{line}")[1:]
            bodies = [plain_code(re.split(r"(?:ORIGINAL|MODIFIED) BYTECODE", one)[0])[1:] for one in told]
            never_run = name == "branch" and not told
            assert never_run or plain_code(text) in bodies
    breaks = [title for title in titles if "after the break" in title]
    assert all(re.fullmatch(r"\w+, after the break at line \d+(, compiled again \(\d+\))?", title) for title in breaks)


@each
def test_symbols(name, traces, logs):
    for stage in stages(traces[name]):
        told = logs[name].text("dynamic", stage.facts["frame"])
        text = section(stage, "Symbols")
        created = set(re.findall(r"create_symbol (\w+) = (\S+) for (\S+) ", told))
        assert set(re.findall(r"^(\w+) = (\S+), (\S+) in this call", text, re.MULTILINE)) == {
            (name, source, hint) for name, hint, source in created
        }
        guards = {
            (guard, line) for guard, line in re.findall(r"eval (?!\[guard suppressed\])(.*?) \[guard added\].*?# snippet\.py:(\d+)", told)
        }
        assert {(guard, line) for guard, line in re.findall(r"guard: (.*?)  # line (\d+)", text)} >= guards - duplicates(text)
        replaced = set(re.findall(r"set_replacement (\w+) = (\S+) ", told))
        assert {(symbol, value) for symbol, value in specialised(text)} == {
            (a, b) for a, b in replaced if re.fullmatch(r"-?\d+(\.\d+)?", b)
        }


def duplicates(text):
    """Guards that a replacement made needless are no longer in the environment of the shapes."""
    return set() if "made the constant" not in text else {(f"Eq({symbol}, {value})", line) for symbol, value, line in re.findall(
        r"^(\w+) = .*\n(?:    .*\n)*?    made the constant (\S+)  # line (\d+)", text, re.MULTILINE)}  # fmt: skip


def specialised(text):
    return re.findall(r"^(\w+) = .*\n(?:    guard.*\n|    the same.*\n)*    made the constant (\S+)", text, re.MULTILINE)


@each
def test_guards(name, traces, logs):
    for stage in stages(traces[name]):
        told = logs[name].text("guards", stage.facts["frame"])
        text = section(stage, "Guards")
        watched = set(re.findall(r"TENSOR_MATCH: check_tensor\((\S+?), ", told))
        assert set(re.findall(r"^TENSOR_MATCH +(\S+)", text, re.MULTILINE)) == watched
        for condition in re.findall(r"^SHAPE_ENV +sizes  is  (.*?)(?:  # line \d+)?$", text, re.MULTILINE):
            assert f"LAMBDA_GUARD: {condition}  #" in told
        for code in re.findall(r"^(?:EQUALS_MATCH|CONSTANT_MATCH) +\S+  is  (.*?)(?:  # line \d+)?$", text, re.MULTILINE):
            assert code in told
        for subject, line in re.findall(r"^TENSOR_MATCH +(\S+)  is .*# line (\d+)$", text, re.MULTILINE):
            places = re.findall(rf"TENSOR_MATCH: check_tensor\({re.escape(subject)}, .*# (\S+):(\d+) in", told)
            assert all(file != "snippet.py" or number == line for file, number in places)


@pytest.mark.parametrize(("name", "subject", "value"), [
    ("integers", "L['n']", 1), ("floats", "L['n']", 0.5), ("made constant", "L['x'].size()[0]", "5"),
    ("attributes", "L['self'].scale", 2), ("sizes", "x.shape", None), ("static", "x.shape", None), ("marked", "x.shape[1]", None),
])  # fmt: skip
def test_what_was_made_constant(name, subject, value, traces):
    found = [decision for decision in stages(traces[name])[0].decisions if decision.rule == "specialised"]
    assert {decision.subject: decision.numbers.get("value") for decision in found}.get(subject, "absent") == value


FAULTS = {
    "a break where none is allowed": (
        "@torch.compile(fullgraph=True)\ndef f(x):\n    y = x + 1\n    print(y)\n    return y\nf(torch.ones(3))",
        5, "Failed to trace builtin operator", "fullgraph=True allows no graph break",
    ),
    "compiled too often": (
        "@torch.compile(fullgraph=True, dynamic=False)\ndef f(x):\n    return x + 1\n"
        "with torch._dynamo.config.patch(recompile_limit=2):\n    for n in range(2, 7):\n        f(torch.ones(n))",
        7, "Dynamo recompile limit exceeded", "fullgraph=True leaves nothing to eager",
    ),
    "a size that cannot stay open": (
        "x = torch.ones(5)\ntorch._dynamo.mark_dynamic(x, 0)\n@torch.compile\ndef f(x):\n    return x + torch.zeros(5)\nf(x)",
        6, "You marked L['x'].size()[0] as dynamic", "remove it or use maybe_mark_dynamic",
    ),
    "shapes that do not fit": (
        "@torch.compile\ndef f(x):\n    return x.reshape(2, 2)\nf(torch.ones(3))", 4, "shape '[2, 2]' is invalid for input of size 3", "",
    ),
    "the script's own exception": (
        "@torch.compile\ndef f(x):\n    raise ValueError('too many rows')\nf(torch.ones(3))", 4, "ValueError: too many rows", "",
    ),
    "a name that does not exist": ("@torch.compile\ndef f(x):\n    return x + missing\nf(torch.ones(3))", 4, "NameError", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("compiler", ["eager", "fuselab"])
def test_faults_have_a_place_and_a_hint(name, compiler):
    source, line, message, hint = FAULTS[name]
    trace = traced("import torch\n" + source + "\n", compiler)
    assert trace.status == "error"
    assert trace.problem.line == line
    assert message in trace.problem.message
    assert hint in trace.problem.hint
