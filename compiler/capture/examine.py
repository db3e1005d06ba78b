"""Looks at regions as they are first called: what eager does, how long eager and compiled code take, and whether their results agree."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from compiler.capture.aot import CompiledPart
from compiler.capture.eager import OpCall, describe_eager, eager_calls, no_leaves, size_of, tensors_in
from compiler.capture.frames import Frames
from compiler.capture.gradients import backward_of, with_gradient
from compiler.capture.inductor_kernels import Below, record_inductor_levels
from compiler.capture.joint import byte_count
from compiler.capture.numerics import Numerics
from compiler.capture.present import present_here
from compiler.capture.region import Region
from compiler.errors import CompileError
from compiler.ir import Extern
from compiler.options import Options
from compiler.recorder import Draft, Recorder
from compiler.runtime.measure import Prepared, Sample, Subject, clock_mhz, copy_rate, measure, run_once
from compiler.sizes import hint
from compiler.spans import Span
from compiler.target import Target
from compiler.trace import CompilerName, Decision, Part, Timing

CALL_SECONDS = 0.3
STEP_SECONDS = 0.03
STEPS_SECONDS = 1.0
MAX_INPUT_BYTES = 2 << 30


@dataclass(slots=True)
class Call:
    """The first call of a region: copies of its inputs, and whether gradients were on. ``failed``: eager raises on these inputs."""

    region: Region
    inputs: list[Any]
    gradients: bool
    failed: bool = False

    def fresh(self) -> list[Any]:
        """New copies, so that a run that writes to its inputs disturbs no other."""
        return [with_gradient(value) for value in self.inputs]


@contextmanager
def same_random_numbers(device: str) -> Iterator[None]:
    """What draws random numbers inside changes nothing for the script."""
    with torch.random.fork_rng(devices=[0] if device == "cuda" else []):
        yield


@dataclass(slots=True)
class Examiner:
    """Keeps the first call of each region, and measures and compares when the script is done."""

    recorder: Recorder
    options: Options
    target: Target
    modules: dict[str, Span] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    compiler: CompilerName = "fuselab"
    below: list[Below] = field(default_factory=list)
    frames: Frames = field(init=False)

    def __post_init__(self) -> None:
        self.frames = Frames(self.recorder)

    @property
    def device(self) -> str:
        return "cuda" if self.target.is_gpu and present_here(self.target) else "cpu"

    def called(self, region: Region, inputs: Sequence[Any]) -> None:
        """Emits the ``eager`` stage, and keeps the call for ``finish``."""
        if size_of(tensors_in(list(inputs))) > MAX_INPUT_BYTES:
            with self.recorder.stage(region.id, "eager") as draft:
                draft.skip("The inputs are too large to run the region a second time.")
            return
        call = Call(region, [with_gradient(value) for value in inputs], torch.is_grad_enabled())
        self.calls.append(call)
        call.failed = True
        with same_random_numbers(self.device), self.recorder.stage(region.id, "eager") as draft:
            describe_eager(draft, region.graph, region.compiler.origins, eager_calls(region.graph, call.fresh()))
            if not present_here(self.target):
                draft.decisions.append(stands_in(self.target.name))
        call.failed = False

    def finish(self) -> None:
        """Emits ``timing`` and ``numerics`` of every region that was called."""
        self.frames.finish()
        for call in self.calls:
            self._lower_backward(call)
            for examine in (self._numerics, self._timing) if present_here(self.target) else (self._timing, self._numerics):
                for part in call.region.compiler.parts:
                    with same_random_numbers(self.device), torch.set_grad_enabled(call.gradients):
                        try:
                            examine(call, part)
                        except CompileError:
                            continue  # the recorder has it: the other parts are still worth looking at
            for made in call.region.compiler.parts.values():
                if not isinstance(made, CompiledPart) and present_here(self.target):
                    made.tell_configurations()
            if self.options.measure and present_here(self.target):
                self._eager_times(call)
            if self.compiler == "eager" and present_here(self.target):
                self._eager_call(call)
        record_inductor_levels(self.recorder, self.target, self.below)  # last: a backward part may have been compiled late
        self.below.clear()

    def _lower_backward(self, call: Call) -> None:
        """Inductor compiles a backward part when it is first called. If the script never calls it, it is called here, to be seen."""
        if call.failed or not getattr(call.region.compiler, "waiting", False) or not present_here(self.target):
            return
        with same_random_numbers(self.device), torch.set_grad_enabled(call.gradients):
            backward = backward_of(call.region.compiled, call.fresh)
            if backward is not None:
                run_once(backward)
                self.recorder.note("The script never runs the backward pass of a region; Fuselab ran it, so that it was compiled.")

    # Numerics

    def _numerics(self, call: Call, part: Part) -> None:
        with self.recorder.stage(call.region.id, "numerics", part) as draft:
            numerics = Numerics(call.region, call.fresh, part)
            if present_here(self.target):
                numerics.against_eager(draft)
            elif not isinstance(call.region.compiler.parts[part], CompiledPart):
                draft.skip(f"Compiled for {self.target.name}, which is not here: Inductor's code was not run, and the region ran eagerly.")
            else:
                numerics.interpreted(draft)

    # Timing

    def _timing(self, call: Call, part: Part) -> None:
        with self.recorder.stage(call.region.id, "timing", part) as draft:
            if not present_here(self.target):
                draft.skip(f"Compiled for {self.target.name}, not measured on: this machine has no such GPU.")
                return
            if not self.options.measure:
                draft.skip("Measuring is switched off in the options.")
                return
            made = call.region.compiler.parts[part]
            draft.origins = made.shown.origins
            pair = _calls(call, part)
            if pair is None:
                draft.skip("No result of the region leads back to an input that requires gradients.")
                return
            made.keep = True
            run_once(pair[1])
            made.keep, inputs = False, made.last or []
            samples = measure(pair, self.device, CALL_SECONDS)
            moved = _moved(made)
            for compiler, sample in zip(("eager", self.compiler), samples, strict=True):
                draft.timings.append(self._timing_of(f"{part} call", "call", compiler, part, sample, moved, ()))
            if isinstance(made, CompiledPart):
                self._steps(draft, made, inputs)
            else:
                self._launches(draft, made, pair[1])
            draft.facts["launches"] = made.shown.launches
            self._conditions(draft)

    def _conditions(self, draft: Draft) -> None:
        """Under what the times were measured."""
        draft.facts["copy_gb_per_s"] = round(copy_rate(self.device) / 1e9, 2)
        draft.facts |= {"threads": torch.get_num_threads()} if self.device == "cpu" else {"clock_mhz": clock_mhz(self.device)}

    def _steps(self, draft: Draft, made: CompiledPart, inputs: Sequence[Any]) -> None:
        steps = list(made.compiled.timed_steps(inputs))
        budget = min(STEP_SECONDS, STEPS_SECONDS / max(1, len(steps)))
        for step, run in steps:
            (sample,) = measure([run], self.device, budget)
            moved = step.bytes if not isinstance(step, Extern) else _extern_bytes(step, made)
            draft.timings.append(self._timing_of(step.name, "kernel", "fuselab", made.part, sample, moved, (step.origin,)))

    def _launches(self, draft: Draft, made: Any, run: Subject) -> None:  # noqa: ANN401  # an ObservedPart
        """The times of the kernels that Inductor's code launches, each run again on the arguments that it had."""
        launches = made.launches(lambda: run_once(run))
        budget = min(STEP_SECONDS, STEPS_SECONDS / max(1, len(launches)))
        for kernel, again in launches:
            (sample,) = measure([again], self.device, budget)
            moved = kernel.facts.get("bytes")
            draft.timings.append(
                self._timing_of(
                    kernel.name, "kernel", self.compiler, made.part, sample, moved if isinstance(moved, int) else None, kernel.origins
                )
            )
        if len(launches) < len(made.kernels):  # a CUDA graph replays them without a call of each
            draft.facts["kernels_not_timed"] = len(made.kernels) - len(launches)

    def _eager_times(self, call: Call) -> None:
        """The ``eager`` stage once more, now with the time of each op."""
        with same_random_numbers(self.device), self.recorder.stage(call.region.id, "eager") as draft:
            with torch.set_grad_enabled(call.gradients):
                dispatched = eager_calls(call.region.graph, call.fresh(), keep=True)
            describe_eager(draft, call.region.graph, call.region.compiler.origins, dispatched)
            places = {node.name: place for place, node in enumerate(call.region.graph.graph.nodes)}
            timed = [(op, op.again) for op in dispatched.calls if op.again is not None]
            budget = min(STEP_SECONDS, STEPS_SECONDS / max(1, len(timed)))
            with torch.no_grad():
                for op, again in timed:
                    try:
                        (sample,) = measure([again], self.device, budget)
                    except (IndexError, RuntimeError):  # a later op wrote to what this one reads, such as an index: it is not timed
                        continue
                    origins = (places[op.node],) if op.node in places else ()
                    draft.timings.append(self._timing_of(op.op, "op", "eager", op.part, sample, _op_bytes(op), origins))

    def _eager_call(self, call: Call) -> None:
        """The ``timing`` stage of a region that is not compiled: the whole call, and its backward pass if it has one."""
        functions = [call.region.graph]
        with same_random_numbers(self.device), torch.set_grad_enabled(call.gradients):
            dispatched = eager_calls(call.region.graph, call.fresh())
            for part in ("forward", "backward"):
                kernels = sum(op.kernel for op in dispatched.of(part))
                subjects = _subjects(functions, call, part) if part == "forward" or dispatched.of(part) else None
                if subjects is None:
                    continue
                with self.recorder.stage(call.region.id, "timing", part) as draft:
                    draft.facts["launches"] = kernels
                    if not self.options.measure:
                        draft.skip("Measuring is switched off in the options.")
                        continue
                    (sample,) = measure(subjects, self.device, CALL_SECONDS)
                    draft.timings.append(self._timing_of(f"{part} call", "call", "eager", part, sample, None, ()))
                    self._conditions(draft)

    def _timing_of(
        self, subject: str, scope: str, compiler: str, part: Part, sample: Sample, moved: int | None, origins: tuple[int, ...]
    ) -> Timing:
        rate = moved / sample.median_us * 1e-3 if moved and sample.median_us > 0 else None
        fraction = rate * 1e9 / copy_rate(self.device) if rate is not None else None
        return Timing.model_validate({
            "subject": subject[:400], "scope": scope, "compiler": compiler, "part": part, "median_us": sample.median_us,
            "low_us": sample.low_us, "high_us": sample.high_us, "repeats": sample.repeats, "bytes": moved, "gb_per_s": rate,
            "copy_fraction": fraction, "origins": origins,
        })  # fmt: skip


