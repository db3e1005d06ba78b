"""How long things take: callables come in, medians with spread go out; subjects take turns, so that what disturbs one disturbs all."""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

BUDGET_SECONDS = 0.3
MIN_SAMPLE_SECONDS = 20e-6
MAX_REPEATS = 400
MIN_REPEATS = 5
COPY_BYTES = {"cpu": 64 << 20, "cuda": 512 << 20}
FLUSH_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class Prepared:
    """What can be run once only after a preparation that is not timed, such as a backward pass after its forward pass."""

    prepare: Callable[[], Callable[[], Any]]


Subject = Callable[[], object] | Prepared


@dataclass(frozen=True, slots=True)
class Sample:
    """A median in microseconds with the 10th and 90th percentile of ``repeats`` samples."""

    median_us: float
    low_us: float
    high_us: float
    repeats: int


def summary(seconds: Sequence[float]) -> Sample:
    """The sample that these times make."""
    ordered = sorted(seconds)
    last = len(ordered) - 1
    low, high = ordered[round(last * 0.1)], ordered[round(last * 0.9)]
    return Sample(statistics.median(ordered) * 1e6, low * 1e6, high * 1e6, len(ordered))


def measure(subjects: Sequence[Subject], device: str = "cpu", budget: float = BUDGET_SECONDS) -> list[Sample]:
    """One sample for each subject, within about ``budget`` seconds each. The subjects are run in turns."""
    if not subjects:
        return []
    timer = _gpu_seconds if device == "cuda" else _cpu_seconds
    counts, repeats = [], MAX_REPEATS
    for subject in subjects:
        run_once(subject)  # the first call pays for what is done once
        once = max(min(timer(_runs(subject, 1)) for _ in range(3)), 1e-7)
        count = max(1, round(MIN_SAMPLE_SECONDS / once)) if device != "cuda" else 1
        counts.append(count)
        repeats = min(repeats, max(MIN_REPEATS, int(budget / (once * count))))
    times: list[list[float]] = [[] for _ in subjects]
    limit = time.perf_counter() + 2 * budget * len(subjects)
    for done in range(repeats):
        for subject, count, own in zip(subjects, counts, times, strict=True):
            own.append(timer(_runs(subject, count)))
        if done + 1 >= MIN_REPEATS and time.perf_counter() > limit:
            break
    return [summary(own) for own in times]


def run_once(subject: Subject) -> None:
    """Runs it, after its preparation if it needs one."""
    _runs(subject, 1)[0]()


def _runs(subject: Subject, count: int) -> list[Callable[[], object]]:
    return [subject.prepare() for _ in range(count)] if isinstance(subject, Prepared) else [subject] * count


def _cpu_seconds(runs: Sequence[Callable[[], object]]) -> float:
    start = time.perf_counter()
    for run in runs:
        run()
    return (time.perf_counter() - start) / len(runs)


def _gpu_seconds(runs: Sequence[Callable[[], object]]) -> float:
    """The time between two events on the GPU, with its L2 cache overwritten before."""
    _flush_buffer().zero_()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for run in runs:
        run()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) / len(runs) / 1e3


@functools.cache
def _flush_buffer() -> torch.Tensor:
    return torch.empty(FLUSH_BYTES, dtype=torch.int8, device="cuda")


@functools.cache
def copy_rate(device: str) -> float:
    """Bytes per second that a plain copy of a large tensor moves on the device, read and written; measured once a process."""
    source = torch.ones(COPY_BYTES[device] // 4, dtype=torch.float32, device=device)
    target = torch.empty_like(source)
    (sample,) = measure([lambda: target.copy_(source)], device, 0.15)
    return 2.0 * float(source.nbytes) / (sample.median_us * 1e-6)


def clock_mhz(device: str) -> int | None:
    """The streaming multiprocessors' clock right now, None where it cannot be read."""
    if device != "cuda":
        return None
    try:
        return int(torch.cuda.clock_rate())
    except (ModuleNotFoundError, RuntimeError, AttributeError, torch.cuda.DeferredCudaCallError):  # no NVML here
        return None
