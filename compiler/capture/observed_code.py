"""The stages ``code`` and ``wrapper`` of the real Inductor: what it wrote, with the origin of every line."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from compiler.capture.observed_calls import library_of
from compiler.capture.observed_loops import kernel_facts, kernel_of
from compiler.capture.places import Places, fitted
from compiler.observe.inductor_code import CodeLog, Launch, MemoryStep
from compiler.observe.inductor_loops import View
from compiler.observe.inductor_names import QUIET_CONFIG
from compiler.recorder import Draft
from compiler.target import Target
from compiler.trace import Kernel, Part, Scalar

_KERNEL = re.compile(r"^(\w+) = async_compile\.(\w+)\(.*?r?'''(.*?)'''", re.MULTILINE | re.DOTALL)
_USER_KERNEL = re.compile(r"^\s+(?:\w+ = )?(extern_kernels\.\w+|torch\.ops\.[\w.]+)\(", re.MULTILINE)
_NAME = re.compile(r"[A-Za-z_]\w*")
_CALL = re.compile(r"^\s+(?:[\w, ()]+ = )?([A-Za-z_][\w.]*?)(?:\.run)?\(")
_OUT = re.compile(r"\bout=(\w+)")
_ASSIGNED = re.compile(r"^\s+(\w+) = ")
_COMMENT = re.compile(r"#   (?:%(\w+) : |\S+ => (.*))")
_OP_CALL = re.compile(r"(?:tl_math|libdevice|tl|triton_helpers|std|at::vec)?(?:\.|::)?(\w+)\(")
_INFIX = re.compile(r"= \(?tmp\w+ ([-+*/]|==|!=|<=?|>=?) tmp\w+\)?;?$")
_MADE = re.compile(r"^\s*(?:auto )?(tmp\w+) = ")
_VALUE = re.compile(r"\btmp\w+")
SIGNS = {"+": "add", "-": "sub", "*": "mul", "/": "div", "==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
OPS = {"max2": "amax", "min2": "amin", "max_propagate_nan": "amax", "min_propagate_nan": "amin", "fmax": "maximum", "fmin": "minimum"}
PLUMBING = {
    "load", "store", "static_cast", "full", "arange", "broadcast_to", "loadu", "program_id", "to", "cast", "Vectorized", "vec_reduce_all",
}  # fmt: skip
_META = {
    "grid": r"'grid_type': '(\w+)'",
    "loads": r"'num_load': (\d+)",
    "stores": r"'num_store': (\d+)",
    "reductions": r"'num_reduction': (\d+)",
    "size_hints": r"size_hints=\{(.*?)\}",
    "reduction_hint": r"reduction_hint=ReductionHint\.(\w+)",
    "heuristic": r"@triton_heuristics\.(\w+)\(",
    "warps": r"num_warps=(\d+)",
    "stages": r"num_stages=(\d+)",
    "registers_limit": r"'max_registers': (\d+)",
    "gb": r"'kernel_num_gb': ([\d.e+-]+)",
    "flops": r"'kernel_flop': (\d+)",
    "deterministic": r"'are_deterministic_algorithms_enabled': (True|False)",
}


@dataclass(frozen=True, slots=True)
class Source:
    """A generated kernel in the output code: its name, the language's word of Inductor's, its text, and where the text begins."""

    name: str
    language: str
    text: str
    start: int


def sources_of(code: str) -> list[Source]:
    return [Source(found[1], found[2], found[3], found.start(3)) for found in _KERNEL.finditer(code)]


def launch_names(launch: Launch, views: Mapping[str, View]) -> list[str]:
    """The FX nodes that a launch computes."""
    return list(dict.fromkeys([*(name for node in launch.nodes if node in views for name in views[node].origins), *launch.origins]))


def describe_code(draft: Draft, log: CodeLog, kernels: Sequence[Kernel], views: Mapping[str, View], places: Places) -> None:
    """Fills in the stage: the text of each kernel."""
    draft.origins = places.origins
    origins = kernel_origins(log, views)
    for source in sources_of(log.code):
        text = source.text.strip("\n")
        marks = source_marks(text, origins.get(source.name, []), places)
        draft.section(
            source.name, text, "cpp" if source.language.startswith("cpp") else "python", fitted(marks, len(text) / max(1, len(log.code)))
        )
    if not draft.sections:
        draft.section("No kernels", "# Inductor wrote no kernel: every step is a call of a library.", "python")
    draft.kernels = list(kernels)


def kernel_origins(log: CodeLog, views: Mapping[str, View]) -> dict[str, list[str]]:
    """The FX nodes that each kernel computes, over all of its launches."""
    found: dict[str, list[str]] = {}
    for launch in log.launches:
        found.setdefault(launch.kernel, []).extend(launch_names(launch, views))
    return found


def kernel_marks(log: CodeLog, views: Mapping[str, View], places: Places) -> dict[str, tuple[tuple[int, ...], ...]]:
    """The origins of each line of each kernel's text, by the kernel's name."""
    origins = kernel_origins(log, views)
    return {
        source.name: tuple(source_marks(source.text.lstrip("\n"), origins.get(source.name, []), places)) for source in sources_of(log.code)
    }


def source_marks(text: str, names: Sequence[str], places: Places) -> list[tuple[int, ...]]:
    """The origins of each line of a kernel that computes these nodes: those that do the line's op, those of the values that it passes on,
    or else the kernel's.
    """
    whole = places.marks(names)
    values: dict[str, tuple[int, ...]] = {}
    marks: list[tuple[int, ...]] = []
    for line in text.split("\n"):
        plain = line.partition("#")[0].partition("//")[0]
        found = places.marks(names, _op_of(plain))
        made = _MADE.match(plain)
        if found == whole:
            used = [values[name] for name in _VALUE.findall(plain[made.end() :] if made else plain) if name in values]
            found = tuple(sorted({place for value in used for place in value})) or whole
        if made and found != whole:
            values[made[1]] = found
        marks.append(found if line.strip() else ())
    return marks


def _op_of(line: str) -> str:
    """The op that a line of a kernel does, by which its origin can be told from the kernel's others; "" if it is none's."""
    if sign := _INFIX.search(line):
        return SIGNS[sign[1]]
    for name in _OP_CALL.findall(line):
        if name not in PLUMBING and not (name == "where" and "mask" in line):
            return OPS.get(name, str(name))
    return ""


def kernels_of(log: CodeLog, after: Sequence[View], views: Mapping[str, View], places: Places, part: Part, target: Target) -> list[Kernel]:
    """The launches in the order in which the code calls them; where they are not known, the kernels that the code defines."""
    sources = {source.name: source for source in sources_of(log.code)}
    launches = ordered_launches(log) or [
        *(Launch(name, ()) for name in sources), *(Launch(name, (), extern=True) for name in _USER_KERNEL.findall(log.code)),
    ]  # fmt: skip
    made = []
    for launch in launches:
        source = sources.get(launch.kernel)
        kind: Literal["extern", "cpp", "triton"] = "extern" if source is None else "cpp" if source.language.startswith("cpp") else "triton"
        facts = {**kernel_facts(kernel_of(launch.nodes, after)), **(meta_facts(source.text) if source and kind == "triton" else {})}
        names = launch_names(launch, views)
        called = library_of(views[launch.nodes[0]]) if launch.extern and launch.nodes and launch.nodes[0] in views else None
        if called:
            facts["reason"] = called.reason
        made.append(
            Kernel(
                name=launch.kernel[:400],
                kind=kind,
                part=part,
                library=called.name(target) if called else launch.kernel.partition(".")[0][:400] if kind == "extern" else "",
                steps=tuple(node[:400] for node in launch.nodes[:2_000]),
                facts=facts,
                origins=places.marks(names),
            )
        )
    return made[:5_000]


def ordered_launches(log: CodeLog) -> list[Launch]:
    """The launches in the order of the calls in the code: C++ kernels are written later than they are scheduled."""
    waiting = list(log.launches)
    ordered: list[Launch] = []
    for line in log.code.split("\n"):
        called = _CALL.match(line)
        place = next((place for place, launch in enumerate(waiting) if called and launch.kernel == called[1]), None)
        if place is not None:
            ordered.append(waiting.pop(place))
    return ordered + waiting


def meta_facts(text: str) -> dict[str, Scalar]:
    """What the decorator of a Triton kernel of Inductor's says."""
    facts: dict[str, Scalar] = {}
    for name, pattern in _META.items():
        found = re.search(pattern, text)
        if found is not None:
            facts[name] = int(found[1]) if found[1].isdigit() else found[1][:400]
    return facts


