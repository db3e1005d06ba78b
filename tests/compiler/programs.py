"""Programs that people write, small: what the passes, the generators and the whole compiler are held against eager on."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.fx import GraphModule

from compiler.capture.decompositions import decompositions
from compiler.observe.torch_names import aot_compile


@dataclass(frozen=True)
class Program:
    """``make()`` gives the function and its arguments; ``backward``: a gradient flows from the first result. ``tolerance`` is relative."""

    name: str
    make: Callable[[], tuple[Callable[..., Any], tuple[Any, ...]]]
    backward: bool = False
    tolerance: float = 1e-4
    kernels: int | None = None


PROGRAMS: list[Program] = []


def program(
    backward: bool = False, tolerance: float = 1e-4, kernels: int | None = None
) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """``kernels``: how many forward kernels the greedy policy must leave."""

    def add(make: Callable[[], Any]) -> Callable[[], Any]:
        PROGRAMS.append(Program(make.__name__, make, backward, tolerance, kernels))
        return make

    return add


def R(*shape: int, grad: bool = False, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape).to(dtype).requires_grad_(grad)


@program(kernels=1)
def add_mul():
    return lambda a, b: (a + b) * 2, (R(64, 32), R(32))


@program(kernels=1)
def softmax():
    return lambda x: torch.softmax(x, -1), (R(8, 1000),)


@program(kernels=1)
def softmax_long():
    return lambda x: torch.softmax(x, -1), (R(80, 17_000),)


@program(kernels=1)
def softmax_across():
    return lambda x: torch.softmax(x, 0), (R(64, 100),)


@program(backward=True, kernels=1)
def layer_norm():
    return lambda x, w, b: F.layer_norm(x, (64,), w, b), (R(8, 64, grad=True), R(64, grad=True), R(64, grad=True))


@program(backward=True, tolerance=2e-2, kernels=1)
def layer_norm_bfloat16():
    return lambda x: F.layer_norm(x, (64,)), (R(8, 64, dtype=torch.bfloat16).requires_grad_(),)


@program(kernels=1)
def rms_norm():
    return lambda x, w: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w, (R(10, 64), R(64))


@program(backward=True)
def mlp():
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10))
    return lambda x, t: F.cross_entropy(model(x), t), (R(16, 32), torch.randint(0, 10, (16,)))


@program(backward=True)
def conv_batch_norm_relu():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()), (R(2, 3, 10, 10),)


@program()
def conv_inference_channels_last():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()).eval()
    return model, (R(2, 3, 10, 10).contiguous(memory_format=torch.channels_last),)


@program(backward=True)
def attention():
    q, k, v = (R(2, 2, 8, 16, grad=True) for _ in range(3))
    return lambda q, k, v: torch.softmax(q @ k.transpose(-1, -2) / 4, -1) @ v, (q, k, v)


@program(backward=True)
def attention_library():
    q, k, v = (R(2, 2, 8, 16, grad=True) for _ in range(3))
    return F.scaled_dot_product_attention, (q, k, v)


@program(backward=True)
def encoder_layer():
    return nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, dropout=0.0), (R(2, 6, 32),)


@program()
def sum_of_all():
    return lambda x: x.sum(), (R(1 << 15) / 100,)


@program(kernels=1)
def sum_of_rows():
    return lambda x: (x * 2).sum(0), (R(300, 64),)


@program()
def long_columns():
    return lambda x: ((x * 2).sum(0), (x + 1).amax(0)), (R(1536, 40),)


@program()
def batch_statistics():
    return lambda x: (x.mean((0, 2)), x.var((0, 2))), (R(64, 3, 150),)


@program(kernels=1)
def mean_of_middle():
    return lambda x: (x * 2).mean(1), (R(5, 20, 30),)


@program()
def both_axes():
    return lambda x: (x.sum(0), x.sum(1), x.sum()), (R(20, 30),)


@program()
def concatenate():
    return lambda x, y: torch.cat([x + 1, y * 2], 1).relu(), (R(10, 6), R(10, 4))


@program()
def rotary():
    return lambda x: torch.cat([-x[..., 32:], x[..., :32]], -1) * 2 + x, (R(10, 64),)


@program(backward=True)
def rotary_of_neighbours():
    def rotated(x):
        even, odd = x[..., 0::2], x[..., 1::2]
        return torch.stack((even * 0.6 - odd * 0.8, even * 0.8 + odd * 0.6), -1).flatten(-2)

    return rotated, (R(10, 64, grad=True),)


@program()
def every_third():
    def written(x, y):
        x = x.clone()
        x[:, 1::3] = y
        x[2::4] = 0
        return x * 2

    return written, (R(9, 20), R(9, 7))


@program()
def equal_steps_with_views():
    """Of equal nodes AOTAutograd keeps one: what the others' views name as their memory is gone."""
    return lambda x: ((x + 1)[None] * 2, (x + 1)[None][:, None] * 3, (x + 1)[None][:, :, :4].transpose(1, 2) * 4), (R(6, 5),)


