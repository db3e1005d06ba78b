"""The interpreter against eager PyTorch, on nests written by hand."""

from dataclasses import replace

import pytest
import torch

from compiler.errors import CompileError
from compiler.interp import flat, interpret, interpret_kernel, interpret_program
from compiler.ir import (
    Allocation,
    Apply,
    Constant,
    Extern,
    Kernel,
    Load,
    Nest,
    Phase,
    Position,
    Program,
    Reduce,
    Ref,
    Store,
    Symbol,
    Tiling,
)  # fmt: skip
from tests.compiler.loops import buffer, graph, softmax_kernel, softmax_program, two_steps, whole


def run(nest: Nest, buffers, inputs, tensors):
    (result,) = interpret(graph(buffers, inputs, (nest,), nest.store.buffer), tensors)
    return result


def test_two_nests_in_a_row_give_what_eager_gives():
    x = torch.randn(4, 8)
    torch.testing.assert_close(interpret(two_steps(), [x]), [2 * x.exp().sum(1)])


def test_a_transposed_operand_and_a_broadcast_one_are_read_through_their_strides():
    body = (
        Load("a", 0, (1, 3), "float32"),
        Load("b", 0, (0, 1), "float32"),
        Apply("add", (0, 1), "float32"),
        Store("out", 0, (5, 1), 2, "float32"),
    )
    a, b = torch.randn(3, 5).t().contiguous().t(), torch.randn(5)
    buffers = (buffer("a", 3, 5, strides=(1, 3)), buffer("b", 5), buffer("out", 3, 5))
    assert torch.equal(run(Nest("out", "add", (3, 5), (), body, 0), buffers, ("a", "b"), [a, b]), a + b)


def test_no_address_is_formed_where_the_mask_is_false():
    body = (
        Position(-2, (1,)), Constant(0, "int64"), Apply("ge", (0, 1), "bool"), Load("x", -2, (1,), "float32", mask=2, other=7.5),
        Store("out", 0, (1,), 3, "float32"),
    )  # fmt: skip
    x = torch.randn(3)
    result = run(Nest("out", "pad", (5,), (), body, 0), (buffer("x", 3), buffer("out", 5)), ("x",), [x])
    assert torch.equal(result, torch.nn.functional.pad(x, (2, 0), value=7.5))


def test_a_gathered_row_is_read_at_the_index_that_was_loaded():
    body = (Load("i", 0, (1, 0), "int64"), Load("w", 0, (0, 1), "float32", indirect=((0, 4),)), Store("out", 0, (4, 1), 1, "float32"))
    w, i = torch.randn(10, 4), torch.tensor([3, 0, 9])
    buffers = (buffer("w", 10, 4), buffer("i", 3, dtype="int64"), buffer("out", 3, 4))
    assert torch.equal(run(Nest("out", "embedding", (3, 4), (), body, 0), buffers, ("w", "i"), [w, i]), w[i])


def test_an_index_outside_of_the_buffer_is_an_error():
    body = (Load("i", 0, (1,), "int64"), Load("w", 0, (0,), "float32", indirect=((0, 1),)), Store("out", 0, (1,), 1, "float32"))
    buffers = (buffer("w", 3), buffer("i", 2, dtype="int64"), buffer("out", 2))
    with pytest.raises(CompileError, match="addresses 1 to 3 in w"):
        run(Nest("out", "gather", (2,), (), body, 0), buffers, ("w", "i"), [torch.randn(3), torch.tensor([1, 3])])


@pytest.mark.parametrize("op", ["sum", "prod", "max", "min", "argmax", "argmin", "any", "all"])
@pytest.mark.parametrize("values", [[1.0, 3.0, 3.0, -2.0, -2.0, 0.0], [1.0, float("nan"), 5.0, float("nan"), 0.0, 2.0], [0.0] * 6])
def test_reductions_agree_with_eager_on_ties_and_nan(op, values):
    x = torch.tensor([values, values[::-1]])
    given = x != 0 if op in ("any", "all") else x
    dtype = "bool" if op in ("any", "all") else "float32"
    result = "int64" if op.startswith("arg") else dtype
    body = (Load("x", 0, (6, 1), dtype), Reduce(op, 0, result), Store("out", 0, (1, 0), 1, result))
    nest = Nest("out", op, (2,), (6,), body, 0)
    expected = {"max": torch.amax, "min": torch.amin}.get(op) or getattr(torch, op)
    actual = run(nest, (buffer("x", 2, 6, dtype=dtype), buffer("out", 2, dtype=result)), ("x",), [given])
    torch.testing.assert_close(actual, expected(given, 1), equal_nan=True, rtol=0, atol=0)


