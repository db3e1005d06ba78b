"""The ``numerics`` stage: compiled results against eager and a float64 reference; for an absent GPU through Triton's interpreter."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch.fx import GraphModule
from torch.utils._python_dispatch import TorchDispatchMode

from compiler.capture.aot import CompiledPart
from compiler.capture.eager import no_leaves, tensors_in
from compiler.capture.gradients import backward_of, with_gradient
from compiler.capture.joint import byte_count
from compiler.capture.region import Region
from compiler.capture.running import copied
from compiler.recorder import Draft
from compiler.runtime.compare import (
    INTERPRETER_SECONDS,
    Difference,
    TooSlow,
    UnknownOp,
    compare,
    in_float64,
    interpreted,
    too_large_to_interpret,
)
from compiler.trace import Decision, Part, Scalar

UNWRITTEN = "Not compared: the region returns memory that was never written, and what stands there is chance."
UNFILLED = {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"}
RANDOM = "The region draws random numbers, and eager draws others: shapes and dtypes were compared, values were not."


@dataclass(slots=True)
class Numerics:
    """Compares one part of a region. ``fresh`` gives new copies of the inputs of the region's first call."""

    region: Region
    fresh: Callable[[], list[Any]]
    part: Part

    @property
    def made(self) -> CompiledPart:
        made: CompiledPart = self.region.compiler.parts[self.part]
        return made

    def against_eager(self, draft: Draft) -> None:
        """Runs eager, compiled code and the reference on the same values, here."""
        functions = (self.region.compiled, self.region.graph)
        inputs = [no_leaves(self.fresh()), no_leaves(self.fresh())]
        ours, eager = (self._results(function, values) for function, values in zip(functions, inputs, strict=True))
        if not eager:
            draft.skip("No result of the region leads back to an input that requires gradients.")
            return
        try:
            reference = self._results(self.region.graph, no_leaves([in_float64(value) for value in self.fresh()]))
            draft.facts["reference"] = "float64"
        except Exception as error:  # a graph that names its dtypes cannot be run in another; the page says so
            reference = []
            draft.facts["reference"] = f"none: the region does not run in float64 ({type(error).__name__})"
        names = self._names(len(eager))
        changed = self.region.compiler.mutated if self.part != "backward" else ()
        for place in changed:
            ours.append(inputs[0][place])
            eager.append(inputs[1][place])
            names.append(f"input {place}, written in place")
        reference = reference if len(reference) == len(eager) else [None] * len(eager)
        chance: set[int] = set()
        if allocates(self.region.graph):

            def again() -> list[Any]:
                given = no_leaves(self.fresh())
                return [*self._results(self.region.graph, given), *(given[place] for place in changed)]

            chance = never_written(again)
        self._report(draft, names, ours, eager, reference, chance)

    def interpreted(self, draft: Draft) -> None:
        """Runs the wrapper's Triton kernels on the CPU, against the ATen graph."""
        made = self.made
        inputs = self._part_inputs()
        if inputs is None:
            draft.skip("No result of the region leads back to an input that requires gradients.")
            return
        if any(not isinstance(value, torch.Tensor) for value in made.compiled.lowered.constants.values()):
            draft.skip("Not run: the graph calls graphs of its own, which the wrapper's text does not contain.")
            return
        nodes = tensors_in([node.meta.get("val") for node in made.gm.graph.nodes if node.op != "output"])
        if too_large_to_interpret([byte_count(value) // value.element_size() for value in nodes]):
            draft.skip("Not run: too large for Triton's interpreter, which is slow. Smaller tensors are compared with eager.")
            return
        eager = list(made.gm(*[copied(value) for value in inputs]))
        try:
            ours = interpreted(made.compiled.wrapper_text, [copied(value) for value in inputs], made.compiled.lowered.constants)
        except TooSlow:
            draft.skip(f"Not compared: Triton's interpreter, which is slow, did not finish within {INTERPRETER_SECONDS:.0f} seconds.")
            return
        except UnknownOp as error:
            draft.skip(f"Not run: {error} is the program's own op, which the process of Triton's interpreter does not have.")
            return
        draft.facts["ran_on"] = "Triton's interpreter on the CPU"
        names = [f"result {place}" for place in range(len(eager))]
        try:
            reference = list(made.gm(*[in_float64(copied(value)) for value in inputs]))
        except Exception:  # as above: a reference is a help, not a need
            reference = [None] * len(eager)
        chance = never_written(lambda: list(made.gm(*[copied(value) for value in inputs]))) if allocates(made.gm) else set()
        self._report(draft, names, ours, eager, reference, chance)

    def _results(self, function: Callable[..., Any], inputs: list[Any]) -> list[Any]:
        """What a function returns, or for a backward part the gradients of its inputs."""
        if self.part != "backward":
            return list(function(*inputs))
        gradients = backward_of(function, lambda: [with_gradient(value) for value in inputs])
        return list(gradients.prepare()()) if gradients else []

    def _part_inputs(self) -> list[Any] | None:
        """What the part is called with when the region is run on the kept inputs."""
        made = self.made
        made.keep, made.last = True, None
        self._results(self.region.compiled, self.fresh())
        made.keep = False
        return made.last

    def _names(self, count: int) -> list[str]:
        if self.part == "backward":
            names = [
                name
                for name, value in zip(self.region.compiler.readable, self.fresh(), strict=False)
                if getattr(value, "requires_grad", False)
            ]
            return [f"gradient of {name}" for name in names][:count]
        return [f"result {place}" for place in range(count)]

    def _report(
        self,
        draft: Draft,
        names: Sequence[str],
        ours: Sequence[Any],
        eager: Sequence[Any],
        reference: Sequence[Any],
        chance: Container[int],
    ) -> None:
        """``chance``: the places of results that are memory which was never written."""
        draws = self.made.random or any(part.random for part in self.region.compiler.parts.values())
        equal = len(ours) == len(eager)
        for place, (name, own, other, exact) in enumerate(zip(names, ours, eager, reference, strict=False)):
            if own is None and other is None:
                continue
            why = UNWRITTEN if place in chance else RANDOM if draws else ""
            found = _only_shapes(name, own, other, why) if why else compare(name, own, other, exact)
            equal = equal and found.equal
            draft.decisions.append(_decision(found, "unwritten" if place in chance else "random" if draws else ""))
        draft.facts |= {"equal_to_eager": equal, "results": len(draft.decisions), "random": draws}
        if unwritten := sum(decision.rule == "unwritten" for decision in draft.decisions):
            draft.facts["never_written"] = unwritten


class _Filled(TorchDispatchMode):  # type: ignore[misc]  # torch has no types here
    """Memory that is allocated inside without values holds ``number``."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number

    def __torch_dispatch__(self, func: Any, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:  # noqa: ANN401
        result = func(*args, **(kwargs or {}))
        return result.fill_(self.number) if func.overloadpacket.__name__ in UNFILLED else result


def allocates(gm: GraphModule) -> bool:
    """Whether the graph itself makes memory without values."""
    return any("empty" in str(getattr(node.target, "__name__", node.target)) for node in gm.graph.nodes if node.op.startswith("call"))


def never_written(run: Callable[[], list[Any]]) -> set[int]:
    """The places of results that change with what unwritten memory holds: the region is run with two fillings of it."""
    try:
        made = []
        for number in (0, 1):
            with _Filled(number):
                made.append(run())
    except Exception:  # an op that no mode may look at, or memory that serves as an index; then everything is compared
        return set()
    pairs = enumerate(zip(*made, strict=False))
    return {place for place, (a, b) in pairs if isinstance(a, torch.Tensor) and a.layout == torch.strided and not compare("", a, b).equal}


def _only_shapes(name: str, ours: object, eager: object, why: str) -> Difference:
    if isinstance(ours, torch.Tensor) and isinstance(eager, torch.Tensor):
        equal = ours.shape == eager.shape and ours.dtype == eager.dtype
        return Difference(name, equal, why if equal else f"{ours.dtype} {tuple(ours.shape)} is not {eager.dtype} {tuple(eager.shape)}.")
    return Difference(name, True, why)


def _decision(found: Difference, uncompared: str) -> Decision:
    """``uncompared``: the rule by which values were not compared, "" if they were."""
    numbers: dict[str, Scalar] = {
        "max_abs_error": found.max_abs,
        "max_rel_error": found.max_rel,
        "eager_from_float64": found.eager_from_reference,
        "ours_from_float64": found.ours_from_reference,
        "tolerance": found.tolerance,
    }
    verdict: Literal["refused", "noted", "kept"] = "refused" if not found.equal else "noted" if uncompared else "kept"
    rule = "differs" if not found.equal else uncompared or "within_tolerance"
    return Decision(
        subject=found.name[:400],
        verdict=verdict,
        rule=rule,
        reason=found.why[:4_000],
        numbers={key: value for key, value in numbers.items() if value is not None},
    )
