"""The Triton kernels of Inductor's output code taken down to machine code: the text comes in, the stages ttir to sass go out."""

from __future__ import annotations

import linecache
import os
import re
import types
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from compiler.assembly.levels import LANGUAGES, PARSING, Level, assemble_stepwise
from compiler.assembly.record import LEVELS, NO_KERNELS, NO_PTX
from compiler.codegen.sources import KernelSource
from compiler.codegen.writer import Marks
from compiler.errors import CompileError
from compiler.observe.absent_gpu import answering
from compiler.recorder import Draft, Recorder
from compiler.runtime.triton_private import file_name, inductor_program, program_stages
from compiler.target import TARGETS, Target
from compiler.trace import Decision, Kernel, Origin, Part, Scalar, StageName

_KERNEL = re.compile(r"^\s*(\w+) = async_compile\.triton\('(\w+)', r?'''\n?(.*?)'''", re.MULTILINE | re.DOTALL)
MAX_THREADS = 4
AT_ONCE = 64
"""So many kernels are held between Triton and the tools below it, each with its module in memory."""
RAN_SHORT = "The run's time ran short, so this was left out: fewer layers, regions or sizes in one script leave time for it."
AMD_OPTIONS = frozenset(("matrix_instr_nonkdim", "waves_per_eu", "kpack"))
"""Entries of a configuration that Triton takes as options of the compiler; all others are constants of the kernel."""


@dataclass(frozen=True, slots=True)
class Configured:
    """One kernel under the configuration that is shown, the first of ``candidates``."""

    name: str
    text: str
    tuner: Any
    constants: dict[str, int]
    options: dict[str, Any]
    candidates: int

    @property
    def decision(self) -> Decision:
        """Which configuration was taken, and what the device would have done."""
        numbers: dict[str, Scalar] = {"candidates": self.candidates, **self.constants}
        numbers |= {name: value for name, value in self.options.items() if name.startswith("num_")}
        if self.candidates == 1:
            rule, reason = "only_configuration", "Inductor's heuristics give this kernel one configuration."
        else:
            rule = "first_configuration"
            reason = f"Taken by default: the device would have tried {self.candidates} configurations and kept the fastest."
        return Decision(subject=self.name[:400], verdict="chosen", rule=rule, reason=reason, numbers=numbers)


@dataclass(slots=True)
class Reached:
    """How far one kernel came: its levels, those to come, and why it went no further, "" if it reached machine code."""

    kernel: Configured | None
    name: str
    levels: list[Level] = field(default_factory=list)
    error: str = ""
    rest: Iterator[Level] = field(default_factory=lambda: iter(()))

    def level(self, stage: str) -> Level | None:
        return next((level for level in self.levels if level.stage == stage), None)

    def go_on(self, last: str) -> None:
        """Down to this stage; an error of the compiler below ends the kernel's way."""
        try:
            while not self.level(last) and (level := next(self.rest, None)) is not None:
                level.facts.pop("grid", None)  # it depends on the sizes of a call
                self.levels.append(level)
        except CompileError as error:
            self.error = str(error)[:1_500]


@dataclass(frozen=True, slots=True)
class Below:
    """The output code of one part of a region, to be taken to machine code when the script is done.

    ``marks`` has the origins of each line of a kernel's text, as indices into ``origins``.
    """

    region: int
    part: Part
    code: str
    marks: Mapping[str, Marks] = field(default_factory=dict)
    origins: tuple[Origin, ...] = ()


def kernel_texts(code: str) -> list[tuple[str, str]]:
    """(name, text) of each Triton kernel of the output code, in order."""
    return [(match[0], match[2]) for match in _KERNEL.findall(code)]


def configure(name: str, text: str, target: Target) -> Configured:
    """The kernel with the configurations that Inductor's heuristics give it for the target. Call it while ``answering`` is open."""
    file = file_name(KernelSource(name, "triton", text, (), (), (), (), 0))
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    module = types.ModuleType(name)
    module.__file__ = file
    exec(compile(text, file, "exec"), module.__dict__)
    tuner = next(value for key, value in vars(module).items() if hasattr(value, "configs") and hasattr(value, "triton_meta"))
    config = tuner.configs[0]
    options: dict[str, Any] = {"num_warps": config.num_warps, "num_stages": config.num_stages}
    options |= {"sanitize_overflow": False, "enable_fp_fusion": True}  # as Inductor and Triton have them by default
    options |= {key: value for key, value in config.kwargs.items() if target.kind == "hip" and key in AMD_OPTIONS}
    constants = {key: value for key, value in config.kwargs.items() if key not in options}
    return Configured(name, text, tuner, constants, options, len(tuner.configs))


