"""Loop nests and kernels written by hand, on which interpreter and verifier are tried."""

from compiler.ir import (
    Allocation,
    Apply,
    Buffer,
    Constant,
    Graph,
    Kernel,
    Load,
    Nest,
    Phase,
    Program,
    Reduce,
    Ref,
    Store,
    Tiling,
)  # fmt: skip


def buffer(name: str, *shape: int, dtype: str = "float32", strides: tuple[int, ...] | None = None) -> Buffer:
    if strides is None:
        made = [1]
        for size in reversed(shape[1:]):
            made.insert(0, made[0] * size)
        strides = tuple(made[: len(shape)])
    return Buffer(name, dtype, shape, strides, "cpu")


def whole(made: Buffer) -> Ref:
    return Ref(made.name, made.shape, made.strides)


def graph(buffers: tuple[Buffer, ...], inputs: tuple[str, ...], steps: tuple, *outputs: str) -> Graph:
    named = {made.name: made for made in buffers}
    return Graph(named, inputs, (), steps, tuple(whole(named[name]) for name in outputs), ())


def sum_of_exponentials() -> Nest:
    """out[i] = sum of exp(x[i, r])."""
    body = (
        Load("x", 0, (8, 1), "float32"),
        Apply("exp", (0,), "float32"),
        Reduce("sum", 1, "float32"),
        Store("out", 0, (1, 0), 2, "float32"),
    )
    return Nest("total", "aten.sum.dim_IntList", (4,), (8,), body, 0)


def doubled() -> Nest:
    """y[i] = 2 * out[i]."""
    body = (Load("out", 0, (1,), "float32"), Constant(2.0, "float32"), Apply("mul", (0, 1), "float32"), Store("y", 0, (1,), 2, "float32"))
    return Nest("y", "aten.mul.Tensor", (4,), (), body, 0)


def two_steps() -> Graph:
    """y = 2 * exp(x).sum(1)."""
    return graph((buffer("x", 4, 8), buffer("out", 4), buffer("y", 4)), ("x",), (sum_of_exponentials(), doubled()), "y")


def softmax_kernel(persistent: bool = True) -> Kernel:
    """y = softmax(x, 1), in one kernel of three phases; without rows kept in registers each phase computes anew what it needs."""
    load = Load("x", 0, (8, 1), "float32")
    kept = (
        load, Reduce("max", 0, "float32"),
        Apply("sub", (0, 1), "float32"), Apply("exp", (2,), "float32"), Reduce("sum", 3, "float32"),
        Apply("truediv", (3, 4), "float32"), Store("y", 0, (8, 1), 5, "float32"),
    )  # fmt: skip
    anew = (
        load, Reduce("max", 0, "float32"),
        load, Apply("sub", (2, 1), "float32"), Apply("exp", (3,), "float32"), Reduce("sum", 4, "float32"),
        load, Apply("sub", (6, 1), "float32"), Apply("exp", (7,), "float32"), Apply("truediv", (8, 5), "float32"), Store("y", 0, (8, 1), 9, "float32"),
    )  # fmt: skip
    ends = (2, 5, 7) if persistent else (2, 6, 11)
    phases = tuple(Phase(start, stop, True) for start, stop in zip((0, *ends), ends, strict=False))
    body = kept if persistent else anew
    return Kernel("softmax", ("y",), (4,), (8,), persistent, phases, body, ("x", "y"), ("y",), Tiling(1, 8, 4), 256, 0)


def softmax_program() -> Program:
    made = graph((buffer("x", 4, 8), buffer("y", 4, 8)), ("x",), (), "y")
    return Program(made, (softmax_kernel(),), ((Allocation("y"),),), ((),), 128)
