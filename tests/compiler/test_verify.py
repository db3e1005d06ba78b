"""The verifier accepts what is right and names what is not: one mutation of a right graph, kernel or program for each kind of fault."""

from dataclasses import replace

import pytest

from compiler.errors import CompileError
from compiler.ir import Apply, Constant, Extern, Graph, Kernel, Line, Load, Nest, Phase, Program, Reduce, Ref, Store
from compiler.verify import injective, verify, verify_kernel, verify_program
from tests.compiler.loops import buffer, doubled, softmax_kernel, softmax_program, sum_of_exponentials, two_steps, whole

BUFFERS = {"x": buffer("x", 4, 8), "y": buffer("y", 4, 8)}


def with_line(nest: Nest, position: int, line: Line) -> Nest:
    return replace(nest, body=(*nest.body[:position], line, *nest.body[position + 1 :]))


def changed(position: int, line: Line) -> Graph:
    """``two_steps`` with another line in its first nest."""
    made = two_steps()
    return replace(made, steps=(with_line(sum_of_exponentials(), position, line), doubled()))


def then(*body: Line, loops: tuple[int, ...] = (4,)) -> Graph:
    """``two_steps`` with another second nest."""
    return replace(two_steps(), steps=(sum_of_exponentials(), Nest("y", "op", loops, (), body, 0)))


OUT = Load("out", 0, (1,), "float32")
Y = Store("y", 0, (1,), 0, "float32")
CALL = Extern("c", "op", "torch.ops.aten.exp.default", (whole(buffer("out", 4)),), (), ("y",), True, "", "", "", 0)
GRAPHS = {
    "is no earlier value": changed(1, Apply("exp", (2,), "float32")),
    "is a store, which has no value": then(OUT, Y, Apply("exp", (1,), "float32")),
    "1 strides for 2 loops": changed(0, Load("x", 0, (8,), "float32")),
    "nowhere is not declared": changed(0, Load("nowhere", 0, (8, 1), "float32")),
    "float64 in x, which holds float32": changed(0, Load("x", 0, (8, 1), "float64")),
    "addresses 1 to 32 in x of 32 elements": changed(0, Load("x", 1, (8, 1), "float32")),
    "addresses -1 to 30 in x of 32 elements": changed(0, Load("x", -1, (8, 1), "float32")),
    "addresses 1 to 4 in out of 4 elements": changed(3, Store("out", 1, (1, 0), 2, "float32")),
    "no op frobnicate": changed(1, Apply("frobnicate", (0,), "float32")),
    "add takes 2 arguments, not 1": changed(1, Apply("add", (0,), "float32")),
    "exp on float32 gives float32, not float64": changed(1, Apply("exp", (0,), "float64")),
    "lt on float32 gives bool, not float32": changed(1, Apply("lt", (0, 0), "float32")),
    "mul on float32 and int64": then(OUT, Constant(2, "int64"), Apply("mul", (0, 1), "float32"), Store("y", 0, (1,), 2, "float32")),
    "exp has no code for int64": then(Constant(2, "int64"), Apply("exp", (0,), "int64"), Apply("cast", (1,), "float32"), Store("y", 0, (1,), 2, "float32")),
    "add computes in float32, not float16": then(OUT, Apply("cast", (0,), "float16"), Apply("add", (1, 1), "float16"), Apply("cast", (2,), "float32"),
                                                 Store("y", 0, (1,), 3, "float32")),
    "where chooses by a bool": then(OUT, Apply("where", (0, 0, 0), "float32"), Store("y", 0, (1,), 1, "float32")),
    "a cast has one argument": then(OUT, Apply("cast", (0, 0), "float32"), Store("y", 0, (1,), 1, "float32")),
    "a value of int64 is stored as float32": then(Constant(2, "int64"), Y),
    "2.5 is no int64": then(Constant(2.5, "int64"), Apply("cast", (0,), "float32"), Store("y", 0, (1,), 1, "float32")),
    "sum of float32 gives float32, not int64": changed(2, Reduce("sum", 1, "int64")),
    "the index v0 is no int64": then(OUT, Load("out", 0, (0,), "float32", indirect=((0, 1),)), Store("y", 0, (1,), 1, "float32")),
    "the mask v0 is no bool": then(OUT, Load("out", 0, (1,), "float32", mask=0), Store("y", 0, (1,), 1, "float32")),
    "two iterations store to one element of y": then(OUT, Store("y", 0, (0,), 0, "float32")),
    "0 stores": then(OUT),
    "2 stores": then(OUT, Y, Y),
    "out is read where another iteration may write": then(OUT, Load("out", 3, (-1,), "float32"), Store("out", 0, (1,), 1, "float32")),
    "2 reductions": replace(two_steps(), steps=(replace(sum_of_exponentials(), body=(
        *sum_of_exponentials().body[:3], Reduce("max", 0, "float32"), Store("out", 0, (1, 0), 2, "float32"))), doubled())),
    "reduction loops without a reduction": changed(2, Apply("exp", (1,), "float32")),
    "depends on a reduction loop that has ended": changed(3, Store("out", 0, (1, 0), 1, "float32")),
    "a store before the reduction has ended": replace(two_steps(), steps=(replace(sum_of_exponentials(), body=(
        Constant(0.0, "float32"), Store("out", 0, (1, 0), 0, "float32"), Reduce("sum", 0, "float32"))), doubled())),
    "out is read before it is written": replace(two_steps(), steps=(doubled(), sum_of_exponentials())),
    "two steps are called total": replace(two_steps(), steps=(sum_of_exponentials(), sum_of_exponentials())),
    "c: out is read before it is written": replace(two_steps(), steps=(CALL,)),
    "c: z is not declared": replace(two_steps(), steps=(sum_of_exponentials(), replace(CALL, outputs=("z",)))),
    "z is not declared": replace(two_steps(), inputs=("x", "z")),
    "result 0: y is read before it is written": replace(two_steps(), steps=(sum_of_exponentials(),)),
    "result 0: a view of y reaches from 1 to 4": replace(two_steps(), outputs=(Ref("y", (4,), (1,), 1),)),
}  # fmt: skip


