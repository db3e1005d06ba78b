"""Random small graphs, lowered and scheduled under every policy: the interpreter, and C++ for some, give what eager gives.

``python -m tests.compiler.test_random_graphs 2000`` tries that many and prints those that are wrong.
"""

from __future__ import annotations

import random
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.fx.experimental.proxy_tensor import make_fx

from compiler.capture.decompositions import decompositions
from compiler.codegen import generate
from compiler.interp import interpret_program
from compiler.ir import Ref
from compiler.lowering import lower
from compiler.options import POLICIES, Options
from compiler.runtime.launch import load_program
from compiler.schedule import schedule
from compiler.target import find_target
from compiler.verify import verify, verify_program
from tests.compiler.programs import copy_of

CPU, GPU = find_target("cpu"), find_target("sm_90")
DTYPES = (
    torch.float32,
    torch.float32,
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
)
SIZES = (0, 1, 1, 2, 3, 4, 4, 6)
T = torch.Tensor


@dataclass
class Case:
    """A function of tensors that draws its ops from a seed, so that it is the same function whenever it is traced.

    Even seeds draw from ``OPS``, odd ones from ``MORE`` as well.
    """

    seed: int
    inputs: list[T]

    def __call__(self, *inputs: T) -> list[T]:
        rng = random.Random(self.seed)
        values = list(inputs)
        for _ in range(rng.randint(1, 9)):
            x = rng.choice(values[-3:] if rng.random() < 0.7 else values)
            made = rng.choice(OPS + MORE if self.seed % 2 else OPS)(rng, x, values)
            if made.numel() < 5000:
                values.append(made)
        results = rng.sample(values, min(len(values), rng.randint(1, 3)))
        return [values[-1], *results]


def case_of(seed: int) -> Case:
    rng = random.Random(seed)
    torch.manual_seed(seed)
    return Case(seed, [new_input(rng) for _ in range(rng.randint(1, 3))])


def new_input(rng: random.Random) -> T:
    """Contiguous, transposed, with gaps, or expanded."""
    shape = [rng.choice(SIZES if rng.random() < 0.3 else SIZES[1:]) for _ in range(rng.choice((0, 1, 2, 2, 3, 3, 4)))]
    dtype = rng.choice(DTYPES)
    whole = [size + rng.choice((0, 0, 1, 2)) for size in shape]
    x = torch.randn(whole).mul(2) if dtype.is_floating_point else torch.randint(0, 2 if dtype == torch.bool else 5, whole)
    x = x.to(dtype)
    for axis, size in enumerate(shape):
        x = x.narrow(axis, x.shape[axis] - size, size)
    if rng.random() < 0.3:
        x = x.permute(rng.sample(range(x.dim()), x.dim()))
    return x


def real(x: T) -> T:
    return x if x.is_floating_point() else x.float()


def axis_of(rng: random.Random, x: T) -> int:
    return rng.randrange(-x.dim(), x.dim()) if x.dim() else 0


def partner(rng: random.Random, x: T, values: list[T]) -> T:
    """A value that broadcasts with ``x``, or a number as a tensor."""
    fitting = [value for value in values if broadcasts(value, x)]
    return rng.choice(fitting)


def broadcasts(a: T, b: T) -> bool:
    return all(m == n or 1 in (m, n) for m, n in zip(reversed(a.shape), reversed(b.shape), strict=False))


UNARY: tuple[Callable[[T], T], ...] = (
    lambda x: torch.sin(real(x)), lambda x: real(x).relu(), lambda x: torch.tanh(real(x)), lambda x: real(x).abs() + 1,
    lambda x: x.logical_not(), lambda x: torch.sigmoid(real(x)), lambda x: real(x).clamp(-1, 2), lambda x: real(x).exp().clamp(max=9),
    lambda x: x * 2, lambda x: x + 1, lambda x: 1 - real(x), lambda x: torch.nn.functional.gelu(real(x)),
)  # fmt: skip
BINARY: tuple[Callable[[T, T], T], ...] = (
    torch.add, torch.mul, lambda x, y: real(x) - real(y), torch.maximum, torch.minimum, torch.lt, torch.eq, lambda x, y: x / (real(y).abs() + 1),
    lambda x, y: torch.where(x > y, x, y), lambda x, y: torch.where(y > 0, x, 1), lambda x, y: x.masked_fill(y > 0, 1),
)  # fmt: skip


