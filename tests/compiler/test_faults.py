"""Faults of each stage, put in for real: each leaves as a CompileError that names stage, op and line, and the next program compiles."""

import inspect

import pytest
import torch
from torch._dynamo.exc import BackendCompilerFailed

from compiler import backend
from compiler.__main__ import main
from compiler.errors import CompileError
from compiler.lowering import RULES
from compiler.options import Options
from compiler.snippet import run_snippet
from compiler.target import find_target
from compiler.trace import Trace

X = torch.arange(6.0).reshape(2, 3) + 1
LIBRARY = torch.library.Library("faults", "DEF")


@pytest.fixture(autouse=True)
def _fresh(fresh_dynamo):
    """Each test compiles anew."""


def own(name, function, fake):
    op = torch.library.custom_op(f"faults::{name}", function, mutates_args=())
    op.register_fake(fake)
    return op


def same(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def second_time(message):
    calls = []

    def fake(x):
        calls.append(None)
        if len(calls) > 1:  # Dynamo calls it first, and would keep its exception to itself
            raise KeyError(message)
        return torch.empty_like(x)

    return fake


def fault_of(function, *arguments):
    """The CompileError of a function whose third line has the fault, as a text and as fields."""
    with pytest.raises((BackendCompilerFailed, CompileError)) as caught:
        torch.compile(function, backend=backend)(*arguments)
    error = getattr(caught.value, "inner_exception", caught.value)
    assert isinstance(error, CompileError)
    line = inspect.getsourcelines(function)[1] + 2
    assert error.line == line
    assert f"line {line}" in str(error)
    assert str(error).startswith(f"{error.stage}: ")
    assert f"[{error.op}]" in str(error)
    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(lambda x: x.sin() + 1, backend=backend)(X), X.sin() + 1)
    return error


@pytest.mark.parametrize(("gradient", "stage"), [(False, "aten"), (True, "joint")])
def test_a_fake_kernel_that_raises(gradient, stage):
    op = own(f"raises_{stage}", same, second_time("no such shape"))

    def f(x):
        y = x + 1
        return op(y) * 3

    error = fault_of(f, X.clone().requires_grad_(gradient))
    assert (error.stage, error.op) == (stage, f"faults.raises_{stage}.default")
    assert isinstance(error.__cause__.__cause__, KeyError)  # the tracer puts a RuntimeError in between