@program()
def uninitialised():
    def filled(x):
        made = torch.empty_permuted((4, 6), (1, 0), device=x.device).copy_(x) * 2
        return made + torch.empty_like(x).fill_(3) + x.new_empty(4, 6).zero_()

    return filled, (R(4, 6),)


@program()
def no_axes():
    i, y = torch.tensor(0), torch.tensor(3.0)
    return lambda x, i, y: (
        x.max(0), x.min(0), x.flip(0) * 2, x.gather(0, i), x.index_select(0, i), x.scatter(0, i, y), x.scatter_add(0, i, y), x.index_add(0, i, y),
        x.put(i, y), x.cumsum(0), torch.rsub(x, y, alpha=3),
    ), (torch.tensor(2.5), i, y)  # fmt: skip


@program()
def variance_of_nothing():
    return lambda x: (x.var(0), torch.var_mean(x, 0, correction=0), (x + 1).std()), (R(0, 6),)


@program()
def sampling():
    return lambda x, g: (
        F.grid_sample(x, g, padding_mode="reflection", align_corners=False), F.grid_sample(x, g, "nearest", align_corners=True),
        F.grid_sample(x, g, "bicubic", "border", align_corners=False) * 2,
    ), (R(2, 3, 4, 5), R(2, 3, 4, 2))  # fmt: skip


@program()
def writing_under_a_mask():
    mask = torch.tensor([[True, False, True], [False, False, True]])
    return lambda x, m, y: (x.index_put((m,), y), x.index_put((m,), y, True), x.put(m.long(), x * 2)), (R(2, 3), mask, R(3))


@program(backward=True)
def dilated_max_pooling():
    return lambda x: F.max_pool2d(x.relu(), (3, 2), 2, 1, (1, 3)) * 2, (R(2, 3, 9, 8, grad=True),)


@program()
def checked_while_running():
    return lambda i: F.one_hot(i, 5).float() * 2, (torch.tensor([[0, 4], [2, 1]]),)


@program()
def second_moments():
    return lambda m, g: m.mul(0.999).addcmul_(g, g, value=0.001).sqrt(), (R(6, 5).abs(), R(6, 5))


@program(kernels=1)
def transposed():
    return lambda x: F.gelu(x.t()) + x.t(), (R(10, 6),)


@program()
def permuted():
    return lambda x: (x.permute(2, 0, 1).contiguous() + 1, x.transpose(0, 1).reshape(-1) * 2), (R(5, 6, 7),)


@program(backward=True)
def embedding():
    return lambda w, i: F.embedding(i, w).sum(0), (R(10, 6, grad=True), torch.randint(0, 10, (4, 5)))


@program()
def extrema():
    return lambda x: (x.argmax(-1), x.max(0), x.argmin(), x.min(1), x.amax((0, 1))), (R(10, 64),)