def unary(rng: random.Random, x: T, values: list[T]) -> T:
    return rng.choice(UNARY)(x)


def binary(rng: random.Random, x: T, values: list[T]) -> T:
    y = partner(rng, x, values)
    op = rng.choice(BINARY)
    if op is BINARY[-1] and torch.broadcast_shapes(x.shape, y.shape) != x.shape:
        op = torch.add
    return op(x, y)


def cast(rng: random.Random, x: T, values: list[T]) -> T:
    return real(x).clamp(0, 9).nan_to_num(0).to(rng.choice(DTYPES))


def view(rng: random.Random, x: T, values: list[T]) -> T:
    axis = axis_of(rng, x)
    choice = rng.randrange(8)
    if choice == 0:
        return x.permute(rng.sample(range(x.dim()), x.dim()))
    if choice == 1:
        return x.reshape(-1)
    if choice == 2 and x.dim() < 5:
        return x.unsqueeze(rng.randrange(x.dim() + 1))
    if choice == 3 and x.dim() < 5:
        return x.expand(rng.choice((1, 2, 3)), *x.shape)
    if not x.dim():
        return x.reshape(1)
    if choice == 4:
        return x.flip(rng.sample(range(x.dim()), rng.randint(1, x.dim())))
    if choice == 5 and x.shape[axis]:
        start = rng.randrange(x.shape[axis])
        return x.narrow(axis, start, rng.randint(0 if rng.random() < 0.1 else 1, x.shape[axis] - start))
    if choice == 6 and x.shape[axis]:
        return x.select(axis, rng.randrange(x.shape[axis]))
    return x.flatten(0, 1) if x.dim() > 1 else x[:: rng.choice((1, 2))]


def reshaped(rng: random.Random, x: T, values: list[T]) -> T:
    """Two factors of the number of elements."""
    count = x.numel()
    factors = [k for k in (1, 2, 3, 4, 6, 8) if count and count % k == 0]
    return x.reshape(rng.choice(factors), -1) if factors else x.reshape(x.shape)


def reduction(rng: random.Random, x: T, values: list[T]) -> T:
    axis, keep = axis_of(rng, x), rng.random() < 0.5
    choice = rng.randrange(9)
    if not x.dim() or choice == 0:
        return x.sum()
    if choice == 1:
        return x.sum(rng.sample(range(x.dim()), rng.randint(1, x.dim())), keepdim=keep)
    if choice == 2:
        return real(x).mean(axis, keepdim=keep)
    if choice == 3:
        return x.any(axis, keepdim=keep)
    if choice == 4:
        return real(x).clamp(-1.5, 1.5).prod(axis, keepdim=keep)
    if not x.shape[axis]:
        return x.all(axis, keepdim=keep)
    if choice == 5:
        return x.amax(axis, keepdim=keep)
    if choice == 6:
        return real(x).amin(axis, keepdim=keep)
    if choice == 7:
        return real(x).var(axis, keepdim=keep, correction=0)
    return x.float().argmax(axis, keepdim=keep)


def normalised(rng: random.Random, x: T, values: list[T]) -> T:
    axis = axis_of(rng, x)
    if not x.dim():
        return real(x)
    return rng.choice((torch.softmax, torch.log_softmax))(real(x), axis)


def joined(rng: random.Random, x: T, values: list[T]) -> T:
    if not x.dim():
        return torch.stack([x, x + 1])
    axis = axis_of(rng, x) % x.dim()
    fitting = [
        v for v in values if v.dim() == x.dim() and all(a == b for k, (a, b) in enumerate(zip(v.shape, x.shape, strict=True)) if k != axis)
    ]
    return torch.cat([x, rng.choice(fitting)], axis)


