"""Open sizes: a program is compiled once and gives eager's results at sizes that the compiler has not seen, by every path."""

import copy
import functools
import re
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._dynamo.exc import BackendCompilerFailed

from compiler.capture import compile_region
from compiler.capture.decompositions import decompositions
from compiler.codegen import generate
from compiler.codegen.triton_text import needs_64_bits
from compiler.interp import interpret, interpret_program
from compiler.lowering import lower
from compiler.observe.open_sizes import open_sizes
from compiler.observe.torch_names import aot_compile, real_tensors
from compiler.options import POLICIES, Options
from compiler.recorder import Recorder
from compiler.schedule import schedule
from compiler.sizes import Sizes, Sym, found
from compiler.target import find_target
from compiler.trace import Trace
from compiler.verify import verify, verify_program
from tests.compiler.programs import assert_equal, copy_of

CPU, GPU = find_target("cpu"), find_target("sm_90")
PAIRS = ((6, 8), (5, 9), (2, 17), (1000, 3), (33, 260), (3, 2))
"""Values of two open sizes. The first pair is what is compiled for."""


@dataclass(frozen=True)
class Case:
    """``make`` gives a function, ``inputs`` its inputs for two sizes; ``trains``: gradients of the inputs are compared as well."""

    name: str
    function: Any
    inputs: Any
    trains: bool = False
    pairs: tuple[tuple[int, int], ...] = PAIRS
    dynamic: bool | None = True
    tolerance: float = 1e-4


def randn(*shape):
    return torch.randn(*shape)


def attention(q, k, v):
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    return torch.softmax(scores, -1) @ v


def attention_masked(q, k, v):
    rows = torch.arange(q.shape[-2])
    scores = (q @ k.transpose(-1, -2)).masked_fill(rows[:, None] < rows[None, :], float("-inf"))
    return torch.softmax(scores, -1) @ v


def in_place(x):
    x.add_(1)
    x[1:] *= 2
    return x * 2


def written_slice(x):
    y = x.clone()
    y[1:, ::2] = 7.0
    return y.sum(0)


def rms(x, w):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * w


def rotary(x):
    half = x.shape[-1] // 2
    place = torch.arange(x.shape[0], dtype=torch.float32)[:, None] / torch.arange(1, half + 1, dtype=torch.float32)[None]
    one, two = x[..., :half], x[..., half : 2 * half]
    return torch.cat([one * place.cos() - two * place.sin(), two * place.cos() + one * place.sin()], -1)


def two(n, m):
    return [randn(n, m)]


