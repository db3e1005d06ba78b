"""Loop IR in, program out: nests are fused into kernels, put in order, and given memory."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from compiler.errors import CompileError
from compiler.ir import Buffer, Extern, Graph, Kernel, Program, Ref, Symbol
from compiler.options import Options
from compiler.schedule.fusion import fuse
from compiler.schedule.groups import Group
from compiler.schedule.kernels import build_kernel
from compiler.schedule.memory import plan_memory
from compiler.schedule.order import topological
from compiler.target import Target
from compiler.trace import Decision

__all__ = ["schedule"]


def schedule(graph: Graph, options: Options, target: Target, *, prefix: str = "kernel") -> tuple[Program, tuple[Decision, ...]]:
    """The program and the decisions of every fusion round. ``prefix`` begins the names of the kernels."""
    with uncollected():
        groups, decisions = fuse(graph, options.policy)
    ordered = in_order(groups)
    outside = readers_outside(graph, ordered)
    steps: list[Kernel | Extern] = []
    for group in ordered:
        if group.extern is not None:
            steps.append(group.extern)
            continue
        if group.numel == 0:
            steps += [empty(graph.buffers[name]) for name in sorted(group.writes) if graph.buffers[name].numel == 0]
            continue
        live = frozenset(name for name in group.writes if name in outside[group.id])
        if live:
            number = sum(isinstance(step, Kernel) for step in steps)
            steps.append(build_kernel(group, kernel_name(prefix, number, group), live, graph.buffers, target))
    allocations, frees, peak = plan_memory(graph, steps)
    return Program(graph, tuple(steps), allocations, frees, peak), decisions


@contextmanager
def uncollected() -> Iterator[None]:
    """Without searches for cyclic garbage, of which fusion makes none: among its many records they took half of its time."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def empty(buffer: Buffer) -> Extern:
    """The allocation of a buffer without elements, which no kernel writes."""
    kwargs = (("dtype", Symbol(f"torch.{buffer.dtype}")), ("device", Symbol(f"torch.device('{buffer.device}')")))
    args = (buffer.shape, buffer.strides)
    reason = "The tensor has no elements: only its shape exists."
    op = "aten.empty_strided.default"
    return Extern(buffer.name, op, f"torch.ops.{op}", args, kwargs, (buffer.name,), True, "ATen", "empty", reason, 0)


def kernel_name(prefix: str, number: int, group: Group) -> str:
    """``kernel_0_add_mul``: the number, and the first ops that the kernel computes."""
    ops = [member.nest.op.split(",")[0].split(".")[1] if "." in member.nest.op else member.nest.op for member in group.members]
    unique = list(dict.fromkeys("".join(c for c in op.strip("_") if c.isalnum() or c == "_") for op in ops))
    return "_".join([prefix, str(number), *unique[:4]])


def in_order(groups: tuple[Group, ...]) -> list[Group]:
    """The groups so that each comes after those whose results it needs; among free ones the earlier in the graph first."""
    by_id = {group.id: group for group in groups}
    writers: dict[str, set[int]] = {}
    for group in groups:
        for name in group.writes:
            writers.setdefault(name, set()).add(group.id)
    needs = {group.id: {writer for name in group.reads for writer in writers.get(name, ())} - {group.id} for group in groups}
    ordered = topological(needs, {group.id: group.first for group in groups})
    if len(ordered) != len(groups):
        raise CompileError("fusion", "fused kernels wait for each other", hint="this is a fault of the compiler; try the policy 'none'")
    return [by_id[group_id] for group_id in ordered]


def readers_outside(graph: Graph, groups: list[Group]) -> dict[int, set[str]]:
    """For each group the buffers of its own that other groups or the caller read."""
    readers: dict[str, set[int]] = {}
    for group in groups:
        for name in group.reads:
            readers.setdefault(name, set()).add(group.id)
    results = {output.buffer for output in graph.outputs if isinstance(output, Ref)}
    return {group.id: {name for name in group.writes if name in results or readers.get(name, set()) - {group.id}} for group in groups}