def test_a_reduction_over_two_loops_counts_positions_in_the_flattened_space():
    body = (Load("x", 0, (12, 4, 1), "float32"), Reduce("argmax", 0, "int64"), Store("out", 0, (1, 0, 0), 1, "int64"))
    x = torch.randn(2, 3, 4)
    actual = run(Nest("out", "argmax", (2,), (3, 4), body, 0), (buffer("x", 2, 3, 4), buffer("out", 2, dtype="int64")), ("x",), [x])
    assert torch.equal(actual, x.flatten(1).argmax(1))


@pytest.mark.parametrize(("op", "expected"), [("sum", 0.0), ("prod", 1.0), ("max", float("-inf"))])
def test_a_reduction_of_nothing_gives_its_identity(op, expected):
    body = (Load("x", 0, (0, 1), "float32"), Reduce(op, 0, "float32"), Store("out", 0, (1, 0), 1, "float32"))
    actual = run(Nest("out", op, (2,), (0,), body, 0), (buffer("x", 2, 0), buffer("out", 2)), ("x",), [torch.empty(2, 0)])
    assert actual.tolist() == [expected] * 2


def test_an_empty_iteration_space_runs_nothing():
    body = (Load("x", 0, (1,), "float32"), Apply("exp", (0,), "float32"), Store("out", 0, (1,), 1, "float32"))
    assert run(Nest("out", "exp", (0,), (), body, 0), (buffer("x", 0), buffer("out", 0)), ("x",), [torch.empty(0)]).shape == (0,)


def test_a_cast_rounds_and_truncates_as_eager_does():
    x = torch.tensor([1.00390625, -2.7, 3.9, 300.0])
    for dtype in ("bfloat16", "float16", "int32", "bool"):
        body = (Load("x", 0, (1,), "float32"), Apply("cast", (0,), dtype), Store("out", 0, (1,), 1, dtype))
        actual = run(Nest("out", "cast", (4,), (), body, 0), (buffer("x", 4), buffer("out", 4, dtype=dtype)), ("x",), [x])
        assert torch.equal(actual, x.to(getattr(torch, dtype)))


def test_an_extern_call_reads_views_and_fills_the_declared_layout():
    a, b, out = buffer("a", 3, 4), buffer("b", 5, 4), buffer("out", 3, 5, strides=(1, 3))
    call = Extern(
        "out", "aten.mm.default", "torch.ops.aten.mm.default", (whole(a), Ref("b", (4, 5), (1, 4))), (), ("out",), True, "", "", "", 0
    )
    x, y = torch.randn(3, 4), torch.randn(5, 4)
    (result,) = interpret(graph((a, b, out), ("a", "b"), (call,), "out"), [x, y])
    torch.testing.assert_close(result, x @ y.t())
    assert result.stride() == (1, 3)


def test_an_extern_call_may_have_symbols_and_results_that_nobody_reads():
    made = Extern(
        "s", "aten.sort.default", "torch.ops.aten.sort.default", (whole(buffer("x", 5)),), (("descending", Symbol("True")),), (None, "i"), False,
        "", "", "", 0,
    )  # fmt: skip
    x = torch.randn(5)
    (result,) = interpret(graph((buffer("x", 5), buffer("i", 5, dtype="int64")), ("x",), (made,), "i"), [x])
    assert torch.equal(result, x.argsort(descending=True))


def test_inputs_stay_as_they_are():
    body = (Constant(1.0, "float32"), Store("x", 0, (1,), 0, "float32"))
    x = torch.zeros(3)
    assert run(Nest("x", "fill", (3,), (), body, 0), (buffer("x", 3),), ("x",), [x]).tolist() == [1.0] * 3
    assert x.tolist() == [0.0] * 3