def stands_in(target: str) -> Decision:
    return Decision(
        subject="dispatch",
        verdict="noted",
        rule="dispatched_on_cpu",
        reason=(
            f"The tensors are on the CPU here and stand for tensors on {target}. Where PyTorch chooses an op by device (attention, "
            "convolution, batch norm, fused optimisers), the GPU dispatches another one."
        ),
    )


def _calls(call: Call, part: Part) -> list[Subject] | None:
    """Eager and compiled code of a part as what can be timed, None when there is no backward pass to run."""
    return _subjects((call.region.graph, call.region.compiled), call, part)


def _subjects(functions: Sequence[Callable[..., Any]], call: Call, part: Part) -> list[Subject] | None:
    if part != "backward":
        again = writes_to_inputs(call)
        return [_forward(function, call) if again else functools.partial(function, *call.fresh()) for function in functions]
    pair: list[Subject] = [backward for function in functions if (backward := backward_of(function, call.fresh))]
    return pair if len(pair) == len(functions) else None


def _forward(function: Callable[..., Any], call: Call) -> Prepared:
    """A call on inputs of its own, which it may change."""
    return Prepared(lambda: functools.partial(function, *no_leaves(call.fresh())))


def writes_to_inputs(call: Call) -> bool:
    """Whether the region changes its inputs in place, such as running statistics: a second call on the same would do something else."""
    inputs = no_leaves(call.fresh())
    before = [value._version for value in tensors_in(inputs)]
    call.region.graph(*inputs)
    return before != [value._version for value in tensors_in(inputs)]


def _moved(made: CompiledPart) -> int:
    """The bytes that any implementation of the part must move: its inputs and its results, each once."""
    graph = made.gm.graph
    inputs = [node.meta.get("val") for node in graph.nodes if node.op == "placeholder" and node.users]
    (output,) = (node for node in graph.nodes if node.op == "output")
    results = [node.meta.get("val") for node in output.all_input_nodes if node.op != "placeholder"]
    return sum(byte_count(value) for value in tensors_in([*inputs, *results]))


def _extern_bytes(step: Extern, made: CompiledPart) -> int | None:
    buffers = made.compiled.lowered.graph.buffers
    names = {ref.buffer for ref in step.refs()} | {name for name in step.outputs if name is not None}
    sizes = [hint(buffers[name].bytes) for name in names if name in buffers]
    return sum(sizes) or None


def _op_bytes(op: OpCall) -> int | None:
    return op.read + op.written or None
