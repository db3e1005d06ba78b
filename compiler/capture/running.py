"""What an exception of a compiled function means: the program's own error, which eager raises too, or a fault of the compiler's."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter

from compiler.blame import OURS, PYTORCH, blamed, placed_at
from compiler.errors import CompileError
from compiler.runtime.launch import LoadedProgram

DESCRIPTION_CHECKS = ("laid_out", "expect")
EAGERS = "fuselab_eagers_error"
"""The attribute of an exception under which eager's error is kept; it may be that exception."""
MISDESCRIBED = "The op's fake kernel disagrees with what the op returns: mend that kernel (see torch.library.opcheck)."


def telling_faults(compiled: Callable[..., Any], graph: GraphModule) -> Callable[..., Any]:
    """The compiled function of one of Dynamo's graphs; what it raises is eager's error where eager raises one, or else a CompileError."""

    def call(*inputs: Any) -> Any:  # noqa: ANN401  # any values
        try:
            return compiled(*inputs)
        except Exception as error:
            if not isinstance(error, CompileError) and is_own(error):
                raise
            own = asked_of_eager(graph, inputs)
            if own is not None:
                setattr(own, EAGERS, own)
                raise own from error
            if isinstance(error, CompileError):
                raise
            raise blamed("wrapper", error) from error

    return call


def with_eagers_place(compiled: Callable[..., Any], graph: GraphModule) -> Callable[..., Any]:
    """The function that another compiler made of a graph. What it raises leaves as it is, and has eager's error with it where eager
    raises one too, since that one knows its op and line.
    """

    def call(*inputs: Any) -> Any:  # noqa: ANN401  # any values
        try:
            return compiled(*inputs)
        except Exception as error:
            if not isinstance(error, CompileError | MemoryError | torch.OutOfMemoryError):
                setattr(error, EAGERS, asked_of_eager(graph, inputs))
            raise

    return call


def eagers_error(error: BaseException) -> Exception | None:
    """What eager raised where a compiled function raised this, None if it raised nothing or was not asked."""
    found: Exception | None = getattr(error, EAGERS, None)
    return found


def laid_to_line(error: Exception, loaded: LoadedProgram | None, gm: GraphModule) -> CompileError:
    """The exception with the op and the line that the wrapper's line came from. ``gm``: the graph that the program was made of."""
    made = blamed("wrapper", error)
    if traceback.extract_tb(error.__traceback__)[-1].name in DESCRIPTION_CHECKS:
        made.hint = MISDESCRIBED
    if loaded is None:
        return made
    name, marks, origins = loaded.namespace["__file__"], loaded.sources.wrapper.marks, loaded.program.graph.origins
    for row in traceback.extract_tb(error.__traceback__):
        places = marks[row.lineno - 1] if row.filename == name and row.lineno and row.lineno <= len(marks) else ()
        if row.name == "call" and places:
            origin = origins[places[0]]
            stack = next((node.meta.get("stack_trace") for node in gm.graph.nodes if node.name in origin.nodes), None)
            place = placed_at(stack or "")
            made.op, made.line, made.column, made.file = origin.op, place.line, place.column, place.file
    return made


def is_own(error: BaseException) -> bool:
    """Whether code of the visitor's raised it, such as a custom op's, or memory ran out."""
    rows = traceback.extract_tb(error.__traceback__)
    last = rows[-1].filename if rows else ""
    no_memory = isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in str(error)
    return no_memory or not last.startswith((PYTORCH, OURS, "<"))


def asked_of_eager(graph: GraphModule, inputs: Sequence[Any]) -> Exception | None:
    """What eager raises for these inputs, None if it raises nothing or cannot be asked."""
    try:
        copies = [copied(value) for value in inputs]
    except Exception:  # a kind of tensor that cannot be copied so
        return None
    # Called itself, the module would print the exception and its code; the interpreter would write into the message.
    runner = Interpreter(graph)
    runner.extra_traceback = False
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        try:
            runner.run(*copies)
        except Exception as error:  # whatever the program raises
            return error
    return None


def copied(value: Any) -> Any:  # noqa: ANN401  # any value that a graph can take
    """A tensor of its own with the same values and layout; other values as they are."""
    if not isinstance(value, torch.Tensor):
        return value
    plain = value.detach()
    if plain.layout != torch.strided or plain.is_contiguous() or plain.is_conj() or plain.is_neg() or not plain.numel():
        return plain.clone()
    extent = 1 + sum((size - 1) * stride for size, stride in zip(plain.shape, plain.stride(), strict=True))
    memory = plain.as_strided((extent,), (1,), plain.storage_offset()).clone()
    return memory.as_strided(plain.shape, plain.stride())
