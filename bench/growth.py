"""How compile time grows with the graph: ``python -m bench.growth``, ours and Inductor's, from the ATen graph to the text of the code.

Chains (each op reads the one before), trees (sums of pairs of inputs, to one result) and chains with a reduction at every fifth op, of
100, 1,000 and 5,000 ops. Ours: lowering, scheduling, code generation. Inductor: the same three, by ``GraphLowering.run`` and ``codegen``.
Neither runs g++. What takes longer than ``--seconds`` is stopped and shown so. A ratio to n log n of about 1 or below, from one size to the
next, means that time grows no faster than that.
"""

from __future__ import annotations

import argparse
import gc
import math
import multiprocessing
import time
from collections.abc import Callable

import torch
from torch.fx import GraphModule

from compiler.codegen import generate
from compiler.lowering import lower
from compiler.options import Options
from compiler.schedule import schedule
from compiler.target import find_target

SIZES = (100, 1_000, 5_000)
WIDTH = 64


def chain(count: int) -> tuple[Callable[..., object], list[torch.Tensor]]:
    def function(x: torch.Tensor) -> torch.Tensor:
        for number in range(count):
            x = x.sin() if number % 2 else x * 1.01
        return x

    return function, [torch.empty(WIDTH, WIDTH)]


def reducing(count: int) -> tuple[Callable[..., object], list[torch.Tensor]]:
    def function(x: torch.Tensor) -> torch.Tensor:
        for number in range(count // 5):
            mean = x.sum(1, keepdim=True)
            x = ((x - mean) * 1.01).sin().tanh() if number % 2 else ((x + mean) * 0.99).cos().sigmoid()
        return x

    return function, [torch.empty(WIDTH, WIDTH)]


def tree(count: int) -> tuple[Callable[..., object], list[torch.Tensor]]:
    def function(*leaves: torch.Tensor) -> torch.Tensor:
        level = list(leaves)
        while len(level) > 1:
            level = [level[at] + level[at + 1] for at in range(0, len(level) - 1, 2)] + level[len(level) - len(level) % 2 :]
        return level[0]

    return function, [torch.empty(WIDTH) for _ in range(count + 1)]


FAMILIES = {"chain": chain, "chain with reductions": reducing, "tree": tree}


def traced(function: Callable[..., object], inputs: list[torch.Tensor]) -> tuple[GraphModule, list[torch.Tensor]]:
    """The ATen graph on fake tensors, and these."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    mode = FakeTensorMode()
    fakes = [mode.from_tensor(value) for value in inputs]
    with mode:
        return make_fx(function, tracing_mode="fake")(*fakes), fakes


def ours(gm: GraphModule) -> tuple[float, int]:
    """Seconds, and kernels."""
    target = find_target("cpu")
    assert target is not None
    begun = time.process_time()
    lowered = lower(gm, {}, target, retarget=False)
    program, _ = schedule(lowered.graph, Options(), target)
    generate(program, target, lowered.constants)
    return time.process_time() - begun, sum(hasattr(step, "body") for step in program.steps)


def inductors(gm: GraphModule, fakes: list[torch.Tensor]) -> tuple[float, int]:
    """Seconds, and kernels."""
    from torch._inductor import config, metrics
    from torch._inductor.debug import DebugContext
    from torch._inductor.graph import GraphLowering
    from torch._inductor.virtualized import V

    metrics.reset()
    begun = time.process_time()
    with config.patch(compile_threads=1), V.set_fake_mode(fakes[0].fake_mode):  # type: ignore[attr-defined]
        graph = GraphLowering(gm, example_inputs=fakes)
        with V.set_graph_handler(graph), DebugContext():
            graph.run(*fakes)
            graph.codegen()
    return time.process_time() - begun, metrics.generated_kernel_count


def measured(family: str, count: int, most: float) -> list[tuple[float, int] | None]:
    """Ours, then Inductor's, in a process of its own: seconds and kernels, or None for what took longer than ``most`` seconds."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)

    def child() -> None:
        gm, fakes = traced(*FAMILIES[family](count))
        gc.collect()
        sender.send("traced")
        sender.send(ours(gm))
        sender.send(inductors(gm, fakes))

    process = context.Process(target=child)
    process.start()
    receiver.recv()
    found: list[tuple[float, int] | None] = []
    while len(found) < 2 and receiver.poll(most):
        found.append(receiver.recv())
    process.kill()
    process.join()
    return found + [None] * (2 - len(found))


def cell(result: tuple[float, int] | None, most: float) -> str:
    return f"over {most:.0f} | " if result is None else f"{result[0]:.2f} | {result[1]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--families", nargs="+", choices=list(FAMILIES), default=list(FAMILIES))
    parser.add_argument("--seconds", type=float, default=300, help="of wall time, for either compiler and graph")
    given = parser.parse_args()
    inductors(*traced(*chain(10)))  # both have filled what they fill once
    ours(traced(*chain(10))[0])
    print("| graph | ops | ours, s | kernels | Inductor, s | kernels | ours / Inductor | ours, to n log n | Inductor, to n log n |")
    print("| --- |" + " ---: |" * 8)
    for family in given.families:
        before: tuple[int, list[tuple[float, int] | None]] | None = None
        for count in given.sizes:
            both = measured(family, count, given.seconds)
            growth = ["", ""]
            if before is not None:
                expected = count * math.log(count) / (before[0] * math.log(before[0]))
                pairs = zip(both, before[1], strict=True)
                growth = [f"{now[0] / past[0] / expected:.2f}" if now and past else "" for now, past in pairs]
            before = count, both
            ratio = f"{both[0][0] / both[1][0]:.2f}" if both[0] and both[1] else ""
            cells = " | ".join(cell(result, given.seconds) for result in both)
            print(f"| {family} | {count:,} | {cells} | {ratio} | {' | '.join(growth)} |", flush=True)


if __name__ == "__main__":
    main()
