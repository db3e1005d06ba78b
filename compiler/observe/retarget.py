"""The real Inductor for a GPU that is not here: Dynamo's graph on CPU tensors comes in, the same graph on fake tensors of that GPU goes out, and
Inductor's code generation ends with the text of the output code."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torch.fx import GraphModule

from compiler.target import Target


class Generated(BaseException):
    """Raised by ``GraphLowering.compile_to_module`` once the output code exists: to load it would take the GPU. ``code`` is the text."""

    def __init__(self, code: str) -> None:
        super().__init__("the output code exists")
        self.code = code


@contextlib.contextmanager
def retargeted(target: Target, folder: str | None = None) -> Iterator[None]:
    """Inductor generates code for the target: the device interface, torch.cuda, torch.version and Triton's driver answer for it.

    ``folder`` is where the guard of absent devices is built, or found, for a torch without CUDA; None: the process's cache folder.
    """
    raise NotImplementedError
    yield


def on_target(gm: GraphModule, inputs: Sequence[Any], target: Target) -> tuple[GraphModule, list[Any]]:
    """Dynamo's graph and its inputs as they would be on the target: a copy, with fake CUDA tensors of the same fake mode.

    Sizes, strides, symbols and ``requires_grad`` stay; devices in arguments and metadata change. Call it inside ``retargeted``.
    """
    raise NotImplementedError


def stopped(inner: Callable[..., Any], *args: Any, **kwargs: Any) -> Callable[..., Any]:
    """``compile_fx_inner`` (or what stands in its place) that ends with the output code: gives a callable that refuses to run.

    In ``inner_compile=`` of ``compile_fx``: ``with watching(sighting): compiled = stopped(compile_fx_inner, graph, examples, **given)``.
    """
    with contextlib.suppress(Generated):
        return inner(*args, **kwargs)  # type: ignore[no-any-return]  # an empty graph has no code and needs no GPU
    return absent


def absent(*_: object) -> Any:  # noqa: ANN401
    raise RuntimeError("this code was generated for a GPU that is not here")