@pytest.mark.parametrize("persistent", [True, False])
def test_a_kernel_runs_phase_by_phase(persistent):
    x = torch.randn(4, 8)
    memory = {"x": flat(x, buffer("x", 4, 8)), "y": torch.zeros(32)}
    interpret_kernel(softmax_kernel(persistent), memory)
    torch.testing.assert_close(memory["y"].reshape(4, 8), torch.softmax(x, 1))


def shifted(read: int, write: int) -> Kernel:
    """x[i + write] = x[i + read] + 1, which is a race unless both are equal."""
    body = (
        Load("x", read, (1,), "float32"),
        Constant(1.0, "float32"),
        Apply("add", (0, 1), "float32"),
        Store("x", write, (1,), 2, "float32"),
    )
    return Kernel("shift", ("x",), (4,), (), False, (Phase(0, 4, False),), body, ("x",), ("x",), Tiling(4, 1, 4), 32, 0)


def test_a_kernel_may_overwrite_what_only_the_same_iteration_reads():
    memory = {"x": torch.zeros(5)}
    interpret_kernel(shifted(0, 0), memory)
    assert memory["x"].tolist() == [1, 1, 1, 1, 0]


def test_an_iteration_that_overwrites_what_another_one_reads_is_an_error():
    with pytest.raises(CompileError, match="another one has read"):
        interpret_kernel(shifted(1, 0), {"x": torch.zeros(5)})


def test_an_iteration_that_reads_what_another_one_wrote_is_an_error():
    body = (
        Load("x", 0, (1,), "float32"), Store("y", 0, (1,), 0, "float32"), Load("y", 1, (1,), "float32"), Store("z", 0, (1,), 2, "float32"),
    )  # fmt: skip
    kernel = Kernel("bad", ("y", "z"), (3,), (), False, (Phase(0, 4, False),), body, ("x", "y", "z"), ("y", "z"), Tiling(4, 1, 4), 0, 0)
    with pytest.raises(CompileError, match="another one has written"):
        interpret_kernel(kernel, {name: torch.zeros(4) for name in "xyz"})


def test_two_iterations_that_write_one_element_are_an_error():
    body = (Load("x", 0, (1,), "float32"), Store("y", 0, (0,), 0, "float32"))
    kernel = Kernel("bad", ("y",), (3,), (), False, (Phase(0, 2, False),), body, ("x", "y"), ("y",), Tiling(4, 1, 4), 0, 0)
    with pytest.raises(CompileError, match="two iterations"):
        interpret_kernel(kernel, {"x": torch.zeros(3), "y": torch.zeros(1)})


def test_a_program_gives_what_its_kernels_give():
    x = torch.randn(4, 8)
    torch.testing.assert_close(interpret_program(softmax_program(), [x]), [torch.softmax(x, 1)])


def test_memory_that_was_dropped_cannot_be_read():
    program = softmax_program()
    with pytest.raises(KeyError):
        interpret_program(replace(program, frees=(("y",),)), [torch.randn(4, 8)])


def test_a_buffer_in_the_memory_of_a_dead_one_takes_it_over():
    first = Kernel(
        "one", ("a",), (4,), (), False, (Phase(0, 3, False),),
        (Load("x", 0, (1,), "float32"), Apply("exp", (0,), "float32"), Store("a", 0, (1,), 1, "float32")), ("x", "a"), ("a",), Tiling(4, 1, 4), 0, 0,
    )  # fmt: skip
    body = (Load("a", 0, (1,), "float32"), Apply("neg", (0,), "float32"), Store("b", 0, (1,), 1, "float32"))
    second = replace(first, name="two", steps=("b",), body=body, arguments=("a", "b"), writes=("b",))
    made = graph((buffer("x", 4), buffer("a", 4), buffer("b", 4)), ("x",), (), "b")
    program = Program(made, (first, second), ((Allocation("a"),), (Allocation("b", "a"),)), ((), ("a",)), 16)
    x = torch.randn(4)
    torch.testing.assert_close(interpret_program(program, [x]), [-x.exp()])