def describe_wrapper(draft: Draft, log: CodeLog, views: Mapping[str, View], places: Places) -> None:
    """Fills in the output code and the memory plan."""
    draft.origins = places.origins
    draft.section("Output code", log.code, "python", fitted(wrapper_marks(log, views, places)))
    if log.memory:
        rows = [(memory_text(step), places.marks(_of_buffer(step.buffer, views))) for step in log.memory]
        draft.section("Memory plan", "\n".join(text for text, _ in rows), "text", [marks for _, marks in rows])
    allocated = [step for step in log.memory if step.action == "allocate"]
    draft.facts |= {
        "launches": len(log.launches),
        "buffers_allocated": len(allocated),
        "buffers_reused": sum(step.action == "reuse" for step in log.memory),
        "bytes_allocated": sum(step.bytes or 0 for step in allocated),
    }


def memory_text(step: MemoryStep) -> str:
    size = f"{step.bytes:>14,} bytes" if step.bytes is not None else "size not known before the program runs"
    what = {
        "allocate": f"allocated  {size}",
        "reuse": f"reuses     {step.source}, {size.strip()}",
        "view": f"a view of  {step.source}",
        "free": "freed",
    }[step.action]
    return f"{step.buffer:<12} {what}" + (f"  {step.layout}" if step.layout and step.action != "free" else "")


