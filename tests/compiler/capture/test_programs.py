"""Whatever Dynamo captures compiles and gives eager's results: aliases, mutation, odd results, open sizes, training."""

import pytest
import torch
from torch import nn

from compiler.capture import compile_region
from compiler.options import Options
from compiler.recorder import Recorder
from compiler.target import find_target
from compiler.trace import Trace


class Backend:
    """Our compiler as a backend of torch.compile; keeps what it recorded."""

    def __init__(self, target="cpu"):
        self.events = []
        self.recorder = Recorder(self.events.append)
        self.target = find_target(target)

    def __call__(self, gm, inputs):
        return compile_region(gm, inputs, options=Options(), target=self.target, recorder=self.recorder)

    @property
    def trace(self):
        return Trace.fold(self.events)


pytestmark = pytest.mark.usefixtures("fresh_dynamo")


def clones(values):
    return [value.detach().clone().requires_grad_(value.requires_grad) if isinstance(value, torch.Tensor) else value for value in values]


def check(function, *inputs, target="cpu", dynamic=None):
    """Results and changed inputs equal eager's; the recorded trace."""
    backend = Backend(target)
    ours, theirs = clones(inputs), clones(inputs)
    got = torch.compile(function, backend=backend, dynamic=dynamic)(*ours)
    want = function(*theirs)
    torch.testing.assert_close(got, want, equal_nan=True)
    torch.testing.assert_close(ours, theirs, equal_nan=True)
    return backend.trace


def in_place(x):
    x.add_(1)
    return x * 2


def alias(x):
    return x.view(-1), x.t(), x


def nothing(x):
    x.mul_(3)


def with_none(x, flag):
    return None, x + flag, 3


def masked(x):
    y = x.clone()
    y[x > 0] = 0
    return y


def sliced(x):
    x[1:, ::2] = 7.0
    return x.sum()


def complicated(x):
    return torch.fft.fft(x).abs() + (x + 1j * x).real


def sorted_values(x):
    values, order = x.sort(dim=-1)
    return values, order, x.topk(2)


def conditional(x):
    return torch.cond(x.sum() > 0, lambda a: a.sin(), lambda a: a.cos(), (x,))


def many_dtypes(x):
    return x.to(torch.float16) * 2, x.to(torch.int32) + 1, (x > 0), x.double() / 3


PROGRAMS = [
    (in_place, [torch.randn(4, 6)]),
    (alias, [torch.randn(4, 6)]),
    (nothing, [torch.randn(3)]),
    (with_none, [torch.randn(3), 2]),
    (masked, [torch.randn(5, 5)]),
    (sliced, [torch.randn(5, 6)]),
    (complicated, [torch.randn(8)]),
    (sorted_values, [torch.randn(4, 6)]),
    (conditional, [torch.randn(4)]),
    (many_dtypes, [torch.randn(4)]),
    (lambda x: x.sum() * 2, [torch.randn(())]),
    (lambda x: (x * 2, x.sum()), [torch.randn(0, 3)]),
    (lambda x: x.expand(3, 4) + 1, [torch.randn(1, 4)]),
    (lambda x: torch.cat([x, x + 1]).flip(0)[::2], [torch.randn(4, 3)]),
    (lambda x: torch.nn.functional.max_pool2d(x, 2), [torch.randn(1, 2, 8, 8)]),
    (lambda x: torch.nn.functional.scaled_dot_product_attention(x, x, x), [torch.randn(1, 2, 8, 16)]),
    (lambda x: torch.nn.functional.interpolate(x, scale_factor=2, mode="bilinear"), [torch.randn(1, 2, 4, 4)]),
    (lambda x: torch.linalg.vector_norm(x, dim=-1) + x.var(dim=-1) + x.logsumexp(-1), [torch.randn(4, 5)]),
    (lambda x: x.cumsum(0) + x.roll(1, 0), [torch.randn(6)]),
    (lambda x: torch.ones(3, device=x.device), [torch.randn(3)]),
    (lambda x, i: torch.nn.functional.embedding(i, x).sum(1), [torch.randn(10, 4), torch.randint(0, 10, (3, 5))]),
    (lambda x, i: x.index_add(0, i, x[i]) + x.scatter(0, i[:, None].expand(-1, 3), 1.0), [torch.randn(5, 3), torch.tensor([0, 2, 4])]),
]


