"""Hand-built kernels with their inputs and what eager PyTorch says; each runs as C++ and through Triton's interpreter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from compiler.ir import Allocation, Apply, Buffer, Constant, Graph, Kernel, Load, Phase, Position, Program, Reduce, Ref, Store, Tiling
from compiler.trace import Origin


@dataclass(frozen=True)
class Case:
    """``expected`` computes the results with eager PyTorch in the way that the kernel states, ``exact`` if nothing may differ."""

    name: str
    kernel: Kernel
    inputs: dict[str, Tensor]
    outputs: dict[str, tuple[torch.dtype, tuple[int, ...]]]
    expected: Callable[..., tuple[Tensor, ...]]
    exact: bool = False

    def program(self, device: str = "cpu") -> Program:
        buffers = {}
        for name, tensor in self.inputs.items():
            buffers[name] = Buffer(name, str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), tensor.stride(), device)
        for name, (dtype, shape) in self.outputs.items():
            buffers[name] = Buffer(name, str(dtype).removeprefix("torch."), shape, contiguous(shape), device)
        results = tuple(Ref(name, buffers[name].shape, buffers[name].strides) for name in self.outputs)
        origins = tuple(Origin(line=number + 1, op=f"aten.op{number}") for number in range(40))
        graph = Graph(buffers, tuple(self.inputs), (), (), results, origins)
        allocations = tuple(Allocation(name) for name in self.outputs)
        return Program(graph, (self.kernel,), (allocations,), ((),), 0)

    def results(self) -> tuple[Tensor, ...]:
        return self.expected(*self.inputs.values())


def contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(1, size)
    return tuple(reversed(strides))


def kernel(name, loops, reduction, phases, body, arguments, writes, tiling, persistent=False) -> Kernel:
    numbered = tuple(replace(line, origin=number + 1) for number, line in enumerate(body))
    return Kernel(name, (name,), loops, reduction, persistent, tuple(phases), numbered, tuple(arguments), tuple(writes), tiling, 0, 0)


def pointwise(name, loops, body, arguments, writes, block=64) -> Kernel:
    return kernel(name, loops, (), [Phase(0, len(body), False)], body, arguments, writes, Tiling(block, 1, 1))


def seeded(*shape, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    if dtype.is_floating_point:
        return torch.randn(*shape, generator=generator).to(dtype)
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).bool()
    return torch.randint(-50 if dtype != torch.uint8 else 0, 50, shape, generator=generator).to(dtype)


def cast(value, dtype):
    return Apply("cast", (value,), dtype)


def broadcast_add() -> Case:
    a, b = seeded(7, 30).t(), seeded(7, seed=1)  # a: 30 x 7 with strides (1, 30)
    body = (
        Load("a", 0, (1, 30), "float32"),
        Load("b", 0, (0, 1), "float32"),
        Apply("add", (0, 1), "float32"),
        Store("out", 0, (7, 1), 2, "float32"),
    )
    return Case("broadcast_add", pointwise("k", (30, 7), body, ["a", "b", "out"], ["out"]), {"a": a, "b": b}, {"out": (torch.float32, (30, 7))},
                lambda a, b: (a + b,), True)  # fmt: skip


def transposed() -> Case:
    """Read across, written along, with a batch around and a bias: worth tiles of two axes on a GPU."""
    a, b = seeded(2, 70, 100).transpose(1, 2), seeded(70, seed=1)  # loops (2, 100, 70), a has strides (7000, 1, 100)
    s = (7000, 70, 1)
    body = (
        Load("a", 0, (7000, 1, 100), "float32"),
        Load("b", 0, (0, 0, 1), "float32"),
        Apply("add", (0, 1), "float32"),
        Store("out", 0, s, 2, "float32"),
    )
    return Case("transposed", pointwise("k", (2, 100, 70), body, ["a", "b", "out"], ["out"]), {"a": a, "b": b}, {"out": (torch.float32, (2, 100, 70))},
                lambda a, b: (a + b,), True)  # fmt: skip


def rounding(dtype: torch.dtype) -> Case:
    name = str(dtype).removeprefix("torch.")
    a, b = seeded(2, 5, 128, dtype=dtype), seeded(2, 5, 128, dtype=dtype, seed=1)
    a[0, 0, :5] = torch.tensor([float("inf"), float("nan"), 1e-40, -0.0, 60000.0]).to(dtype)
    s = (640, 128, 1)
    body = (
        Load("a", 0, s, name), cast(0, "float32"), Load("b", 0, s, name), cast(2, "float32"), Apply("mul", (1, 3), "float32"), cast(4, name), cast(5, "float32"),
        Apply("add", (6, 1), "float32"), cast(7, name), Store("out", 0, s, 8, name),
    )  # fmt: skip
    return Case(f"rounding_{name}", pointwise("k", (2, 5, 128), body, ["a", "b", "out"], ["out"], 128), {"a": a, "b": b},
                {"out": (dtype, (2, 5, 128))}, lambda a, b: (a * b + a,), True)  # fmt: skip


def shifted() -> Case:
    """A padded shift: out[i] = a[i - 3] where i >= 3, else 7."""
    body = (
        Position(0, (1,)), Constant(3, "int64"), Apply("ge", (0, 1), "bool"), Load("a", -3, (1,), "float32", mask=2, other=7.0),
        Store("out", 0, (1,), 3, "float32"),
    )  # fmt: skip
    return Case("shifted", pointwise("k", (100,), body, ["a", "out"], ["out"]), {"a": seeded(100)}, {"out": (torch.float32, (100,))},
                lambda a: (torch.cat([torch.full((3,), 7.0), a[:-3]]),), True)  # fmt: skip


def gather() -> Case:
    index = torch.tensor([3, -1, 0, 4, 2, 2, -5])
    body = (
        Load("index", 0, (1, 0), "int64"), Constant(0, "int64"), Apply("lt", (0, 1), "bool"), Constant(5, "int64"), Apply("add", (0, 3), "int64"),
        Apply("where", (2, 4, 0), "int64"), Load("table", 0, (0, 1), "float16", indirect=((5, 9),)), Store("out", 0, (9, 1), 6, "float16"),
    )  # fmt: skip
    return Case("gather", pointwise("k", (7, 9), body, ["index", "table", "out"], ["out"], 32), {"index": index, "table": seeded(5, 9, dtype=torch.float16)},
                {"out": (torch.float16, (7, 9))}, lambda index, table: (table[index],), True)  # fmt: skip


def mixed_types() -> Case:
    """Integers, bools and float64 in one kernel, two results."""
    body = (
        Load("a", 0, (1,), "int32"), Load("flag", 0, (1,), "bool"), cast(0, "float64"), Constant(0.1, "float64"), Apply("mul", (2, 3), "float64"),
        cast(1, "float64"), Apply("add", (4, 5), "float64"), Store("out", 0, (1,), 6, "float64"),
        cast(0, "bool"), Apply("logical_and", (8, 1), "bool"), Store("both", 0, (1,), 9, "bool"),
        Constant(2**40 + 1, "int64"), cast(0, "int64"), Apply("add", (12, 11), "int64"), Store("far", 0, (1,), 13, "int64"),
    )  # fmt: skip
    return Case("mixed_types", pointwise("k", (77,), body, ["a", "flag", "out", "both", "far"], ["out", "both", "far"]),
                {"a": seeded(77, dtype=torch.int32), "flag": seeded(77, dtype=torch.bool)},
                {"out": (torch.float64, (77,)), "both": (torch.bool, (77,)), "far": (torch.int64, (77,))},
                lambda a, flag: (a.double() * 0.1 + flag.double(), a.bool() & flag, a.long() + 2**40 + 1), True)  # fmt: skip


def scalars() -> Case:
    body = (Load("a", 0, (), "float32"), Constant(float("inf"), "float32"), Apply("lt", (0, 1), "bool"), Store("out", 0, (), 2, "bool"))
    return Case("scalars", pointwise("k", (), body, ["a", "out"], ["out"]), {"a": torch.tensor(3.0)}, {"out": (torch.bool, ())},
                lambda a: (a < float("inf"),), True)  # fmt: skip


def softmax(name: str, rows: int, columns: int, persistent: bool, tiling: Tiling, dtype=torch.bfloat16) -> Case:
    d = str(dtype).removeprefix("torch.")
    s = (columns, 1)
    x = seeded(rows, columns, dtype=dtype)
    if persistent:
        body = (
            Load("x", 0, s, d), cast(0, "float32"), Reduce("max", 1, "float32"), Apply("sub", (1, 2), "float32"), Apply("exp", (3,), "float32"),
            Reduce("sum", 4, "float32"), Apply("truediv", (4, 5), "float32"), cast(6, d), Store("y", 0, s, 7, d),
        )  # fmt: skip
        phases = [Phase(0, 3, True), Phase(3, 6, True), Phase(6, 9, True)]
    else:
        body = (
            Load("x", 0, s, d), cast(0, "float32"), Reduce("max", 1, "float32"),
            Load("x", 0, s, d), cast(3, "float32"), Apply("sub", (4, 2), "float32"), Apply("exp", (5,), "float32"), Reduce("sum", 6, "float32"),
            Load("x", 0, s, d), cast(8, "float32"), Apply("sub", (9, 2), "float32"), Apply("exp", (10,), "float32"), Apply("truediv", (11, 7), "float32"),
            cast(12, d), Store("y", 0, s, 13, d),
        )  # fmt: skip
        phases = [Phase(0, 3, True), Phase(3, 8, True), Phase(8, 15, True)]
    return Case(name, kernel("k", (rows,), (columns,), phases, body, ["x", "y"], ["y"], tiling, persistent), {"x": x}, {"y": (dtype, (rows, columns))},
                lambda x: (x.softmax(-1),))  # fmt: skip


def arg_extremum(op: str, block: int, width: int) -> Case:
    x = seeded(6, 50).round()  # many ties
    x[1, 20], x[1, 33] = float("nan"), float("nan")
    x[2] = float("-inf")
    x[3] = float("inf")
    body = (Load("x", 0, (50, 1), "float32"), Reduce(op, 0, "int64"), Store("out", 0, (1,), 1, "int64"))
    k = kernel("k", (6,), (50,), [Phase(0, 2, True), Phase(2, 3, False)], body, ["x", "out"], ["out"], Tiling(block, width, 1), width >= 50)
    return Case(f"{op}_{block}_{width}", k, {"x": x}, {"out": (torch.int64, (6,))}, lambda x: (getattr(x, op)(-1),), True)


def column_sums(width: int) -> Case:
    """A reduction across rows: neighbours in memory lie along the parallel loop. Sum, maximum and the position of the minimum."""
    x = seeded(90, 21)
    x[7, 3] = float("nan")
    s = (1, 21)
    body = (
        Load("x", 0, s, "float32"), Reduce("sum", 0, "float32"), Reduce("max", 0, "float32"), Reduce("argmin", 0, "int64"),
        Store("total", 0, (1, 0), 1, "float32"), Store("largest", 0, (1, 0), 2, "float32"), Store("lowest", 0, (1, 0), 3, "int64"),
    )  # fmt: skip
    k = kernel("k", (21,), (90,), [Phase(0, 4, True), Phase(4, 7, False)], body, ["x", "total", "largest", "lowest"], ["total", "largest", "lowest"],
               Tiling(16, width, 1))  # fmt: skip
    outputs = {"total": (torch.float32, (21,)), "largest": (torch.float32, (21,)), "lowest": (torch.int64, (21,))}
    return Case(f"column_sums_{width}", k, {"x": x}, outputs, lambda x: (x.sum(0), x.amax(0), x.argmin(0)))


def integers(width: int) -> Case:
    x, flags = seeded(5, 40, dtype=torch.int8), seeded(5, 40, dtype=torch.bool)
    flags[0], flags[1] = True, False
    body = (
        Load("x", 0, (40, 1), "int8"), cast(0, "int64"), Reduce("sum", 1, "int64"), Reduce("max", 0, "int8"), Reduce("min", 0, "int8"),
        Load("flags", 0, (40, 1), "bool"), Reduce("any", 5, "bool"), Reduce("all", 5, "bool"), Apply("cast", (0,), "int64"), Reduce("prod", 8, "int64"),
        Store("total", 0, (1, 0), 2, "int64"), Store("high", 0, (1, 0), 3, "int8"), Store("low", 0, (1, 0), 4, "int8"),
        Store("some", 0, (1, 0), 6, "bool"), Store("every", 0, (1, 0), 7, "bool"), Store("product", 0, (1, 0), 9, "int64"),
    )  # fmt: skip
    names = ["total", "high", "low", "some", "every", "product"]
    k = kernel("k", (5,), (40,), [Phase(0, 10, True), Phase(10, 16, False)], body, ["x", "flags", *names], names, Tiling(2, width, 1))
    types = (torch.int64, torch.int8, torch.int8, torch.bool, torch.bool, torch.int64)
    return Case(f"integers_{width}", k, {"x": x, "flags": flags}, {name: (dtype, (5,)) for name, dtype in zip(names, types, strict=True)},
                lambda x, flags: (x.sum(1), x.amax(1), x.amin(1), flags.any(1), flags.all(1), x.long().prod(1)), True)  # fmt: skip


def full_sum(width: int, size: int) -> Case:
    body = (Load("x", 0, (1,), "float32"), Reduce("sum", 0, "float32"), Constant(0.5, "float32"), Apply("mul", (1, 2), "float32"),
            Store("out", 0, (0,), 3, "float32"))  # fmt: skip
    k = kernel("k", (), (size,), [Phase(0, 2, True), Phase(2, 5, False)], body, ["x", "out"], ["out"], Tiling(1, width, 1))
    return Case(f"full_sum_{size}", k, {"x": seeded(size)}, {"out": (torch.float32, ())}, lambda x: (x.sum() * 0.5,))


def batched_norm(persistent: bool) -> Case:
    """Two parallel and two reduction loops, a transposed layout, a weight along the reduction, and a result beside the normalised rows."""
    x, w = seeded(3, 4, 6, 10).permute(0, 2, 1, 3), seeded(4, 10, seed=1)  # loops (3, 6), reduction (4, 10)
    s, o = (240, 10, 60, 1), (240, 40, 10, 1)
    first = (Load("x", 0, s, "float32"), Reduce("sum", 0, "float32"), Constant(0.025, "float32"), Apply("mul", (1, 2), "float32"),
             Store("mean", 0, (6, 1, 0, 0), 3, "float32"))  # fmt: skip
    again = () if persistent else (Load("x", 0, s, "float32"),)
    x_value = 0 if persistent else 5
    base = 5 + len(again)
    second = (*again, Apply("sub", (x_value, 3), "float32"), Load("w", 0, (0, 0, 10, 1), "float32"), Apply("mul", (base, base + 1), "float32"),
              Apply("exp", (base + 2,), "float32"), Store("out", 0, o, base + 3, "float32"))  # fmt: skip
    body = first + second
    phases = [Phase(0, 2, True), Phase(2, 5, False), Phase(5, len(body), True)]
    k = kernel(
        "k",
        (3, 6),
        (4, 10),
        phases,
        body,
        ["x", "mean", "w", "out"],
        ["mean", "out"],
        Tiling(2 if persistent else 1, 64 if persistent else 16, 1),
        persistent,
    )
    return Case(f"batched_norm_{'persistent' if persistent else 'looped'}", k, {"x": x, "w": w},
                {"mean": (torch.float32, (3, 6)), "out": (torch.float32, (3, 6, 4, 10))},
                lambda x, w: (x.sum((2, 3)) * 0.025, torch.exp((x - (x.sum((2, 3)) * 0.025)[:, :, None, None]) * w)))  # fmt: skip


def columns_normalised(rows: int = 33, columns: int = 50) -> Case:
    """Values of a whole column kept between phases, with SIMD along the parallel loop."""
    x = seeded(rows, columns)
    s = (1, columns)
    body = (
        Load("x", 0, s, "float32"), Apply("exp", (0,), "float32"), Reduce("sum", 1, "float32"), Constant(1.0, "float32"), Apply("add", (2, 3), "float32"),
        Apply("truediv", (1, 4), "float32"), Store("out", 0, s, 5, "float32"),
    )  # fmt: skip
    k = kernel(
        "k",
        (columns,),
        (rows,),
        [Phase(0, 3, True), Phase(3, 5, False), Phase(5, 7, True)],
        body,
        ["x", "out"],
        ["out"],
        Tiling(16, 64, 1),
        True,
    )
    return Case(
        f"columns_normalised_{rows}", k, {"x": x}, {"out": (torch.float32, (rows, columns))}, lambda x: (x.exp() / (x.exp().sum(0) + 1),)
    )


def empty_sum() -> Case:
    body = (Load("x", 0, (0, 1), "float32"), Reduce("sum", 0, "float32"), Store("out", 0, (1, 0), 1, "float32"))
    k = kernel("k", (4,), (0,), [Phase(0, 2, True), Phase(2, 3, False)], body, ["x", "out"], ["out"], Tiling(4, 1, 1))
    return Case("empty_sum", k, {"x": torch.empty(4, 0)}, {"out": (torch.float32, (4,))}, lambda x: (x.sum(1),), True)


def no_iterations() -> Case:
    body = (Load("x", 0, (3, 1), "float32"), Apply("neg", (0,), "float32"), Store("out", 0, (3, 1), 1, "float32"))
    return Case("no_iterations", pointwise("k", (0, 3), body, ["x", "out"], ["out"]), {"x": torch.empty(0, 3)}, {"out": (torch.float32, (0, 3))},
                lambda x: (-x,), True)  # fmt: skip


CASES = (
    broadcast_add(),
    transposed(), rounding(torch.bfloat16), rounding(torch.float16), shifted(), gather(), mixed_types(), scalars(),
    softmax("softmax_persistent", 5, 1000, True, Tiling(1, 1024, 4)), softmax("softmax_looped", 5, 1000, False, Tiling(2, 256, 4)),
    softmax("softmax_exact_blocks", 4, 256, True, Tiling(2, 256, 4), torch.float32),
    arg_extremum("argmax", 1, 64), arg_extremum("argmax", 4, 16), arg_extremum("argmin", 1, 16), arg_extremum("argmin", 4, 64),
    column_sums(128), column_sums(16), integers(64), integers(16), full_sum(256, 1000), full_sum(4096, 100_000),
    batched_norm(True), batched_norm(False), columns_normalised(), empty_sum(), no_iterations(),
)  # fmt: skip

LARGE = (
    softmax("softmax_few_long_rows", 3, 50_000, True, Tiling(1, 1, 1), torch.float32),  # threads share a row, which is too long for a stack
    softmax("softmax_many_rows", 200, 400, True, Tiling(1, 1, 1), torch.float16),
    columns_normalised(3000, 40),  # columns too long for a stack
    columns_normalised(9000, 300),  # sums in chunks
    full_sum(1, 3_000_000),
)
"""Sizes at which C++ uses threads, chunks and memory beyond the stack; too large for the interpreter."""