def _of_buffer(name: str, views: Mapping[str, View]) -> tuple[str, ...]:
    found = next((view.origins for view in views.values() if name in view.buffers and not view.members), None)
    return found if found is not None else (name,)


def wrapper_marks(log: CodeLog, views: Mapping[str, View], places: Places) -> list[tuple[int, ...]]:
    """The origins of each line of the output code: of the kernel that it defines or calls, or of the buffers that it names."""
    lines = log.code.split("\n")
    marks: list[tuple[int, ...]] = [()] * len(lines)
    _mark_definitions(marks, log, kernel_origins(log, views), places)
    buffers = {name: view.origins for view in views.values() if not view.members for name in view.buffers}
    waiting = ordered_launches(log)
    comments: list[int] = []
    inside = False
    for number, line in enumerate(lines):
        inside = (inside or line.lstrip().startswith(("def call(", "def partition_"))) and not line.startswith(
            ("runner", "def get_args", "def benchmark")
        )
        if not inside or not line.strip():
            continue
        if line.lstrip().startswith("#"):
            comments.append(number)
            continue
        called = _CALL.match(line)
        if called and waiting and any(launch.kernel == called[1] for launch in waiting[:50]):
            place = next(place for place, launch in enumerate(waiting) if launch.kernel == called[1])
            names: Sequence[str] = launch_names(waiting.pop(place), views)
        else:
            made = _OUT.search(line) or _ASSIGNED.match(line)
            chosen = [made[1]] if made and made[1] in buffers else _NAME.findall(line)
            names = [origin for name in chosen for origin in buffers.get(name, (name,))]
        marks[number] = places.marks(names)
        if marks[number]:
            for comment in comments:
                marks[comment] = marks[number]
            comments = []
    return marks


def _mark_definitions(marks: list[tuple[int, ...]], log: CodeLog, origins: Mapping[str, list[str]], places: Places) -> None:
    lines = log.code.split("\n")
    for source in sources_of(log.code):
        names = origins.get(source.name, [])
        first = log.code.count("\n", 0, source.start)
        inside = source_marks(source.text, names, places)
        marks[first : first + len(inside)] = inside
        marks[first] = places.marks(names)
        above = first - 1
        while above >= 0 and lines[above].startswith("#"):
            found = _COMMENT.match(lines[above])
            said = _NAME.findall(found[1] or found[2]) if found else ()
            marks[above] = places.marks(said) or places.marks(names)
            above -= 1


def describe_configuration(draft: Draft, config: Mapping[str, tuple[str, str]]) -> None:
    """What of PyTorch's configuration was not at its default, and what observing sets."""
    lines = [f"{name} = {value}  # default {default}" for name, (default, value) in config.items()]
    lines += ["", "# Set to observe; neither changes the generated code:"]
    lines += [f"inductor.{name} = {value!r}" for name, value in QUIET_CONFIG.items()]
    draft.section("Configuration", "\n".join(["# All other entries are at their defaults."] * (not config) + lines).strip(), "python")
    draft.facts |= {"config": "; ".join(f"{name}={value}" for name, (_, value) in config.items())[:4_000] or "defaults"}


def describe_times(draft: Draft, times: Mapping[str, float], seconds: float) -> None:
    """Compile time by phase, as PyTorch itself counts it; phases contain one another."""
    ordered = sorted(times.items(), key=lambda item: -item[1])
    lines = [f"{value * 1e3:>12.1f} ms  {name}" for name, value in ordered]
    draft.section("Compile time by phase", "\n".join([f"{seconds * 1e3:>12.1f} ms  this part, as observed", *lines]))
    draft.facts["compile_ms"] = round(seconds * 1e3, 1)


def describe_outcome(draft: Draft, compiled: Any, counts: Mapping[str, int], *, loaded: bool) -> None:  # noqa: ANN401  # Inductor's compiled graph
    """Caches and CUDA graphs, as Inductor tells of them."""
    caches = {name: value for name, value in counts.items() if "cache" in name}
    draft.facts |= {name: value for name, value in caches.items() if isinstance(value, int)}
    draft.facts["fx_graph_cache"] = "off while observing: a graph from the cache would show nothing"
    # Its extern_calls are left out: they count each item of a call's result as another call.
    for name in ("pattern_matcher_count", "pattern_matcher_nodes", "cudagraph_skips", "cudagraph_partitions"):
        if name in counts:
            draft.facts[name] = counts[name]
    reason = getattr(compiled, "disabled_cudagraphs_reason", None)
    asked = getattr(compiled, "cudagraph_info", None) is not None
    failed = getattr(getattr(compiled, "cudagraph_info", None), "cudagraph_fail_reasons", None)
    said = str(reason) if reason else "; ".join(map(str, failed)) if failed else ""
    used = getattr(getattr(compiled, "fx_kwargs", None), "get", lambda _: None)("cudagraphs")
    wanted = "used" if loaded else "allowed: the device, which is not here, would record one"
    draft.facts["cuda_graphs"] = f"skipped: {said}"[:4_000] if said else wanted if asked or used else "not asked for"
