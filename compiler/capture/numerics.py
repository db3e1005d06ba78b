"""The ``numerics`` stage: compiled results against eager and a float64 reference; for an absent GPU through Triton's interpreter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

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
        self._report(draft, names, ours, eager, reference)

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
        self._report(draft, names, ours, eager, reference)

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

    def _report(self, draft: Draft, names: Sequence[str], ours: Sequence[Any], eager: Sequence[Any], reference: Sequence[Any]) -> None:
        draws = self.made.random or any(part.random for part in self.region.compiler.parts.values())
        equal = len(ours) == len(eager)
        for name, own, other, exact in zip(names, ours, eager, reference, strict=False):
            if own is None and other is None:
                continue
            found = _only_shapes(name, own, other) if draws else compare(name, own, other, exact)
            equal = equal and found.equal
            draft.decisions.append(_decision(found, random=draws))
        draft.facts |= {"equal_to_eager": equal, "results": len(draft.decisions), "random": draws}


def _only_shapes(name: str, ours: object, eager: object) -> Difference:
    if isinstance(ours, torch.Tensor) and isinstance(eager, torch.Tensor):
        equal = ours.shape == eager.shape and ours.dtype == eager.dtype
        return Difference(name, equal, RANDOM if equal else f"{ours.dtype} {tuple(ours.shape)} is not {eager.dtype} {tuple(eager.shape)}.")
    return Difference(name, True, RANDOM)


def _decision(found: Difference, *, random: bool) -> Decision:
    numbers: dict[str, Scalar] = {
        "max_abs_error": found.max_abs,
        "max_rel_error": found.max_rel,
        "eager_from_float64": found.eager_from_reference,
        "ours_from_float64": found.ours_from_reference,
        "tolerance": found.tolerance,
    }
    verdict: Literal["refused", "noted", "kept"] = "refused" if not found.equal else "noted" if random else "kept"
    rule = "differs" if not found.equal else "random" if random else "within_tolerance"
    return Decision(
        subject=found.name[:400],
        verdict=verdict,
        rule=rule,
        reason=found.why[:4_000],
        numbers={key: value for key, value in numbers.items() if value is not None},
    )
