"""What is shown of Inductor stays within the bounds of the trace, and leaves out the least first."""

from compiler.capture.inductor_kernels import RAN_SHORT
from compiler.capture.observed_code import memory_text, source_marks
from compiler.capture.observed_loops import MAX_DECISIONS, benchmarked, listed
from compiler.capture.places import MAX_MARKS, Places, fitted
from compiler.observe.inductor_code import MemoryStep
from compiler.observe.inductor_scheduler import Pair
from compiler.options import Options
from compiler.snippet import run_snippet
from compiler.target import find_target
from compiler.trace import Origin, Trace

KERNEL = """@triton.jit
def k(in_ptr0, out_ptr0, xnumel, XBLOCK : tl.constexpr):
    tmp0 = tl.load(in_ptr0 + (x0), xmask)
    tmp1 = tl_math.exp(tmp0)
    tmp2 = tl.broadcast_to(tmp1, [XBLOCK])
    tmp3 = tmp2 + tmp0
    tl.store(out_ptr0 + (x0), tmp3, xmask)"""


def test_marks_are_thinned_only_where_they_are_too_many():
    few = [(1, 2, 3)] * 10
    assert fitted(few) == few
    many = [tuple(range(200))] * 10_000
    thinned = fitted(many)
    assert len(thinned) == len(many)
    assert all(thinned)
    assert sum(map(len, thinned)) <= MAX_MARKS


def test_refused_pairs_are_left_out_first():
    pairs = [Pair(1, f"op{place}", "x", legal=place % 3 == 0, fused=place % 9 == 0) for place in range(2 * MAX_DECISIONS)]
    kept = listed(pairs)
    assert len(kept) == MAX_DECISIONS
    assert sum(pair.legal for pair in kept) == sum(pair.legal for pair in pairs)
    assert kept == sorted(kept, key=lambda pair: int(pair.first.removeprefix("op")))


def test_a_line_of_a_kernel_has_the_origin_of_its_op_or_of_the_value_that_it_passes_on():
    places = Places(
        (Origin(line=1), Origin(line=2), Origin(line=3)), {"exp": 0, "add": 1, "other": 2}, {"exp": "exp", "add": "add", "other": "sin"}
    )
    marks = source_marks(KERNEL, ["exp", "add"], places)
    assert marks[3:] == [(0,), (0,), (1,), (1,)]
    assert marks[0] == marks[2] == (0, 1)


def test_a_benchmarked_fusion_is_told_with_its_ratio():
    line = "cannot fuse (benchmark): fusing OrderedSet(['buf0']) with OrderedSet(['buf1', 'buf2']) cause 1.250x slowdown"
    found = benchmarked(line)
    assert found is not None
    assert (found.subject, found.numbers) == ("buf0 + buf1, buf2", {"slowdown": 1.25})
    assert benchmarked("fusing op0 with op1") is None


def test_memory_is_told_in_bytes():
    assert "128 bytes" in memory_text(MemoryStep("allocate", "buf0", bytes=128))
    assert "buf0" in memory_text(MemoryStep("reuse", "buf1", "buf0", 128))
    assert "not known" in memory_text(MemoryStep("allocate", "buf0"))


def test_when_time_runs_short_kernels_are_left_out_and_the_run_is_kept():
    source = "import torch\nf = torch.compile(lambda x: x.sin().softmax(-1))\nf(torch.ones(8, 100)); f(torch.ones(8, 50))"
    whole, short = ([], [])
    for events, seconds in ((whole, 1e6), (short, 0.0)):
        run_snippet(source, Options(measure=False), find_target("sm_90"), "inductor", events.append, seconds=seconds)
    whole, short = Trace.fold(whole), Trace.fold(short)
    assert (whole.status, short.status) == ("ok", "ok")
    for stage in ("ttir", "sass"):
        assert whole.stage(stage, 0, "forward").status == "ok"
        assert whole.stage(stage, 1, "forward").status == "ok"
        assert (short.stage(stage, 0, "forward").status, short.stage(stage, 0, "forward").reason) == ("skipped", RAN_SHORT)
    assert short.stage("code", 1, "forward").kernels


def test_what_takes_least_comes_first():
    source = "import torch\nf = torch.compile(lambda x: x.sin().softmax(-1), dynamic=False)\nf(torch.ones(8, 100)); f(torch.ones(8, 50))"
    events = []
    run_snippet(source, Options(measure=False), find_target("sm_90"), "inductor", events.append)
    order = [(event.name, event.region) for event in events if event.event == "stage" and event.name in ("code", "ptx", "sass")]
    assert order == [("code", 0), ("code", 1), ("ptx", 0), ("ptx", 1), ("sass", 0), ("sass", 1)]