@program()
def extrema_ties_and_nan():
    x = torch.randint(0, 3, (10, 64)).float()
    x[3, 5] = x[3, 9] = float("nan")
    return lambda x: (x.argmax(-1), x.max(1), x.argmin(0), x.amax(1)), (x,)


@program()
def variance():
    return lambda x: (x.var(1), x.var(), x.std(0, unbiased=False), torch.var_mean(x, 1, keepdim=True)), (R(10, 64),)


@program()
def log_sums():
    return lambda x: (x.logsumexp(1), x.log_softmax(0), x.norm(), x.norm(dim=1), F.normalize(x)), (R(10, 64),)


@program()
def causal_mask():
    return lambda x: x.masked_fill(torch.tril(torch.ones(8, 8)) == 0, float("-inf")).softmax(-1), (R(3, 8, 8),)


@program()
def indexing():
    i, j = torch.tensor([0, -1, 3]), torch.tensor([2, 1, -2])
    return lambda x, i, j: (x[i], x[:, j], x[i, j], x[i[:, None], j], x.index_select(1, j.abs())), (R(8, 9), i, j)


@program()
def gathering():
    return lambda x, i: x.gather(1, i) + 1, (R(5, 6), torch.randint(0, 6, (5, 3)))


@program()
def padding():
    return lambda x: (F.pad(x, (1, 2, 0, 3), value=3.0), F.pad(x, (-1, 2))), (R(5, 6),)


@program(backward=True)
def average_pooling():
    return lambda x: F.avg_pool2d(F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False), 2, 2) * 3, (R(2, 3, 8, 6, grad=True),)


@program(backward=True)
def max_pooling():
    return lambda x: F.max_pool2d(F.relu(x), (3, 2), 2, (1, 0)) * 2, (R(2, 3, 9, 6, grad=True),)


@program()
def max_pooling_of_ties_and_nan():
    x = R(2, 3, 7, 7, dtype=torch.bfloat16)
    x[0, 0, 3, 3] = x[0, 0, 3, 4] = float("nan")
    x[0, 1], x[1, 2] = float("-inf"), 1.0
    return lambda x: F.max_pool2d(x, 3, 2, 1, 2, return_indices=True), (x,)


@program(backward=True)
def running_sums():
    return lambda x: (x.exp().cumsum(-1) * 2, x.cumsum(0) / 3, x.softmax(-1).cumsum(-1)), (R(6, 40, grad=True),)


@program()
def running_products_and_extrema():
    x = (R(3, 50, 4) * 3).round()
    x[1, 20, 2] = float("nan")
    return lambda x: (x.cummax(1), x.cummin(1), (x / 4).cumprod(1), x.logcumsumexp(1), x.int().nan_to_num().cummax(0)), (x,)


@program()
def running_sums_of_long_rows():
    return lambda x, y: (x.cumsum(1), (y > 0).cumsum(0), y.logcumsumexp(0)), (R(2, 20_000), R(9_000))


@program()
def running_sums_of_small_dtypes():
    x = torch.arange(24).reshape(4, 6)
    return lambda x: (
        x.bfloat16().cumsum(1),
        x.half().cumsum(0),
        x.to(torch.uint8).cumsum(1),
        x.cumsum(1, dtype=torch.int32),
        x.sum().cumsum(0),
    ), (x,)


@program(backward=True)
def scattering_along_an_axis():
    i = torch.tensor([[0, 2, 1], [3, 0, 2]])
    return lambda x, y, i: (x.exp().scatter(1, i, y * 2), x.scatter(0, i % 2, 5.0), x.scatter_add(1, i, y) + 1), (
        R(2, 4, grad=True), R(2, 3, grad=True), i,
    )  # fmt: skip