def padded(rng: random.Random, x: T, values: list[T]) -> T:
    if not x.dim() or not x.numel():
        return x.clone()
    pads = [rng.choice((0, 1, 2)) if rng.random() < 0.8 or x.shape[-1] < 2 else -1 for _ in range(2 * rng.randint(1, x.dim()))]
    pads[2:] = [abs(pad) for pad in pads[2:]]
    if x.shape[-1] + sum(pads[:2]) < 0:
        pads[:2] = [0, 0]
    return torch.nn.functional.pad(x, pads, value=rng.choice((0, 1, 3)))


def picked(rng: random.Random, x: T, values: list[T]) -> T:
    axis = axis_of(rng, x)
    if not x.dim() or not x.shape[axis]:
        return x + 0
    count = rng.choice((1, 2, 3, 5))
    places = torch.arange(count) * rng.randrange(5) % x.shape[axis]
    choice = rng.randrange(4)
    if choice == 0:
        return x.index_select(axis, places)
    if choice == 1:
        return x.roll(rng.choice((1, 2)), axis)
    if choice == 2:
        index = (real(x).abs().nan_to_num(0, 0, 0) * 3).long() % x.shape[axis]
        return x.gather(axis, index)
    return x[(slice(None),) * (axis % x.dim()) + (places - x.shape[axis] * rng.randrange(2),)]


def written(rng: random.Random, x: T, values: list[T]) -> T:
    """An item assignment, which becomes a scatter of slices."""
    y = x.clone()
    if not x.dim() or not x.numel():
        return y
    axis = axis_of(rng, x)
    start = rng.randrange(x.shape[axis])
    part = y.narrow(axis, start, rng.randint(1, x.shape[axis] - start))
    part.copy_(part.flip(0)) if rng.random() < 0.5 else part.fill_(1)
    return y


OPS: tuple[Callable[[random.Random, T, list[T]], T], ...] = (
    unary, unary, binary, binary, binary, cast, view, view, view, reshaped, reduction, reduction, normalised, joined, padded, picked, written,
)  # fmt: skip


def running(rng: random.Random, x: T, values: list[T]) -> T:
    axis, choice = axis_of(rng, x), rng.randrange(6)
    if choice == 0:
        return real(x).clamp(-1.2, 1.2).cumprod(axis)
    if choice == 1:
        return real(x).logcumsumexp(axis)
    if choice == 2:
        return rng.choice((torch.cummax, torch.cummin))(x, axis).values
    if choice == 3:
        return rng.choice((torch.cummax, torch.cummin))(x, axis).indices
    return x.clamp(-9, 9).cumsum(axis) if x.dtype != torch.bool else x.cumsum(axis)


def scattered(rng: random.Random, x: T, values: list[T]) -> T:
    """Writes to computed places: different ones where the last write would count, any where all are added."""
    axis = axis_of(rng, x)
    if not x.dim() or not x.numel():
        return x * 1
    size, count = x.shape[axis], rng.choice((1, 2, 3, 5))
    anywhere = torch.arange(count) * rng.randrange(5) % size
    different = torch.arange(size).roll(rng.randrange(size))[: min(count, size)]
    index = (slice(None),) * (axis % x.dim())
    source = torch.sin(real(x)).index_select(axis, anywhere)
    choice = rng.randrange(5)
    if choice == 0:
        return real(x).index_add(axis, anywhere, source)
    if choice == 1:
        return real(x).index_put((*(torch.arange(n).reshape(-1, *(1,) * (axis % x.dim() - k)) for k, n in enumerate(x.shape[: axis % x.dim()])),
                                  different), torch.ones((), dtype=real(x).dtype))  # fmt: skip
    if choice == 2:
        places = (real(source).abs().nan_to_num(0, 0, 0) * 3).long() % size
        return real(x).scatter_add(axis, places, source)
    if choice == 3:
        return x.index_fill(axis, different, 2)
    y = x.clone()
    y[(*index, different)] = x[(*index, different.flip(0))]
    return y


