"""``python -m compiler FILE``: runs a script through the pipeline and prints what each stage made of it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Container, Mapping
from pathlib import Path

from compiler.errors import OptionsError, TargetError
from compiler.options import COMPILERS, MODES, POLICIES, Options, read_entries
from compiler.stats import is_fallback
from compiler.target import TARGETS, Target, find_target
from compiler.trace import STAGE_NAMES, Event, Kernel, Output, Problem, Stage, Trace

RULE = "-" * 78
OWN_KERNEL = "PyTorch's own kernel is called"
"""What the reason of a fallback says besides the reason."""


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m compiler", description="Compile a PyTorch script and show every stage.")
    made.add_argument("file", metavar="FILE", help="the script; - reads it from the standard input")
    made.add_argument("--target", default="cpu", metavar="TARGET", help=f"native, {', '.join(TARGETS)} (default: cpu)")
    made.add_argument("--compiler", default="fuselab", choices=COMPILERS, help="which compiler (default: fuselab)")
    made.add_argument("--policy", default="greedy", choices=POLICIES, help="how eagerly loops are fused (default: greedy)")
    made.add_argument(
        "--mode", default="default", choices=MODES, help="torch.compile's mode, where the script gives none (default: default)"
    )
    made.add_argument("--dynamic", choices=("true", "false", "auto"), default="auto", help="dynamic shapes, where the script does not say")
    made.add_argument("--fullgraph", action="store_true", help="a graph break is an error, where the script does not say")
    made.add_argument(
        "--config",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an entry of PyTorch's configuration: inductor.max_fusion_size=32",
    )
    made.add_argument("--stage", choices=STAGE_NAMES, metavar="STAGE", help=f"print this stage only: {', '.join(STAGE_NAMES)}")
    made.add_argument("--out", metavar="FILE", type=Path, help="write the whole trace there as JSON")
    made.add_argument("--no-measure", action="store_true", help="skip the measurements")
    return made


def main(arguments: list[str] | None = None) -> int:
    """The exit status: 0 compiled, 1 the script or a stage failed, 2 the command line is wrong."""
    command = parser()
    given = command.parse_args(arguments)
    try:
        source = (sys.stdin.read() if given.file == "-" else Path(given.file).read_text()).removeprefix("\ufeff")
        target = None if given.target == "native" else find_target(given.target)
    except OSError as error:
        command.error(f"cannot read {given.file}: {error.strerror}")
    except UnicodeDecodeError:
        command.error(f"{given.file} is not text in UTF-8")
    except TargetError as error:
        command.error(f"{error}, native")
    if given.out is not None:
        try:
            given.out.open("a").close()  # before the run, which may take long
        except OSError as error:
            command.error(f"cannot write {given.out}: {error.strerror}")
    try:
        options = options_of(given)
    except OptionsError as error:
        command.error(str(error))
    trace = run(source, options, target, given.compiler, quiet=given.stage is not None)
    if given.out is not None:
        given.out.write_text(trace.to_json(indent=1))
    print(stage_text(trace, given.stage) if given.stage else summary(trace))
    if trace.problem is not None:
        print(problem_text(trace.problem, source, given.file), file=sys.stderr)
    return 0 if trace.status == "ok" else 1


def options_of(given: argparse.Namespace) -> Options:
    """The options that a command line says.

    Raises OptionsError for an entry of the configuration that is none.
    """
    return Options.parse({
        "policy": given.policy,
        "measure": not given.no_measure and given.stage in (None, "timing", "eager", "autotune"),
        "mode": given.mode,
        "dynamic": {"true": True, "false": False, "auto": None}[given.dynamic],
        "fullgraph": given.fullgraph,
        **read_entries("\n".join(given.config)),
    })  # fmt: skip


def run(source: str, options: Options, target: Target | None, compiler: str, *, quiet: bool) -> Trace:
    """Runs the script; what it prints goes to the standard error if ``quiet``. ``target`` None is the device that is here."""
    # Only now, so that a wrong command line is answered at once.
    from compiler.capture.present import native_target
    from compiler.snippet import run_snippet

    terminal = sys.stderr if quiet else sys.stdout
    events: list[Event] = []

    def emit(event: Event) -> None:
        events.append(event)
        if isinstance(event, Output) and event.stream != "note":
            terminal.write(event.text)
            terminal.flush()

    run_snippet(source, options, target or native_target(), compiler, emit)
    return Trace.fold(events)


def stage_text(trace: Trace, name: str) -> str:
    """The texts and decisions of one stage, for every region and part."""
    parts: list[str] = []
    for stage in trace.stages:
        if stage.name != name:
            continue
        parts.append(f"{RULE}\n{heading(stage)}\n{RULE}")
        if stage.reason:
            parts.append(f"{stage.status}: {stage.reason}")
        for section in stage.sections:
            parts.append(f"# {section.title}\n{section.text}")
        parts += [f"{timing.compiler:<8} {timing.subject:<40} {microseconds(timing.median_us)}" for timing in stage.timings]
        parts += [decision_line(decision.subject, decision.verdict, decision.reason, decision.numbers) for decision in stage.decisions]
        if stage.facts:
            parts.append("# Facts\n" + "\n".join(f"{key}: {value}" for key, value in stage.facts.items()))
    return "\n".join(parts) or f"There is no stage {name}."


def decision_line(subject: str, verdict: str, reason: str, numbers: Mapping[str, object]) -> str:
    shown = ", ".join(f"{key}={value:.3g}" if isinstance(value, float) else f"{key}={value}" for key, value in numbers.items())
    return f"{verdict:<8} {subject}: {reason}" + (f"  [{shown}]" if shown else "")


def heading(stage: Stage) -> str:
    return f"region {stage.region}  {stage.name}" + (f"  {stage.part}" if stage.part else "")


def microseconds(value: float) -> str:
    return f"{value:,.1f} us" if value < 10_000 else f"{value / 1e3:,.1f} ms"


def summary(trace: Trace) -> str:
    """Stages with durations, kernels, fusions and times, region by region."""
    facts = trace.environment
    lines = [f"{trace.compiler} for {trace.target}, torch {facts.get('torch')}, triton {facts.get('triton')}, on {facts.get('device')}"]
    lines += [f"note: {note}" for note in trace.notes]
    for region in trace.regions:
        own = [stage for stage in trace.stages if stage.region == region.id]
        lines += ["", f"region {region.id}: {region.title}" + (f" (line {region.line})" if region.line else "")]
        lines += [_stage_line(stage) for stage in own if stage.status != "skipped"]
        lines += [f"  skipped   {', '.join(names)}: {reason}" for reason, names in _skipped(own).items()]
        for part in ("forward", "backward"):
            lines += _part_lines([stage for stage in own if stage.part == part], part)
    if not trace.regions:
        lines.append("nothing was captured")
    return "\n".join(lines)


def _skipped(stages: list[Stage]) -> dict[str, list[str]]:
    """The names of the stages that were skipped, by why."""
    found: dict[str, list[str]] = {}
    for stage in stages:
        if stage.status == "skipped" and stage.name not in (names := found.setdefault(stage.reason.partition("\n")[0], [])):
            names.append(stage.name)
    return found


def _stage_line(stage: Stage) -> str:
    state = "" if stage.status == "ok" else f"  {stage.status}: {stage.reason.splitlines()[0] if stage.reason else ''}"
    return f"  {stage.name:<9}{stage.part:<10}{stage.millis:>9.1f} ms{state}"


def _part_lines(stages: list[Stage], part: str) -> list[str]:
    if not stages:
        return []
    named = {stage.name: stage for stage in stages}
    lines = [f"  {part}:"]
    fusion, timing, numerics = named.get("fusion"), named.get("timing"), named.get("numerics")
    code = named.get("code")
    kernels = code.kernels if code and code.kernels else fusion.kernels if fusion else ()
    loops = named.get("loops")
    lacking = {decision.reason for decision in loops.decisions if is_fallback(decision)} if loops else set()
    times = {item.subject: item for item in timing.timings if item.scope == "kernel"} if timing else {}
    for kernel in kernels:
        measured = times.get(kernel.name)
        took = (
            f"  {microseconds(measured.median_us)}" + (f", {measured.gb_per_s:.3g} GB/s" if measured.gb_per_s else "") if measured else ""
        )
        lines.append(f"    {kernel.kind:<7}{kernel.name}{_answered_by(kernel, lacking)}{took}")
    externs = [kernel for kernel in kernels if kernel.kind == "extern"]
    if externs:
        fallbacks = sum(kernel.facts.get("reason") in lacking for kernel in externs)
        lines.append(f"    {len(externs)} extern calls, {fallbacks or 'none'} of them fallbacks")
    if fusion:
        lines.append(
            f"    {sum(decision.verdict == 'fused' for decision in fusion.decisions)} fusions, {len(fusion.decisions)} pairs looked at"
        )
    for item in timing.timings if timing else ():
        if item.scope == "call":
            spread = f"{microseconds(item.low_us)} to {microseconds(item.high_us)}"
            lines.append(f"    {item.compiler:<8} {microseconds(item.median_us)} ({spread}, {item.repeats} repeats)")
    if numerics and numerics.status == "ok":
        equal = numerics.facts.get("equal_to_eager")
        unwritten, results = numerics.facts.get("never_written", 0), numerics.facts.get("results")
        if numerics.facts.get("random"):
            lines.append("    random numbers: only shapes compared")
        elif unwritten != results or not equal:
            lines.append(f"    {'equal to' if equal else 'DIFFERS from'} eager")
        if unwritten:
            lines.append(f"    {unwritten} of {results} results not compared: the region returns memory that was never written")
    return lines


def _answered_by(kernel: Kernel, lacking: Container[object]) -> str:
    """The library of an extern call, or for a fallback why no loops were made. ``lacking``: the reasons of fallbacks."""
    reason = kernel.facts.get("reason")
    if reason not in lacking:
        return f"  {kernel.library}" if kernel.kind == "extern" and kernel.library else ""
    return "  fallback: " + str(reason).removeprefix(f"{OWN_KERNEL}: ").replace(f": {OWN_KERNEL}", "").rstrip(".")


def problem_text(problem: Problem, source: str, file: str) -> str:
    """The message with the line that it is about."""
    where = f"{file}:{problem.line}: " if problem.line else f"{file}: "
    text = where + (f"[{problem.stage}] " if problem.stage else "") + problem.message
    lines = source.splitlines()
    if 0 < problem.line <= len(lines):
        text += f"\n    {lines[problem.line - 1]}\n    {' ' * problem.column}^"
    return text + (f"\n  hint: {problem.hint}" if problem.hint else "")


if __name__ == "__main__":
    sys.exit(main())