@program()
def scattering_to_one_place():
    i = torch.tensor([1, 1, 0, 1, -1, 1])
    return lambda x, y, i: (
        x.index_put((i,), y, accumulate=True), x.index_put((i,), y), x.index_add(0, i.abs(), y.relu()), x.bfloat16().index_put((i,), y.bfloat16(), accumulate=True),
    ), (R(4, 5), R(6, 5), i)  # fmt: skip


@program(backward=True)
def writing_to_parts():
    mask = torch.tensor([[True, False, True], [False, False, True]])
    return lambda x, y, mask: (
        x.diagonal_scatter(y[0, :2] * 2, 1), x.masked_fill(mask, 3.0), x.index_put((mask,), y.detach().sum()), x.as_strided_scatter(y[:, :2], (2, 2), (3, 1), 1),
        torch.slice_scatter(x, y[:, :2], 1, 0, 3, 2),
    ), (R(2, 3, grad=True), R(2, 3, grad=True), mask)  # fmt: skip


@program(backward=True)
def embedding_gradient():
    table = nn.Embedding(7, 4, padding_idx=1)
    return lambda i, w: F.embedding(i, w, 1).tanh(), (torch.tensor([[1, 3, 3], [0, 6, 3]]), table.weight)


@program(backward=True)
def cross_entropy_with_ignored():
    return lambda x, t: F.cross_entropy(x, t, ignore_index=2), (R(6, 5, grad=True), torch.tensor([0, 2, 4, 1, 2, 3]))


@program()
def searching():
    b = torch.tensor([-1.0, 0.0, 0.0, 2.0])
    x = torch.tensor([[-2.0, 0.0, 0.5], [2.0, 3.0, float("nan")]])
    rows = torch.arange(10.0).reshape(2, 5)
    return lambda x, b, rows: (
        torch.bucketize(x, b), torch.bucketize(x, b, right=True, out_int32=True), torch.searchsorted(rows, x), torch.searchsorted(b, x, side="right") + 1,
    ), (x, b, rows)  # fmt: skip


@program()
def flipping():
    return lambda x: (x.flip(0, 1) * 2, x.repeat(2, 3), x.roll(1, 0)), (R(5, 6),)


@program()
def triangles_and_ranges():
    ranges = lambda: (torch.arange(7) * 2, torch.arange(0, 1, 0.1), torch.linspace(0, 1, 5))  # noqa: E731
    return lambda x: (x.tril(1), x.triu(-1), *ranges()), (R(3, 5, 6),)


@program()
def slicing():
    return lambda x: (x[1:3] * 2, x[:, ::2] + 1, x.narrow(1, 1, 2).exp(), x[:, None].expand(5, 4, 6) * 2), (R(5, 6),)


@program()
def splitting():
    return lambda x: [a * 2 for a in x.chunk(3, 1)] + list(x.unbind(0)), (R(2, 6),)


@program()
def mutation():
    return lambda x: x.add_(1) * 2, (R(5, 6),)


@program()
def item_assignment():
    def f(x):
        y = x.clone()
        y[:, 1] = 0
        y[2:4] += x[2:4]
        return y

    return f, (R(5, 6),)


@program()
def aliases():
    return lambda x: (x, x.view(-1), x.t()), (R(2, 6),)


@program()
def scattering():
    one, several = torch.tensor([1]), torch.tensor([0, 1, 1])
    return lambda x, i, j: (x.index_fill(0, i, 3.0), x.new_zeros(4, 6).index_add(0, j, x[:3])), (R(5, 6), one, several)