def pooled(rng: random.Random, x: T, values: list[T]) -> T:
    if x.dim() not in (3, 4) or not x.numel() or not x.is_floating_point():
        return real(x).abs()
    kernel = [rng.randint(1, min(3, size)) for size in x.shape[-2:]]
    how = {"kernel_size": kernel, "stride": rng.randint(1, 2), "padding": [rng.randint(0, size // 2) for size in kernel]}
    if rng.random() < 0.5:
        return torch.nn.functional.max_pool2d(x, **how, ceil_mode=rng.random() < 0.5)
    return torch.nn.functional.avg_pool2d(x, **how, ceil_mode=rng.random() < 0.5, count_include_pad=rng.random() < 0.5)


MORE = (running, running, scattered, scattered, pooled)


def graph_of(case: Case) -> torch.fx.GraphModule:
    """The decomposed ATen graph, as AOTAutograd would hand it over."""
    function = torch.func.functionalize(case, remove="mutations")
    gm = make_fx(function, decomposition_table=decompositions(), tracing_mode="fake")(*case.inputs)
    gm.graph.eliminate_dead_code()
    gm.recompile()
    return gm


def check(case: Case, cpp: bool = False) -> None:
    gm = graph_of(case)
    wanted = list(gm(*map(copy_of, case.inputs)))
    described = [node.meta["val"] for node in gm.graph.output_node().args[0]]
    tolerance = 3e-2 if any(half(node) for node in gm.graph.nodes) else 1e-4
    for target in (CPU,) if cpp else (CPU, GPU):
        lowered = lower(gm, {}, target, retarget=target.is_gpu)
        verify(lowered.graph)
        assert_laid_out([ref.strides for ref in lowered.graph.outputs if isinstance(ref, Ref)], wanted, described)
        for policy in POLICIES:
            program, _ = schedule(lowered.graph, Options(policy=policy), target)
            verify_program(program)
            if not cpp:
                assert_same(interpret_program(program, case.inputs, lowered.constants), wanted, tolerance)
            elif policy == "greedy":
                loaded = load_program(program, generate(program, CPU, lowered.constants), CPU, lowered.constants)
                results: list[Any] = loaded([copy_of(value) for value in case.inputs])
                assert_same(results, wanted, tolerance)
                assert_laid_out([result.stride() for result in results], wanted, described)


def assert_same(got: Sequence[Any], wanted: Sequence[T], tolerance: float) -> None:
    """Values, dtypes and shapes."""
    assert len(got) == len(wanted)
    for ours, theirs in zip(got, wanted, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance, equal_nan=True)


def half(node: torch.fx.Node) -> bool:
    value: Any = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype in (torch.float16, torch.bfloat16)


def assert_laid_out(strides: Sequence[Sequence[int]], wanted: Sequence[T], described: Sequence[T]) -> None:
    """The strides of eager, along axes with more than one element, or those of the fake kernels, which AOTAutograd promises: the one of
    indexing disagrees with eager where an axis of one element has an odd stride.
    """
    for ours, theirs, fake in zip(strides, wanted, described, strict=True):
        same = [all(size == 1 or a == b for a, b, size in zip(ours, by.stride(), by.shape, strict=True)) for by in (theirs, fake)]
        assert not theirs.numel() or any(same), f"strides {ours}, not {theirs.stride()}"


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**31))
def test_every_policy_gives_what_eager_gives(seed):
    check(case_of(seed))


@pytest.mark.parametrize("seed", [192, 200017])
def test_memory_is_taken_over_only_after_its_last_read(seed):
    # A result is stored before the kernel that makes it reads another tensor of that size, or uses what it has read of it, for the last time.
    check(case_of(seed))


def test_an_axis_of_one_element_leaves_the_layout_of_an_index_open():
    check(case_of(3001498))


@pytest.mark.parametrize("seed", range(3))
def test_cpp_gives_what_eager_gives(seed):
    check(case_of(seed), cpp=True)


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    start = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    cpp = "--cpp" in sys.argv
    wrong = 0
    for seed in range(start, start + count):
        try:
            check(case_of(seed), cpp)
        except Exception:  # whatever goes wrong with one graph is what this run looks for
            wrong += 1
            print(f"seed {seed}\n{traceback.format_exc(limit=-3)}", flush=True)
    print(f"{count} graphs, {wrong} wrong")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