@pytest.mark.parametrize(("function", "inputs"), PROGRAMS, ids=[f"{i}_{f.__name__.strip('<>')}" for i, (f, _) in enumerate(PROGRAMS)])
def test_equals_eager(function, inputs):
    trace = check(function, *inputs)
    assert all(stage.status != "error" for stage in trace.stages)


def test_strided_input():
    base = torch.randn(6, 8)
    backend = Backend()
    torch.testing.assert_close(torch.compile(torch.exp, backend=backend)(base[::2, 1::3]), base[::2, 1::3].exp())


def test_open_sizes_are_compiled_once():
    backend = Backend()
    compiled = torch.compile(lambda x, n: (x * x.shape[0]).sum(0) + n, backend=backend, dynamic=True)
    for rows, number in ((3, 2), (7, 5), (3, 9)):
        x = torch.randn(rows, 4)
        torch.testing.assert_close(compiled(x, number), (x * rows).sum(0) + number)
    assert len(backend.trace.regions) == 1


def test_size_that_changes_between_calls():
    backend = Backend()
    compiled = torch.compile(lambda x: torch.softmax(x, -1).view(-1), backend=backend)
    for size in (3, 5, 8):
        x = torch.randn(2, size)
        torch.testing.assert_close(compiled(x), torch.softmax(x, -1).view(-1))


def test_open_sizes_with_gradients():
    compiled = torch.compile(lambda x: (x * x.shape[0]).tanh().sum(), backend=Backend(), dynamic=True)
    for rows in (3, 6):
        x = torch.randn(rows, 4, requires_grad=True)
        y = x.detach().clone().requires_grad_()
        compiled(x).backward()
        (y * rows).tanh().sum().backward()
        torch.testing.assert_close(x.grad, y.grad)


@pytest.mark.parametrize("target", ["cpu", "sm_90"])
def test_training_changes_parameters_and_buffers_as_eager(target):
    def build():
        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))

    x, labels = torch.randn(5, 6), torch.tensor([0, 1, 2, 0, 1])
    backend = Backend(target)
    ours, theirs = build(), build()
    compiled = torch.compile(ours, backend=backend)
    for model, run in ((ours, compiled), (theirs, theirs)):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            nn.functional.cross_entropy(run(x), labels).backward()
            optimizer.step()
    torch.testing.assert_close(ours.state_dict(), theirs.state_dict())
    trace = backend.trace
    assert {stage.part for stage in trace.stages if stage.name == "aten"} == {"forward", "backward"}
    forward = trace.stage("aten", part="forward")
    assert "running_mean" in forward.facts["mutated_inputs"]
    backward = trace.stage("aten", part="backward")
    assert backward.facts["saved_tensors"] > 0
    assert backward.facts["saved_bytes"] > 0


@pytest.mark.parametrize(("function", "gone"), [
    (lambda x: torch.softmax(x, -1), "_softmax"),
    (lambda x: torch.log_softmax(x, -1), "_log_softmax"),
    (lambda x: torch.nn.functional.layer_norm(x, (6,)), "native_layer_norm"),
    (lambda x: torch.nn.functional.batch_norm(x, None, None, training=True), "batch_norm"),
    (lambda x: torch.dropout(x, 0.5, True), "native_dropout"),
])  # fmt: skip
def test_composed_ops_are_taken_apart(function, gone):
    backend = Backend()
    torch.compile(function, backend=backend)(torch.randn(4, 6))
    code = [line.split("  #")[0] for line in backend.trace.stage("aten", part="forward").sections[0].text.splitlines()]
    assert not [line for line in code if gone in line]


@pytest.mark.parametrize(("function", "kept"), [(nn.functional.silu, "aten.silu.default"), (nn.functional.gelu, "aten.gelu.default")])
def test_ops_of_the_table_stay_whole(function, kept):
    backend = Backend()
    torch.compile(function, backend=backend)(torch.randn(4, 6))
    assert kept in backend.trace.stage("aten", part="forward").sections[0].text


def test_each_aten_node_knows_the_op_and_node_that_it_came_from():
    backend = Backend()
    torch.compile(lambda x: torch.softmax(x, -1), backend=backend)(torch.randn(4, 6))
    origins = backend.trace.stage("aten", part="forward").origins
    assert {origin.op for origin in origins if len(origin.nodes) == 2 and origin.op} == {"aten._softmax.default"}
    assert {origin.nodes[0] for origin in origins if origin.op == "aten._softmax.default"} == {"softmax"}
