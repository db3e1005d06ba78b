"""Hand-written runs of every shape that a page must show: valid by the schema of compiler.trace, put through the store like a worker's."""

from __future__ import annotations

from compiler.trace import (
    STAGE_NAMES,
    Begin,
    CompilerName,
    Decision,
    Drawing,
    Edge,
    End,
    Event,
    Kernel,
    Node,
    Origin,
    Output,
    Part,
    Problem,
    Region,
    RegionFound,
    Section,
    Stage,
    StageName,
    Timing,
)

HOSTILE = "<script>alert('x')</script>\"'&{{ 7*7 }}{% raw %}\\N\x1b[31m"
SOURCE = """import torch


@torch.compile
def f(a, b):
    x = a + b
    y = x * 2
    return y


f(torch.ones(4), torch.ones(4))
"""
ORIGINS = (
    Origin(line=6, column=8, end_line=6, end_column=13, nodes=("add",), op="aten.add.Tensor"),
    Origin(line=7, column=8, end_line=7, end_column=13, nodes=("mul",), op="aten.mul.Tensor"),
)
KERNEL = """@triton.jit
def fused_add_mul(a, b, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    x = tl.load(a + i, mask) + tl.load(b + i, mask)
    tl.store(y + i, x * 2, mask)
"""


def stage(name: StageName, part: Part = "forward", region: int = 0, **fields: object) -> Stage:
    section = Section(title=f"{name} of f", language="python", text=KERNEL, marks=((), (), (), (), (0,), (0, 1)))
    values: dict[str, object] = {"millis": 3.4, "sections": (section,), "origins": ORIGINS}
    return Stage.model_validate({"region": region, "name": name, "part": part} | values | fields)


def full_stage(name: StageName, text: str = "plain", part: Part = "forward", region: int = 0) -> Stage:
    """A stage in which everything that a stage can hold is there, with this text in every place for text."""
    return Stage(
        region=region,
        name=name,
        part=part,
        reason=text,
        millis=12.5,
        origins=(*ORIGINS, Origin(nodes=(text,), op=text)),
        sections=(
            Section(title=text, language="mlir", text=f"line one\n{text}\n", marks=((0,), (1, 2))),
            Section(title="empty", text=""),
        ),
        decisions=(
            Decision(
                subject=text,
                verdict="refused",
                rule=text,
                reason=text,
                numbers={text: text, "bytes": 4096, "x": None},
                round=1,
                origins=(0,),
            ),
            Decision(
                subject="a, b", verdict="fused", rule="same_loops", reason="Both run over the same ranges.", numbers={"score": 1.5}, round=1
            ),
            Decision(subject="c", verdict="noted", rule="note", reason="Outside rounds.", numbers={"yes": True}),
        ),
        kernels=(Kernel(name=text, kind="triton", library=text, steps=(text,), facts={text: text, "registers": 24}, origins=(0, 1)),),
        timings=(
            Timing(
                subject=text,
                scope="call",
                compiler="eager",
                median_us=10,
                low_us=9,
                high_us=11,
                repeats=20,
                bytes=1 << 20,
                gb_per_s=1.5,
                copy_fraction=0.4,
            ),
            Timing(subject="f", scope="call", compiler="fuselab", median_us=5, low_us=4, high_us=6, repeats=20),
            Timing(subject="k", scope="kernel", compiler="fuselab", median_us=0, low_us=0, high_us=0, repeats=0),
        ),
        drawing=Drawing(
            nodes=(Node(id=text, label=text, group=text, origins=(0,)), Node(id="b", label="b", kind="buffer")),
            edges=(Edge(source=text, target="b", label=text), Edge(source="nowhere", target="b")),
        ),
        facts={text: text, "saved bytes": 123456},
    )


def good_run(text: str = "") -> list[Event]:
    """A run in which every stage is there; with ``text``, in all places."""
    stages = [full_stage(name, text) if text else stage(name, "" if name in ("eager", "dynamo") else "forward") for name in STAGE_NAMES]
    return [
        Begin(compiler="fuselab", target="cpu", options={"policy": "greedy"}, environment={"torch": "2.13.0", "device": text or "a CPU"}),
        Output(stream="note", text=text or "Compiled: f, as the script calls torch.compile itself."),
        RegionFound(region=Region(id=0, title=text or "f", line=4)),
        Output(stream="stdout", text=text or "hello\n"),
        *stages,
        End(status="ok"),
    ]


def training_run() -> list[Event]:
    """Two regions, forward and backward in each; below Triton nothing, with the reason."""
    events: list[Event] = [Begin(compiler="fuselab", target="cpu")]
    for region in (0, 1):
        events.append(RegionFound(region=Region(id=region, title=f"f{region}", line=5)))
        for name in STAGE_NAMES:
            for part in ("",) if name in ("eager", "dynamo") else ("forward", "backward"):
                if name in ("ttir", "ttgir", "llir", "ptx"):
                    skipped = "The CPU has no Triton stages: its kernels are C++."
                    events.append(Stage(region=region, name=name, part=part, status="skipped", reason=skipped))  # type: ignore[arg-type]
                else:
                    events.append(stage(name, part, region))  # type: ignore[arg-type]
    return [*events, End(status="ok")]


def failed_run(kind: str = "snippet") -> list[Event]:
    """A run that a line of the snippet ended."""
    problem = Problem.model_validate(
        {
            "kind": kind,
            "message": "NameError: name 'undefined' is not defined",
            "stage": "dynamo",
            "hint": "Define it.",
            "line": 6,
            "column": 8,
            "detail": "Traceback",
        }
    )
    error = Stage(region=0, name="dynamo", status="error", reason=problem.message)
    return [Begin(compiler="fuselab", target="cpu"), error, End(status="error", problem=problem)]


def timed_run(
    compiler: CompilerName, median: float, spread: float, kernels: int = 1, target: str = "cpu", text: str = KERNEL
) -> list[Event]:
    """A run of that compiler whose forward call took ``median`` µs, give or take ``spread``, with so many kernels of 1 KiB each."""
    marks = ((), (), (), (), (0,), (0, 1))
    section = Section(title=f"{compiler}_kernel", language="python", text=text, marks=marks)
    launched = tuple(Kernel(name=f"k{number}", kind="triton", facts={"bytes": 1024}) for number in range(kernels))
    times = [("eager", 10.0, 1.0), (compiler, median, spread)]
    timings = tuple(
        Timing(subject="forward call", scope="call", compiler=name, part="forward", median_us=t, low_us=t - s, high_us=t + s, repeats=100)  # type: ignore[arg-type]
        for name, t, s in times
    )
    return [
        Begin(compiler=compiler, target=target, environment={"torch": "2.13.0", "clock_mhz": 2000 + kernels}),
        RegionFound(region=Region(id=0, title="f", line=4)),
        stage("eager", "", facts={"kernels": 2, "bytes_read": 3000, "bytes_written": 1000}),
        stage("dynamo", "", facts={"graph_breaks": 0}),
        stage("code", sections=(section,), kernels=launched),
        stage("timing", sections=(), timings=timings, facts={"launches": kernels}),
        End(status="ok"),
    ]