@program()
def integers():
    x = torch.randint(-9, 9, (5, 6))
    return lambda x: (x // 3, x % 3, x >> 1, x.sum(), x.float().mean(), x.prod(0), (x > 2).any(1), (x > -9).all()), (x,)


@program(tolerance=1e-2)
def half_chain():
    return lambda x: (x * 2 + 1).relu().sum(-1), (R(5, 6, dtype=torch.float16),)


@program(tolerance=0.0)
def bfloat16_rounds_as_eager():
    return lambda x, y: (x * 1.01 + y) * x - y, (R(50, 60, dtype=torch.bfloat16), R(50, 60, dtype=torch.bfloat16))


@program()
def empty():
    return lambda x: (x * 2, x.sum(), x.sum(0)), (R(0, 6),)


@program()
def scalar():
    return lambda x: (x * 2 + 1, x.sum(), x.argmax()), (torch.tensor(3.0),)


@program()
def complex_numbers():
    return lambda x: torch.fft.rfft(x).abs() * 2, (R(5, 8),)


@program()
def promotion():
    return lambda x, y, i: (torch.where(x > 0, x, y.double()), x + i, i / 2, i * 2.5, (x > 0) + i), (R(5, 6), R(6), torch.arange(6))


@program(backward=True)
def group_norm_silu():
    return lambda x: F.silu(F.group_norm(x, 2)), (R(2, 8, 4, 4, grad=True),)


@program()
def batched_product():
    return lambda x, y: torch.bmm(x, y).relu(), (R(2, 3, 4), R(2, 4, 5))


@program(backward=True)
def pooling():
    return lambda x: F.max_pool2d(x, 2), (R(1, 2, 6, 6, grad=True),)


@program()
def interpolation():
    return lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), (R(1, 2, 5, 5),)


@program()
def scans_and_sorts():
    return lambda x: (x.cumsum(1) * 2, x.sort(1), x.topk(2)[0] * 2), (R(5, 6),)


@program()
def chain_of_many():
    def f(x, y):
        for k in range(40):
            x = torch.sin(x) if k % 2 else x * 1.01 + y
        return x

    return f, (R(16, 8), R(8))


@dataclass
class Part:
    """One ATen graph of a program with inputs that it was called with."""

    name: str
    gm: GraphModule
    inputs: list[Any]

    def copies(self) -> list[Any]:
        return [copy_of(value) for value in self.inputs]

    def eager(self) -> list[Any]:
        return list(self.gm(*self.copies()))


def copy_of(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    with torch.no_grad():
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device).copy_(value)


def parts_of(given: Program, device: str = "cpu") -> list[Part]:
    """The ATen graphs of the program, forward and backward, each with real inputs."""
    torch.manual_seed(0)
    with torch.device(device):
        function, arguments = given.make()
        return captured(given, function, arguments)


def captured(given: Program, function: Callable[..., Any], arguments: tuple[Any, ...]) -> list[Part]:
    found: list[Part] = []

    def compiler(name: str) -> Callable[[GraphModule, Sequence[Any]], Callable[..., Any]]:
        def compile_part(gm: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
            def boxed(values: list[Any]) -> Any:
                part = Part(name, gm, [copy_of(value) for value in values])
                found.append(part)
                values.clear()
                return gm(*(copy_of(value) for value in part.inputs))

            boxed._boxed_call = True
            return boxed

        return compile_part

    torch._dynamo.reset()
    unseen = lambda joint: lambda forward, backward, results: None  # noqa: E731
    backend = lambda gm, inputs: aot_compile(gm, inputs, compiler("forward"), compiler("backward"), decompositions(), unseen)  # noqa: E731
    result = torch.compile(copy.deepcopy(function) if isinstance(function, nn.Module) else function, backend=backend)(*arguments)
    if given.backward:
        first = result if isinstance(result, torch.Tensor) else result[0]
        torch.manual_seed(1)
        first.backward(torch.randn_like(first))
    assert found
    return found


def assert_equal(got: Sequence[Any], wanted: Sequence[Any], tolerance: float) -> None:
    """Values, dtypes, shapes and strides."""
    assert len(got) == len(wanted)
    for ours, theirs in zip(got, wanted, strict=True):
        if not isinstance(theirs, torch.Tensor):
            assert ours == theirs
            continue
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance, equal_nan=True)
        if theirs.numel():
            assert ours.stride() == theirs.stride()
