"""Why a run ended: from what the worker, the zygote and the run itself know to the one event that closes it, with what to do about it."""

from __future__ import annotations

import signal

from app.sandbox import Limits
from compiler.trace import End, Problem

_MIB = 1 << 20


def limit_reached(limit: str, limits: Limits) -> Problem:
    """The problem of a run that was stopped at a limit: time, turn, memory, processes, disk."""
    message, hint = {
        "time": (
            f"The run took longer than {limits.seconds:g} s, the most that one may take.",
            "Use fewer layers, smaller tensors, fewer iterations or fewer graphs, or switch measuring off; a snippet that waits for input "
            "or loops for ever is stopped here too.",
        ),
        "turn": (
            f"The run measured for longer than {limits.turn:g} s in one turn, while others wait for the device.",
            "Measure a smaller problem.",
        ),
        "memory": (
            f"The run used more than {limits.memory / _MIB:,.0f} MiB of memory, the most that one may use.",
            "Use smaller tensors or a smaller batch, and free what is no longer needed.",
        ),
        "processes": (
            f"The run started more than {limits.processes} processes and threads, the most that one may have.",
            "Do not start processes; load data without workers.",
        ),
        "disk": (
            f"The run wrote more than {limits.disk / _MIB:,.0f} MiB or {limits.inodes:,} files, or a file of more than "
            f"{limits.file / _MIB:,.0f} MiB.",
            "Write less to the temporary directory.",
        ),
    }[limit]
    return Problem(kind="limit", message=message, hint=hint)


_SIGNS = (
    ("memory", ("MemoryError", "can't allocate memory", "Cannot allocate memory", "bad_alloc", "[Errno 12]")),
    ("disk", ("No space left on device", "File too large", "[Errno 28]", "[Errno 27]")),
    ("processes", ("can't start new thread", "[Errno 11] Resource temporarily unavailable")),
)
"""What Python, PyTorch and a C++ compiler say when the kernel refuses them something for which this run has a limit."""


def closing_event(
    end: End | None, code: int, limit: str, limits: Limits, words: str, problem: Problem | None = None, last: str = ""
) -> End:
    """The End to store, from the run's own (if any), the exit code (negative: a signal) and the limit that it was killed for (if any).

    ``problem`` is the worker's own finding, which goes before everything else. ``last`` says what the run told last.
    """
    if problem is not None:
        return _error(problem)
    if limit:
        return _error(_with_place(limit_reached(limit, limits), last))
    if code in (-signal.SIGXFSZ, -signal.SIGXCPU):
        return _error(_with_place(limit_reached("disk" if code == -signal.SIGXFSZ else "time", limits), last))
    if end is not None and end.status == "ok" and code == 0:
        return end
    if end is not None and end.status == "error" and code >= 0:
        return End(status="error", problem=_named_limit(end.problem, limits))
    return _error(_died(code, words))


def _with_place(problem: Problem, last: str) -> Problem:
    """The problem with how far the run had come."""
    said = last or "it had found no region: it was still in the script itself"
    return problem.model_copy(update={"message": f"{problem.message} When it was ended, {said}."[:4000]})


def _named_limit(problem: Problem | None, limits: Limits) -> Problem | None:
    """The problem as a limit's, when its message is what the kernel says at that limit."""
    if problem is None or problem.kind == "limit":
        return problem
    for limit, signs in _SIGNS:
        if any(sign in problem.message for sign in signs):
            told = limit_reached(limit, limits)
            message = f"{told.message} The snippet saw: {problem.message}"[:4000]
            return problem.model_copy(update={"kind": "limit", "message": message, "hint": told.hint})
    return problem


def _died(code: int, words: str) -> Problem:
    """The run's process ended without a closing event, or after one that it then belied."""
    if code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        said = {"SIGSYS": "it made a system call that no run may make", "SIGSEGV": "it read or wrote memory that it does not have"}
        cause = f"The run's process was ended by {name}" + (f": {said[name]}." if name in said else ".")
    else:
        cause = f"The run's process left with exit code {code} before the run was finished."
    hint = "The snippet may have called os._exit or a native function that crashed. Its last words, if any, are in the output."
    return Problem(kind="process", message=cause, hint=hint, detail=words[-4000:])


def _error(problem: Problem) -> End:
    return End(status="error", problem=problem)