def begun(name: str, text: str, target: Target, marks: Marks = ()) -> Reached:
    """One kernel before its first level. Call it while ``answering`` is open."""
    try:
        with PARSING:
            kernel = configure(name, text, target)
    except Exception as error:  # Inductor's heuristics run here, on text that it wrote for other versions of Triton perhaps
        return Reached(None, name, error=f"{type(error).__name__}: {error}"[:1_500])
    source = KernelSource(
        name, "triton", text, marks, (), (), (), 0, constants=tuple(kernel.constants.items()),
        warps=kernel.options["num_warps"], stages=kernel.options["num_stages"],
    )  # fmt: skip
    program = inductor_program(kernel.tuner, kernel.constants)
    return Reached(kernel, name, rest=assemble_stepwise(source, target, steps=program_stages(name, program, kernel.options, target)))


def assembled(code: str, target: str) -> Iterator[tuple[str, list[Level], str]]:
    """(kernel, its levels, why it went no further) for a target by name, one kernel after the other."""
    with answering(TARGETS[target]):
        for name, text in kernel_texts(code):
            each = begun(name, text, TARGETS[target])
            each.go_on("sass")
            yield each.name, each.levels, each.error


def record_inductor_levels(recorder: Recorder, target: Target, parts: Sequence[Below]) -> None:
    """Records the stages ttir to sass of these parts: first all that Triton makes, then machine code, whose tools run side by side.

    A kernel that fails keeps the levels that it reached; so does one for which the run's time ran short.
    """
    waiting = list(parts)
    while waiting:
        batch = [waiting.pop(0)]
        while waiting and sum(len(kernel_texts(one.code)) for one in (*batch, waiting[0])) <= AT_ONCE:
            batch.append(waiting.pop(0))
        _record_batch(recorder, target, batch)


def _record_batch(recorder: Recorder, target: Target, parts: Sequence[Below]) -> None:
    above = "llir" if target.kind == "hip" else "ptx"
    found: list[tuple[Below, list[Reached]]] = []
    with answering(target):
        for one in parts:
            every = []
            for name, text in kernel_texts(one.code):
                every.append(Reached(None, name, error=RAN_SHORT) if recorder.short else begun(name, text, target, one.marks.get(name, ())))
                every[-1].go_on(above)
            found.append((one, every))
            for stage in LEVELS[:-1]:
                _record_level(recorder, target, one, stage, every)

    def finish(each: Reached) -> None:
        if not each.error and recorder.short:
            each.error = RAN_SHORT
        elif not each.error:
            each.go_on("sass")

    with ThreadPoolExecutor(min(MAX_THREADS, len(os.sched_getaffinity(0)))) as pool:
        finishing = [(one, every, [pool.submit(finish, each) for each in every]) for one, every in found]
        for one, every, jobs in finishing:
            for job in jobs:
                job.result()
            _record_level(recorder, target, one, LEVELS[-1], every)


def _record_level(recorder: Recorder, target: Target, one: Below, stage: StageName, every: list[Reached]) -> None:
    with recorder.stage(one.region, stage, one.part) as draft:
        draft.origins = one.origins
        if not every or (target.kind == "hip" and stage == "ptx"):
            draft.skip(NO_KERNELS if not every else NO_PTX)
        elif all(each.error == RAN_SHORT and not each.level(stage) for each in every):
            draft.skip(RAN_SHORT)
        else:
            describe_level(draft, stage, every, one.part)
            draft.millis = sum(level.millis for each in every if (level := each.level(stage)))


def describe_level(draft: Draft, stage: str, every: list[Reached], part: Part) -> None:
    """One level of all kernels; the configurations, and those that failed, as decisions."""
    for each in every:
        level = each.level(stage)
        if level is None:
            draft.section(each.name, f"This kernel did not get here: {each.error}", "text")
            draft.decisions.append(
                Decision(
                    subject=each.name[:400],
                    verdict="refused",
                    rule="time_ran_short" if each.error == RAN_SHORT else "not_compiled",
                    reason=each.error[:4_000],
                )
            )
            continue
        draft.section(each.name, level.text, level.language if level.language else LANGUAGES[stage], level.marks)
        if each.kernel is not None:
            draft.decisions.append(each.kernel.decision)
        if level.facts:
            draft.kernels.append(Kernel(name=each.name[:400], kind="triton", part=part, facts=level.facts))
    draft.facts["kernels"] = sum(each.level(stage) is not None for each in every)
    draft.facts["failed"] = sum(each.level(stage) is None for each in every)
