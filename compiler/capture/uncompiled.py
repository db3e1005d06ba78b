"""A region that is not compiled: one of Dynamo's graphs comes in, and the same graph goes out, with the stages that there are of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch.fx import GraphModule

from compiler.capture.aot import CompiledPart
from compiler.capture.origins import OriginTable
from compiler.capture.present import present_here
from compiler.capture.region import Observer, Region
from compiler.recorder import Recorder
from compiler.target import Target
from compiler.trace import Part, StageName

NOTHING = "Eager PyTorch compiles nothing: each op is a kernel of its own, as the eager tab shows."
BASELINE = "Eager PyTorch is what the other compilers are compared with."
REGIONS = "Eager PyTorch runs the whole script without compiling. Dynamo only finds the regions that torch.compile would compile."
WHOLE: tuple[StageName, ...] = ("joint", "passes")
EACH: tuple[StageName, ...] = ("aten", "loops", "fusion", "autotune", "code", "wrapper", "ttir", "ttgir", "llir", "ptx", "sass")


@dataclass(slots=True)
class NoCompiler:
    """What stands in the place of a compiler: there are no compiled parts."""

    origins: OriginTable
    parts: dict[Part, CompiledPart] = field(default_factory=dict)
    mutated: tuple[int, ...] = ()
    readable: tuple[str, ...] = ()


def eager_region(gm: GraphModule, inputs: Sequence[Any], *, target: Target, recorder: Recorder, observer: Observer) -> Callable[..., Any]:
    """The region as Dynamo captured it; it runs op by op."""
    captured = observer.frames.capture(gm, observer.modules, "cuda" if target.is_gpu else "")
    if captured.region == 0:
        recorder.note(REGIONS)
    reasons = [*((name, "", NOTHING) for name in WHOLE), *((name, "forward", NOTHING) for name in EACH), ("numerics", "forward", BASELINE)]
    if not present_here(target):
        reasons.append(("timing", "forward", f"Not measured on {target.name}: this machine has no such GPU."))
    for name, part, reason in reasons:
        with recorder.stage(captured.region, name, part) as draft:  # type: ignore[arg-type]  # names and parts of the trace
            draft.skip(reason)
    return Region(captured.region, gm, NoCompiler(captured.origins), gm, observer)
