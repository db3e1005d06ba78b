"""Runs programs as torch alone does, or through our observation, in a process of its own: ``python -m bench.fidelity_sides SIDE FOLDER``.

The programs come as JSON on standard input. The side ``torch`` knows nothing of our compiler: torch logs to standard error and to
TORCH_TRACE. The side ``trace`` writes the trace of each program to FOLDER. With STUB set, both skip the C++ compiler.
"""

from __future__ import annotations

import ctypes
import dataclasses
import json
import linecache
import os
import sys
import traceback
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

SNIPPET = "snippet.py"
RECORD, FIELD = "\x1e", "\x1f"


def say(kind: str, text: str) -> None:
    """One more record between those of torch's loggers."""
    sys.stderr.write(f"{RECORD}{kind}{FIELD}{text}\n")
    sys.stderr.flush()


def without_builds() -> None:
    """Generated C++ is not compiled: a kernel that would have written to memory fills it with zeros.

    What Inductor generates does not depend on it: it loads a kernel after all of the region's code was written.
    """
    from torch._inductor.codecache import CppPythonBindingsCodeCache

    def zeros(argument_types: Sequence[str], source: str, *args: object, **kwargs: object) -> Callable[..., None]:
        written = [place for place, kind in enumerate(argument_types) if "*" in kind and not kind.strip().startswith("const")]

        def kernel(*arguments: Any) -> None:  # noqa: ANN401
            for place in written:
                tensor = arguments[place]
                storage = tensor.untyped_storage()
                ctypes.memset(tensor.data_ptr(), 0, storage.nbytes() - tensor.storage_offset() * tensor.itemsize)

        return kernel

    CppPythonBindingsCodeCache.load_pybinding = staticmethod(zeros)  # type: ignore[method-assign,assignment]


def run_as_main(source: str) -> None:
    """What ``python snippet.py`` does."""
    linecache.cache[SNIPPET] = (len(source), None, source.splitlines(keepends=True), SNIPPET)
    module, before = types.ModuleType("__main__"), sys.modules["__main__"]
    module.__dict__.update(__file__=SNIPPET, __builtins__=__builtins__)
    sys.modules["__main__"] = module
    try:
        exec(compile(source, SNIPPET, "exec", dont_inherit=True), module.__dict__)
    finally:
        sys.modules["__main__"] = before


def torch_side(programs: Mapping[str, str]) -> None:
    """Plain torch; each score is said as Inductor's method returns it."""
    import torch
    from torch._inductor.scheduler import Scheduler

    scored = Scheduler.score_fusion_key

    def told(self: Any, nodes: Any) -> Any:  # noqa: ANN401
        score = scored(self, nodes)
        parts = dataclasses.asdict(score) if dataclasses.is_dataclass(score) else {"score": list(score)}  # type: ignore[call-overload,arg-type]
        say("score", json.dumps([nodes[0].get_name(), nodes[1].get_name(), parts]))
        return score

    with patch.object(Scheduler, "score_fusion_key", told):
        for name, source in programs.items():
            torch._dynamo.reset()
            say("program", name)
            artifact: dict[str, object] = {"name": "program", "encoding": "string"}
            torch._logging.trace_structured("artifact", metadata_fn=lambda artifact=artifact: artifact, payload_fn=lambda name=name: name)
            try:
                run_as_main(source)
            except Exception:  # whatever a program raises is a result to be compared
                say("failed", traceback.format_exc())
            say("end", name)


def trace_side(programs: Mapping[str, str], folder: Path) -> None:
    """Our observation of the same; the stages of a trace in the order in which they were first told."""
    from compiler.options import Options
    from compiler.snippet import run_snippet
    from compiler.target import find_target
    from compiler.trace import Event, Stage, Trace

    target = find_target("cpu")
    assert target is not None
    for name, source in programs.items():
        events: list[Event] = []
        run_snippet(source, Options(measure=False), target, "inductor", events.append)
        trace = Trace.fold(events)
        told = [(event.region, event.name, event.part) for event in events if isinstance(event, Stage)]
        stages = sorted(trace.stages, key=lambda stage: told.index((stage.region, stage.name, stage.part)))
        (folder / f"{name}.json").write_text(trace.model_copy(update={"stages": tuple(stages)}).to_json())


def main() -> None:
    programs = json.load(sys.stdin)
    if os.environ.get("STUB"):
        without_builds()
    if sys.argv[1] == "torch":
        torch_side(programs)
    else:
        trace_side(programs, Path(sys.argv[2]))


if __name__ == "__main__":
    main()