LIES = {
    "columns": lambda x: x.new_empty(x.shape[0], 7),
    "rows": lambda x: x.new_empty(9, x.shape[1]),  # the strides are as promised: only the memory ends too early
    "dtype": lambda x: torch.empty_like(x, dtype=torch.float64),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_fake_kernel_that_lies(lie):
    op = own(f"lies_about_{lie}", same, LIES[lie])

    def f(x):
        y = x + 1
        return op(y) * 3

    error = fault_of(f, X)
    assert (error.stage, error.op) == ("wrapper", f"faults.lies_about_{lie}.default")
    assert "its fake kernel promised" in str(error)


def test_a_lowering_rule_that_raises(monkeypatch):
    def broken(lowering, node):
        return {}[node.name]

    op = own("lowered", same, torch.empty_like)
    monkeypatch.setitem(RULES, "faults.lowered.default", broken)

    def f(x):
        y = x + 1
        return op(y) * 3

    error = fault_of(f, X)
    assert (error.stage, error.op) == ("loops", "faults.lowered.default")


def test_a_gradient_that_raises():
    op = own("gradient", same, torch.empty_like)

    def backward(ctx, gradient):
        raise RuntimeError("there is no gradient")

    op.register_autograd(backward)

    def f(x):
        y = x + 1
        return op(y) * 3

    error = fault_of(f, X.clone().requires_grad_())
    assert error.stage == "joint"
    assert "there is no gradient" in str(error)


def test_an_op_without_a_gradient_is_named():
    own("underived", same, torch.empty_like)
    i = torch.zeros(2, 3, dtype=torch.int64)

    def scattered(x):
        y = x * 2
        return y.scatter(0, i, torch.ones(2, 3), reduce="add")

    def called(x):
        y = x + 1
        return torch.ops.faults.underived(y) * 3

    def inner(x):
        y = x * 2
        return torch.igamma(y.abs(), y.abs() + 1) * 3

    own_op = (called, "faults.underived.default", "register_autograd")
    for function, op, hint in ((scattered, "aten.scatter", "no gradient"), own_op, (inner, "aten.igamma.default", "no gradient")):
        with pytest.raises(RuntimeError):
            function(X.clone().requires_grad_()).sum().backward()
        error = fault_of(function, X.clone().requires_grad_())
        assert (error.stage, error.op, error.line) == ("joint", op, function.__code__.co_firstlineno + 2)
        assert hint in error.hint


def test_what_pytorch_refuses_under_any_compiler_is_no_fault_of_ours():
    def f(x):
        with torch.enable_grad():
            return x.exp()

    x = X.clone().requires_grad_()
    for compiler in ("aot_eager", backend):
        torch._dynamo.reset()
        compiled = torch.compile(f, backend=compiler)
        compiled(x)
        with torch.inference_mode(), pytest.raises((RuntimeError, CompileError), match="Inference tensors cannot be saved") as caught:
            compiled(x)
    assert isinstance(caught.value, CompileError)
    assert "no_grad" in caught.value.hint


def test_a_compiler_that_is_not_there(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")

    def f(x):
        y = x + 1
        return (y * 0.123456).sin()

    with pytest.raises(BackendCompilerFailed) as caught:
        torch.compile(f, backend=backend)(X)
    error = caught.value.inner_exception
    assert isinstance(error, CompileError)
    assert error.stage == "code"
    assert "not installed" in str(error)


def test_what_the_program_raises_is_its_own():
    place = torch.tensor([0, 9])
    with pytest.raises(IndexError) as eager:
        X[place]
    with pytest.raises(IndexError) as ours:
        torch.compile(lambda x, i: x[i] + 1, backend=backend)(X, place)
    assert str(ours.value) == str(eager.value)
    with pytest.raises(torch.linalg.LinAlgError):
        torch.compile(lambda x: torch.linalg.cholesky(x) + 1, backend=backend)(-torch.eye(3))


def test_what_a_custom_op_raises_is_its_own():
    def raises(x: torch.Tensor) -> torch.Tensor:
        raise ValueError("not today")

    op = own("own_error", raises, torch.empty_like)
    with pytest.raises(ValueError, match="not today"):
        torch.compile(lambda x: op(x + 1) * 2, backend=backend)(X)


def test_a_fake_kernel_that_promises_too_much_is_named_where_memory_would_be_overrun():
    def shorter(x: torch.Tensor) -> torch.Tensor:
        return x[:1] * 2

    def function(x):
        return op(x * 1) + 1

    op = own("shorter", shorter, torch.empty_like)
    with pytest.raises(CompileError, match="fake kernel") as caught:
        torch.compile(function, backend=backend)(X)
    assert "faults.shorter" in caught.value.op
    assert "fake kernel" in caught.value.hint
    torch.testing.assert_close(torch.compile(lambda x: op(x * 1), backend=backend)(X), shorter(X))  # only handed on, as eager would


def test_what_a_wrong_fake_kernel_saves_for_the_backward_part_overruns_nothing():
    def shorter(x: torch.Tensor) -> torch.Tensor:
        return x[:1] * 2

    op = own("saved_shorter", shorter, torch.empty_like)

    class Saves(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(op(x))
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            (saved,) = ctx.saved_tensors
            return gradient * saved.sin()

    x = X.clone().requires_grad_()
    result = torch.compile(lambda x: Saves.apply(x).sum(), backend=backend)(x)
    with pytest.raises(CompileError, match="promised"):
        result.backward()


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_bags_of_embeddings_whose_fake_kernel_promises_too_much(dtype, mode):
    """For bfloat16 sums, PyTorch's fake kernel describes a bag for each index, and the op gives none."""
    indices, offsets = torch.tensor([0, 2, 4, 1, 1]), torch.tensor([0, 2, 5])
    weight = torch.randn(6, 8, dtype=dtype, requires_grad=True)
    function = lambda weight: torch.nn.functional.embedding_bag(indices, weight, offsets, mode=mode)  # noqa: E731
    (wanted,) = torch.autograd.grad(function(weight).float().square().sum(), weight)
    result = torch.compile(function, backend=backend)(weight)
    torch.testing.assert_close(result, function(weight))
    torch.testing.assert_close(*torch.autograd.grad(result.float().square().sum(), weight), wanted)


SCRIPT = """
import torch

@torch.library.custom_op("faults::in_a_script", mutates_args=())
def op(x: torch.Tensor) -> torch.Tensor:
    return x * 2

@op.register_fake
def _(x):
    return x.new_empty(7)

@torch.compile
def f(x):
    y = x + 1
    return op(y) * 3

f(torch.ones(3))
"""


def test_the_terminal_shows_the_line(tmp_path, capsys):
    file = tmp_path / "script.py"
    file.write_text(SCRIPT)
    assert main([str(file), "--no-measure"]) == 1
    told = capsys.readouterr().err
    assert "script.py:15: [wrapper]" in told
    assert "return op(y) * 3" in told


def test_the_trace_has_stage_op_and_line():
    events = []
    assert run_snippet(SCRIPT.replace("in_a_script", "in_a_trace"), Options(measure=False), find_target("cpu"), "fuselab", events.append)
    problem = Trace.fold(events).problem
    assert (problem.stage, problem.op, problem.line) == ("wrapper", "faults.in_a_trace.default", 15)