CASES = [
    Case("pointwise", lambda x: (x.sin() * 2 + 1).relu() - x, two),
    Case("pointwise_flat", lambda x: x.exp() + x, lambda n, m: [randn(n * m)]),
    Case("broadcast", lambda x, y, z: (x + y) * z, lambda n, m: [randn(n, m), randn(m), randn(n, 1)]),
    Case("broadcast_three", lambda x, y: x[:, None] * y[None, :] + x.shape[0], lambda n, m: [randn(n), randn(m)]),
    Case("halves", lambda x: (x.to(torch.bfloat16) * 2 + x.shape[0]).float(), two, tolerance=1e-2),
    Case("softmax", lambda x: torch.softmax(x, -1), two),
    Case("softmax_columns", lambda x: torch.softmax(x, 0), two),
    Case("log_softmax", lambda x: torch.log_softmax(x, -1), two),
    Case("layer_norm", lambda x, w, b: F.layer_norm(x, (x.shape[-1],), w, b), lambda n, m: [randn(n, m), randn(m), randn(m)]),
    Case("rms_norm", rms, lambda n, m: [randn(n, m), randn(m)]),
    Case("mean_var", lambda x: (x.mean(), x.var(0), x.std(-1), x.var(correction=0)), two),
    Case("sums", lambda x: (x.sum(), x.sum(0), x.sum(-1), x.amax(0), x.prod(-1)), lambda n, m: [randn(n, m) * 0.1 + 1], tolerance=1e-3),
    Case("extrema", lambda x: (x.argmax(-1), x.argmin(0), x.max(-1).values, x.argmax()), two),
    Case("any_all", lambda x: ((x > 1).any(-1), (x > -9).all(0)), two),
    Case("matmul_epilogue", lambda x, w, b: F.gelu(x @ w + b), lambda n, m: [randn(n, m), randn(m, 12), randn(12)], tolerance=1e-3),
    Case("batched_matmul", lambda x, y: (x @ y).relu(), lambda n, m: [randn(4, n, m), randn(4, m, 3)], tolerance=1e-3),
    Case("cat", lambda x, y: torch.cat([x, y + 1, x * 2], 0) * 2, lambda n, m: [randn(n, 4), randn(m, 4)]),
    Case("cat_last", lambda x, y: torch.cat([x, y], -1).sin(), lambda n, m: [randn(3, n), randn(3, m)]),
    Case("stack", lambda x: torch.stack([x, x * 2], 1).sum(0), two),
    Case("slices", lambda x: (x[1:] + x[:-1], x[:, ::2] * 2, x[-1], x[1:2].exp()), two),
    Case("transpose", lambda x: (x.t().contiguous() + 1, x.t() * 2, x + x.t().clone().t()), two),
    Case("permute", lambda x: x.permute(2, 0, 1).contiguous().relu(), lambda n, m: [randn(n, m, 5)]),
    Case("embedding", lambda i, w: F.embedding(i, w) * 2, lambda n, m: [torch.randint(0, m, (n, 3)), randn(m, 8)]),
    Case("index", lambda x, i: (x[i] + 1, x[i, i % x.shape[1]], x.index_select(0, i)), lambda n, m: [randn(n, m), torch.randint(0, n, (7,))]),
    Case("gather", lambda x, i: x.gather(1, i), lambda n, m: [randn(n, m), torch.randint(0, m, (n, 4))]),
    Case("scatter", lambda x, i: x.scatter(0, i, 1.0), lambda n, m: [randn(n, m), torch.randint(0, n, (1, m))]),
    Case("index_add", lambda x, i: torch.zeros_like(x).index_add(0, i, x), lambda n, m: [randn(n, m), torch.randperm(n)]),
    Case("cumsum", lambda x: (x.cumsum(0), x.cumsum(-1)), two, tolerance=1e-3),
    Case("cummax", lambda x: x.cummax(-1).values, two),
    Case("max_pool", lambda x: F.max_pool2d(x, 2), lambda n, m: [randn(2, 3, n + 2, m + 2)], pairs=((6, 8), (5, 9), (17, 2), (40, 33), (3, 3))),
    Case("max_pool_padded", lambda x: F.max_pool2d(x, 3, 2, 1), lambda n, m: [randn(2, 3, n + 2, m + 2)],
         pairs=((6, 8), (5, 9), (17, 2), (40, 33), (3, 3))),
    Case("avg_pool", lambda x: F.avg_pool2d(x, 3, 1, 1), lambda n, m: [randn(2, 3, n + 2, m + 2)],
         pairs=((6, 8), (5, 9), (17, 2), (40, 33), (3, 3))),
    Case("conv", lambda x, w: F.conv2d(x, w, padding=1).relu(), lambda n, m: [randn(2, 3, n, m), randn(4, 3, 3, 3)],
         pairs=((6, 8), (5, 9), (17, 2), (40, 33), (3, 3)), tolerance=1e-3),
    Case("attention", attention, lambda n, m: [randn(2, n, 8), randn(2, m, 8), randn(2, m, 8)], tolerance=1e-3,
         pairs=((6, 8), (5, 9), (2, 17), (200, 3), (33, 260))),
    Case("attention_masked", attention_masked, lambda n, m: [randn(2, n, m)] * 3, tolerance=1e-3,
         pairs=((6, 8), (5, 9), (2, 17), (200, 3), (33, 26))),
    Case("sdpa", lambda q, k: F.scaled_dot_product_attention(q, k, k), lambda n, m: [randn(1, 2, n, 16), randn(1, 2, m, 16)],
         pairs=((6, 8), (5, 9), (2, 17), (200, 3), (33, 260)), tolerance=1e-3),
    Case("three_symbols", lambda x, y, z: x + y[:, None] * z, lambda n, m: [randn(n, m, n + m), randn(n, n + m), randn(m, n + m)],
         pairs=((6, 8), (5, 9), (2, 17), (100, 3), (3, 2))),
    Case("views_returned", lambda x: (x.view(-1), x.t(), x[1:], x), two),
    Case("flatten", lambda x: ((x * 2).view(-1) + 1).view(x.shape[0], x.shape[1]).sum(0), two),
    Case("unflatten", lambda x: (x.view(x.shape[0] // 2, 2, x.shape[1]) * 2).sum(1), lambda n, m: [randn(2 * n, m)]),
    Case("reshape_heads", lambda x: x.view(x.shape[0], 4, -1).transpose(0, 1).contiguous() + 1, lambda n, m: [randn(n, 4 * m)]),
    Case("arange", lambda x: x + torch.arange(x.shape[0])[:, None] * 2, two),
    Case("arange_steps", lambda x: torch.arange(1, 2 * x.shape[0], 2) + torch.arange(x.shape[0], dtype=torch.float32), two),
    Case("expand", lambda x: x[:, None].expand(-1, 3, -1).contiguous() + 1, two),
    Case("pad", lambda x: (F.pad(x, (1, 2)), F.pad(x, (-1, 0, 2, 1), value=3.0)), two),
    Case("flip_roll_repeat", lambda x: (x.flip(0), x.roll(1, 0), x.repeat(2, 3)), two),
    Case("triangles", lambda x: (x.tril(), x.triu(1)), two),
    Case("full", lambda x: (torch.full((x.shape[1],), 3.0), torch.zeros(x.shape[0], 2) + 1, x.new_ones(x.shape)), two),
    Case("numbers", lambda x: (x * x.shape[0] + x.shape[1], x.sum() / x.numel(), x * (1 / x.shape[0] ** 0.5)), two),
    Case("size_returned", lambda x: (x * 2, x.shape[0], x.numel()), two),
    Case("interpolate", lambda x: F.interpolate(x, scale_factor=2.0), lambda n, m: [randn(1, 2, n, m)],
         pairs=((6, 8), (5, 9), (2, 17), (40, 33), (3, 2))),
    Case("interpolate_bilinear", lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"), lambda n, m: [randn(1, 2, n, m)],
         pairs=((6, 8), (5, 9), (2, 17), (40, 33), (3, 2))),
    Case("rotary", rotary, lambda n, m: [randn(n, 2 * m)]),
    Case("in_place", in_place, two),
    Case("written_slice", written_slice, two),
    Case("masked", lambda x: x.masked_fill(x > 0, 2.0).where(x < 1, x), two),
    Case("many_dtypes", lambda x: (x.double() + 1, (x * 9).to(torch.int32) + 1, x > 0, x.to(torch.float16)), two, tolerance=2e-3),
    Case("vanishing", lambda x: (x[2:].sum(0), x[2:] * 2, x[2:].mean(0)), two),
    Case("divided", lambda x: x[: x.shape[0] // 2] * 2 + x.shape[0] % 3, two),
    Case("sort", lambda x: (x.sort(-1).values * 2, x.topk(2, -1).values), two),
    Case("buckets", lambda x, b: torch.bucketize(x, b), lambda n, m: [randn(n), torch.linspace(-1, 1, m)],
         pairs=((6, 8), (5, 9), (2, 10), (1000, 13), (3, 15))),
    Case("strided_inputs", lambda x, y: (x + 1, x.sum(0), y * 2 + x), lambda n, m: [randn(3 * n, 2 * m)[::3, 1::2], randn(m, n).t()]),
    Case("branches", lambda x: torch.cond(x.sum() > 0, lambda a: a.sin(), lambda a: a.cos(), (x,)), two),
    Case("number_given", lambda x, n: (x * n + n // 2, torch.full((n,), 2.0) + n), lambda n, m: [randn(n, m), m + 1]),
    Case("trained_pointwise", lambda x: (x.sin() / x.shape[0]).tanh().sum(), two, True),
    Case("trained_softmax", lambda x: (torch.softmax(x, -1) * x).sum(), two, True),
    Case("trained_norm", lambda x, w: F.layer_norm(x, (x.shape[-1],), w).square().mean(), lambda n, m: [randn(n, m), randn(m)], True, tolerance=1e-3),
    Case("trained_matmul", lambda x, w: F.gelu(x @ w).sum(), lambda n, m: [randn(n, m), randn(m, 5)], True, tolerance=1e-3),
    Case("trained_slices", lambda x: (x.view(-1)[1:] * 2).sum() + x[1:].sin().sum(), two, True, tolerance=1e-3),
    Case("trained_cat", lambda x, y: torch.cat([x, y]).sin().sum(), lambda n, m: [randn(n, 4), randn(m, 4)], True),
    Case("trained_max_pool", lambda x: F.max_pool2d(x, 3, 2, 1).sum(), lambda n, m: [randn(2, 3, n + 2, m + 2)], True,
         pairs=((6, 8), (5, 9), (17, 2), (40, 33), (3, 3))),
    Case("trained_cross_entropy", lambda x, t: F.cross_entropy(x, t), lambda n, m: [randn(n, m), torch.randint(0, m, (n,))], True),
    Case("trained_attention", lambda q, k: attention(q, k, k).sum(), lambda n, m: [randn(2, n, 8), randn(2, m, 8)], True, tolerance=1e-3,
         pairs=((6, 8), (5, 9), (2, 17), (200, 3), (33, 260))),
]  # fmt: skip
WITHOUT_INNER_GRAPHS = [case for case in CASES if case.name != "branches"]  # the interpreter runs the text of a wrapper alone
ALL = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


pytestmark = pytest.mark.usefixtures("fresh_dynamo")


class Backend:
    """Our compiler as a backend; ``regions`` counts how often it compiled."""

    def __init__(self, **options):
        self.events, self.options = [], Options.parse({"check": True, **options})
        self.recorder = Recorder(self.events.append)

    def __call__(self, gm, inputs):
        return compile_region(gm, inputs, options=self.options, target=CPU, recorder=self.recorder)

    @property
    def regions(self):
        return len(self.trace.regions)

    @property
    def trace(self):
        return Trace.fold(self.events)

    def decisions(self, rule):
        return [decision for stage in self.trace.stages for decision in stage.decisions if decision.rule == rule]


def fresh(values, trains):
    return [
        copy_of(value).requires_grad_(trains and value.is_floating_point()) if isinstance(value, torch.Tensor) else value
        for value in values
    ]


def run(function, values, trains):
    """Results, the inputs as the call left them, and their gradients."""
    given = fresh(values, trains)
    results = function(*given)
    if trains:
        results.backward()
        return [results.detach(), *(value.grad for value in given if value.requires_grad)]
    return [*(results if isinstance(results, tuple) else (results,)), *given]


def close(got, want, tolerance):
    assert len(got) == len(want)
    for ours, theirs in zip(got, want, strict=True):
        if isinstance(theirs, torch.Tensor):
            assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
            torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance, equal_nan=True)
            assert not theirs.numel() or ours.stride() == theirs.stride()
        else:
            assert ours == theirs


@ALL
@pytest.mark.parametrize("policy", POLICIES)
def test_compiled_once_and_equal_to_eager(case, policy):
    backend = Backend(policy=policy)
    compiled = torch.compile(case.function, backend=backend, dynamic=case.dynamic)
    for pair in case.pairs:
        values = case.inputs(*pair)
        close(run(compiled, values, case.trains), run(case.function, values, case.trains), case.tolerance)
    assert backend.regions == times_without_us(case)
    assert all(stage.status != "error" for stage in backend.trace.stages)


@functools.cache
def times_without_us(case):
    """How often Dynamo and AOTAutograd alone capture the program: once, but where PyTorch itself tells sizes of 0 and 1 from others."""
    captures = []

    def as_it_is(gm, _):
        captures.append(gm)
        return boxed(gm)

    torch._dynamo.reset()
    unseen = lambda joint: lambda forward, backward, results: None  # noqa: E731
    backend = lambda gm, inputs: aot_compile(gm, inputs, as_it_is, boxed, decompositions(), unseen)  # noqa: E731
    compiled = torch.compile(case.function, backend=backend, dynamic=case.dynamic)
    for pair in case.pairs:
        run(compiled, case.inputs(*pair), case.trains)
    expected = {"slices": 3, "embedding": 2, "attention": 2, "views_returned": 2, "pad": 2, "in_place": 2, "written_slice": 3, "vanishing": 3,
                "divided": 2, "trained_slices": 2, "trained_attention": 2}  # fmt: skip
    assert len(captures) == expected.get(case.name, 1)
    return len(captures)


def boxed(gm, inputs=()):
    """The graph itself, as AOTAutograd wants to call it."""

    def call(values):
        given = list(values)
        values.clear()
        return gm(*given)

    call._boxed_call = True
    return call


# -- the interpreter of the IR, and Triton's


@dataclass
class Part:
    """One ATen graph with open sizes, lowered for both targets; ``scheduled``: programs and wrappers by target and policy."""

    gm: Any
    lowered: dict[str, Any]
    scheduled: dict[tuple[str, str], Any]
    wrappers: dict[tuple[str, str], str]
    calls: list[list[Any]]


@functools.cache
def captured(case):
    """The parts of a program, each with the inputs that it had at every pair of sizes."""
    parts = []

    def compiler(gm, _):
        sizes = open_sizes(gm)
        part = Part(gm, {}, {}, {}, [])
        for target in (CPU, GPU):
            lowered = part.lowered[target.name] = lower(gm, {}, target, retarget=target.is_gpu, sizes=sizes)
            verify(lowered.graph)
            for policy in POLICIES:
                program, _ = part.scheduled[target.name, policy] = schedule(lowered.graph, Options(policy=policy), target)
                verify_program(program)
                with real_tensors():
                    part.wrappers[target.name, policy] = generate(program, target, lowered.constants).wrapper.text
        parts.append(part)

        def kept(values):
            part.calls.append([copy_of(value) for value in values])
            values.clear()
            return gm(*(copy_of(value) for value in part.calls[-1]))

        kept._boxed_call = True
        return kept

    unseen = lambda joint: lambda forward, backward, results: None  # noqa: E731
    backend = lambda gm, inputs: aot_compile(gm, inputs, compiler, compiler, decompositions(), unseen)  # noqa: E731
    compiled = torch.compile(case.function, backend=backend, dynamic=case.dynamic)
    torch.manual_seed(0)
    for pair in case.pairs:
        run(compiled, case.inputs(*pair), case.trains)
    return parts


@ALL
def test_interpreter_equals_eager(case):
    for part in captured(case):
        assert any(isinstance(size, Sym) for size in found(part.lowered["cpu"].graph))
        for inputs in part.calls:
            wanted = list(part.gm(*map(copy_of, inputs)))
            for target in ("cpu", "sm_90"):
                lowered = part.lowered[target]
                assert_equal(interpret(lowered.graph, inputs, lowered.constants), wanted, case.tolerance)
                for policy in POLICIES:
                    program, _ = part.scheduled[target, policy]
                    assert_equal(interpret_program(program, inputs, lowered.constants), wanted, case.tolerance)


TRITON_LIMIT = 3_000  # elements: the interpreter runs one block at a time


@pytest.fixture(scope="module")
def triton_results(tmp_path_factory):
    """Every program's kernels at every size, run by Triton's interpreter in one process of its own."""
    folder = tmp_path_factory.mktemp("triton")
    stems = {}
    for case in WITHOUT_INNER_GRAPHS:
        torch._dynamo.reset()
        for number, part in enumerate(captured(case)):
            for policy in ("none", "greedy"):
                for call, inputs in enumerate(part.calls):
                    if sum(value.numel() for value in inputs if isinstance(value, torch.Tensor)) > TRITON_LIMIT:
                        continue
                    stem = folder / f"{case.name}-{number}-{policy}-{call}"
                    stem.with_suffix(".py").write_text(part.wrappers["sm_90", policy])
                    constants = {name: value for name, value in part.lowered["sm_90"].constants.items() if isinstance(value, torch.Tensor)}
                    torch.save({"inputs": [copy_of(value) for value in inputs], "constants": constants}, stem.with_suffix(".in"))
                    stems[case.name, number, policy, call] = stem
    triples = [str(stem.with_suffix(end)) for stem in stems.values() for end in (".py", ".in", ".out")]
    done = subprocess.run([sys.executable, "-m", "compiler.runtime.interpret", *triples], capture_output=True, text=True)
    return stems, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("case", WITHOUT_INNER_GRAPHS, ids=lambda case: case.name)
def test_triton_equals_eager(case, triton_results):
    stems, stderr = triton_results
    for (name, number, _, call), stem in stems.items():
        if name == case.name:
            part = captured(case)[number]
            results = torch.load(stem.with_suffix(".out")) if stem.with_suffix(".out").exists() else stderr[-2000:]
            assert not isinstance(results, str), results
            assert_equal(results, list(part.gm(*map(copy_of, part.calls[call]))), case.tolerance)


# -- guards, and how sizes come to be open


def test_a_guard_of_ours_compiles_again_exactly_when_it_is_violated():
    """A search is written out for as many halvings as the present length needs: up to 15 boundaries for 8 to 15."""
    backend = Backend()
    compiled = torch.compile(torch.bucketize, backend=backend, dynamic=True)
    for length, times in ((8, 1), (13, 1), (15, 1), (9, 1), (16, 2), (31, 2), (10, 2), (100, 3), (17, 3)):
        x, boundaries = torch.randn(7), torch.linspace(-1, 1, length)
        assert torch.equal(compiled(x, boundaries), torch.bucketize(x, boundaries))
        assert backend.regions == times
    assert [decision.subject.split(" <= ")[1] for decision in backend.decisions("guard")] == ["7", "15", "63"]


@pytest.mark.parametrize("function", [
    lambda x, y: x + y,
    lambda x, y: (x.view(4, -1) * 2).sum(0) if x.numel() % 4 == 0 else x.sum() + y.sum(),
    lambda x, y: torch.cat([x, y]) if x.shape[0] > 10 else x.sum() + y.sum(),
], ids=["broadcast", "view_by_four", "branch"])  # fmt: skip
def test_programs_that_depend_on_sizes_are_never_wrong(function):
    backend = Backend()
    compiled = torch.compile(function, backend=backend, dynamic=True)
    for one, other in ((8, 8), (12, 12), (12, 1), (1, 12), (8, 1), (16, 16), (13, 13), (40, 40)):
        x, y = torch.randn(one), torch.randn(other)
        torch.testing.assert_close(compiled(x, y), function(x, y))


@pytest.mark.parametrize(("elements", "wide"), [(1000, False), ((1 << 31) - 1, False), (1 << 31, True), (1 << 40, True)])
def test_64_bits_are_used_where_32_do_not_reach_and_a_guard_keeps_watch_elsewhere(elements, wide):
    sizes = Sizes({"s0": elements}, {"s0": 2})
    assert needs_64_bits([sizes.symbol("s0"), 4, sizes.symbol("s0") - 1]) == wide
    assert sizes.guards == ([] if wide else ["s0 <= 2147483647"])


def test_the_guard_on_32_bits_is_dynamos():
    said = []

    def compiler(gm, _):
        sizes = open_sizes(gm)
        program, _ = schedule(lower(gm, {}, GPU, retarget=True, sizes=sizes).graph, Options(), GPU)
        said.append((generate(program, GPU).wrapper.text, list(sizes.guards), [str(guard.expr) for guard in sizes.env.guards]))
        return boxed(gm)

    unseen = lambda joint: lambda forward, backward, results: None  # noqa: E731
    backend = lambda gm, inputs: aot_compile(gm, inputs, compiler, compiler, decompositions(), unseen)  # noqa: E731
    torch.compile(lambda x: x.expand(-1, 3) + 1, backend=backend, dynamic=True)(torch.randn(6, 1))
    ((text, ours, theirs),) = said
    assert ".to(tl.int64)" not in text
    assert len(ours) == 1
    assert re.fullmatch(r"3\*s\d+ <= 2147\d{6}", ours[0])
    assert len(theirs) == 1


def test_mark_dynamic_and_automatic_dynamic():
    function = lambda x: torch.softmax(x, -1) * x.shape[0]  # noqa: E731
    marked = Backend()
    compiled = torch.compile(function, backend=marked)
    for rows in (6, 5, 1000, 2):
        x = torch.randn(rows, 8)
        torch._dynamo.mark_dynamic(x, 0)
        torch.testing.assert_close(compiled(x), function(x))
    assert marked.regions == 1
    torch._dynamo.reset()
    automatic = Backend()
    compiled = torch.compile(function, backend=automatic)
    for rows in (6, 5, 1000, 2, 17):
        x = torch.randn(rows, 8)
        torch.testing.assert_close(compiled(x), function(x))
    assert automatic.regions == 2  # with the first size as a constant, then with an open one


def test_a_module_trains_with_batches_of_any_size():
    torch.manual_seed(1)
    ours = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.GELU(), nn.Dropout(0.0), nn.Linear(8, 3))
    theirs = copy.deepcopy(ours)
    backend = Backend()
    compiled = torch.compile(ours, backend=backend, dynamic=True)
    times = []
    for rows in (5, 6, 17, 300, 2):
        x, labels = torch.randn(rows, 6), torch.randint(0, 3, (rows,))
        for model, call in ((ours, compiled), (theirs, theirs)):
            model.zero_grad()
            F.cross_entropy(call(x), labels).backward()
        times.append(backend.regions)
        torch.testing.assert_close([p.grad for p in ours.parameters()], [p.grad for p in theirs.parameters()], rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(ours.state_dict(), theirs.state_dict(), rtol=1e-3, atol=1e-4)
    assert times == times[:1] * 5  # nothing after the first call, at which Dynamo itself captures the module twice


def test_dropout_drops_anew_at_every_size():
    backend = Backend()
    compiled = torch.compile(lambda x: F.dropout(x, 0.5), backend=backend, dynamic=True)
    for shape in ((60, 80), (50, 90), (2, 1700), (1000, 30)):
        result = compiled(torch.ones(shape))
        assert set(result.unique().tolist()) == {0.0, 2.0}
        assert 0.4 < (result == 0).double().mean() < 0.6
    assert backend.regions == 1


def test_what_depends_on_data_is_no_wrong_answer():
    function = lambda x: x[x > 0].sum() + x.nonzero().shape[0]  # noqa: E731
    compiled = torch.compile(function, backend=Backend(), dynamic=True)
    for rows in (6, 9):
        x = torch.randn(rows)
        torch.testing.assert_close(compiled(x), function(x))


def test_a_size_that_only_running_tells_is_an_error_that_says_so():
    with (
        torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True),
        pytest.raises(BackendCompilerFailed, match="only known when the program runs"),
    ):
        torch.compile(lambda x: x.nonzero() + 1, backend=Backend(), dynamic=True, fullgraph=True)(torch.randn(5))


def test_the_loops_and_the_code_speak_of_symbols():
    backend = Backend()
    torch.compile(lambda x: (x * 2).sum(-1), backend=backend, dynamic=True)(torch.randn(6, 8))
    loops, code = (backend.trace.stage(name, part="forward").sections[0].text for name in ("loops", "code"))
    assert all(re.search(r"for \w+ in range\(s\d+", text) for text in (loops,))
    assert re.search(r"int64_t s\d+", code)
    assert "6" not in loops.replace("s6", "")
