"""Where AOTAutograd's joint graph is cut into forward and backward when Inductor compiles."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol
from unittest.mock import patch

from torch.fx import GraphModule

RELIES_ON = (
    "torch._inductor.compile_fx.partition_fn",
    "torch._inductor.compile_fx.min_cut_rematerialization_partition",
)


class Partitioned(Protocol):
    """Told about the cut: first ``joint`` as AOTAutograd traced it, then ``cut``."""

    def joint(self, gm: GraphModule) -> None: ...

    def cut(self, forward: GraphModule, backward: GraphModule, forward_outputs: int) -> None: ...


@contextmanager
def watching_partition(told: Partitioned) -> Iterator[None]:
    """Tells of the partition that happens inside; the innermost calls for subgraphs are not told of."""
    from torch._inductor import compile_fx

    own: Callable[..., Any] = compile_fx.partition_fn
    depth = 0

    def partition(gm: GraphModule, inputs: Any, **kwargs: Any) -> Any:  # noqa: ANN401  # Inductor's own function
        nonlocal depth
        if depth == 0:
            told.joint(gm)
        depth += 1
        try:
            forward, backward = own(gm, inputs, **kwargs)
        finally:
            depth -= 1
        if depth == 0:
            told.cut(forward, backward, int(kwargs.get("num_fwd_outputs", 0)))
        return forward, backward

    with patch.object(compile_fx, "partition_fn", partition):
        yield