def test_what_is_right_is_accepted():
    verify(two_steps())
    verify_kernel(softmax_kernel(True), BUFFERS)
    verify_kernel(softmax_kernel(False), BUFFERS)
    verify_program(softmax_program())


@pytest.mark.parametrize("message", GRAPHS)
def test_a_fault_in_a_graph_is_named(message):
    with pytest.raises(CompileError) as caught:
        verify(GRAPHS[message])
    assert caught.value.stage == "loops"
    assert message in caught.value.message


def kernel(**fields: object) -> Kernel:
    return replace(softmax_kernel(), **fields)


def kernel_line(position: int, line: Line, persistent: bool = True) -> Kernel:
    made = softmax_kernel(persistent)
    return replace(made, body=(*made.body[:position], line, *made.body[position + 1 :]))


KERNELS = {
    "the phases do not cover the body": kernel(phases=(Phase(0, 2, True), Phase(3, 5, True), Phase(5, 7, True))),
    "the arguments are not the buffers": kernel(arguments=("y", "z")),
    "writes are not the buffers": kernel(writes=("x",)),
    "v0 is gone": kernel(persistent=False),
    "v1 is used before its reduction has ended": kernel(phases=(Phase(0, 5, True), Phase(5, 7, True))),
    "v3 has many values": kernel(phases=(Phase(0, 2, True), Phase(2, 5, True), Phase(5, 7, False))),
    "a reduction outside of a reduced phase": kernel(
        body=(Constant(1.0, "float32"), Reduce("max", 0, "float32"), *softmax_kernel().body[2:]), arguments=("y",),
        phases=(Phase(0, 2, False), Phase(2, 7, True)),
    ),
    "a reduced phase without reduction loops": kernel(reduction=(), body=(Load("x", 0, (8,), "float32"), Store("y", 0, (8,), 0, "float32")),
                                                      phases=(Phase(0, 2, True),)),
    "depends on a reduction loop outside of a reduced phase": kernel(phases=(Phase(0, 2, False), Phase(2, 5, True), Phase(5, 7, True)),
                                                                     body=(softmax_kernel().body[0], Apply("exp", (0,), "float32"), *softmax_kernel().body[2:])),
    "two iterations store to one element of y": kernel_line(6, Store("y", 0, (8, 0), 5, "float32")),
    "y is read where another iteration may write": kernel(body=(Load("y", 7, (8, -1), "float32"), *softmax_kernel().body[1:]), arguments=("y",)),
    "no op": kernel_line(3, Apply("frobnicate", (2,), "float32")),
}  # fmt: skip


@pytest.mark.parametrize("message", KERNELS)
def test_a_fault_in_a_kernel_is_named(message):
    with pytest.raises(CompileError) as caught:
        verify_kernel(KERNELS[message], BUFFERS)
    assert caught.value.stage == "fusion"
    assert message in caught.value.message


def program(**fields: object) -> Program:
    return replace(softmax_program(), **fields)


PROGRAMS = {
    "y has no memory": program(allocations=((),)),
    "x is read before it is written": program(graph=replace(softmax_program().graph, inputs=(None,))),
    "result 0: y is read before it is written": program(frees=(("y",),)),
    "is no earlier value": program(steps=(kernel_line(3, Apply("exp", (6,), "float32")),)),
}


@pytest.mark.parametrize("message", PROGRAMS)
def test_a_fault_in_a_program_is_named(message):
    with pytest.raises(CompileError) as caught:
        verify_program(PROGRAMS[message])
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("strides", "sizes", "expected"),
    [((8, 1), (4, 8), True), ((1, 4), (4, 8), True), ((7, 1), (4, 8), False), ((0,), (1,), True), ((0,), (2,), False), ((-1,), (5,), True),
     ((2, 3), (2, 2), True), ((2, 3), (4, 3), False), ((3, 2), (0, 5), True)],
)  # fmt: skip
def test_stores_are_injective_exactly_when_no_two_points_share_an_address(strides, sizes, expected):
    points = [[]]
    for size in sizes:
        points = [[*point, k] for point in points for k in range(size)]
    addresses = [sum(s * k for s, k in zip(strides, point, strict=True)) for point in points]
    assert (len(set(addresses)) == len(addresses)) == expected
    assert injective(strides, sizes) == expected
