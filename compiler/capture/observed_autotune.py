"""The ``autotune`` stage of the real Inductor: between what it chose, what it measured, and what it took by default."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

from compiler.capture.places import Places
from compiler.observe.inductor_autotune import Choice, Configuration, Selection, TuneLog, failed
from compiler.observe.retarget import ByDefault
from compiler.recorder import Draft
from compiler.trace import Decision, Kernel, Scalar

NOTHING = "Inductor had no choice to make here: no operation has more than one library or template that could do it."


Tuned = Mapping[str, Sequence[Configuration]]
"""The configurations of the kernels that have run, by the kernel's name."""


def describe_autotune(
    draft: Draft, log: TuneLog, kernels: Sequence[Kernel], places: Places, undecided: Sequence[ByDefault], tuned: Tuned
) -> None:
    """Fills in the stage. ``undecided``: what the device would have decided by measuring, if it were here."""
    draft.origins = places.origins
    for number, selection in enumerate(log.selections, 1):
        draft.decisions += [_decision(selection, choice, number, places) for choice in _ordered(selection)]
    selected = {selection.operation for selection in log.selections}
    draft.decisions += [_by_default(told) for told in undecided if told.subject not in selected]
    number = len(log.selections)
    for kernel in {kernel.name: kernel for kernel in kernels if kernel.kind == "triton"}.values():
        number += 1
        draft.decisions += [_configured(kernel, one, number) for one in tuned.get(kernel.name, ())] or [_heuristic(kernel)]
    draft.kernels = [_with_facts(kernel, tuned) for kernel in kernels] if tuned else []
    if not draft.decisions:
        draft.section("Choices", NOTHING)
    measured = sum(selection.measured for selection in log.selections)
    draft.facts |= {"selections": len(log.selections), "measured": measured, "by_default": len(log.selections) - measured}


def _by_default(told: ByDefault) -> Decision:
    return Decision(
        subject=told.subject[:400],
        verdict="chosen",
        rule="by_default",
        reason=f"{told.reason[:1].upper()}{told.reason[1:]}."[:4_000],
        numbers={"candidates": told.candidates},
    )


def _ordered(selection: Selection) -> list[Choice]:
    return sorted(selection.choices, key=lambda choice: (not choice.chosen, choice.millis is None, choice.millis or 0.0))


def _decision(selection: Selection, choice: Choice, number: int, places: Places) -> Decision:
    numbers: dict[str, Scalar] = {}
    if choice.millis is not None and not failed(choice):
        numbers["ms"] = round(choice.millis, 6)
    numbers["kind"] = choice.kind
    verdict: Literal["chosen", "lost", "refused", "noted"] = "chosen" if choice.chosen else "refused" if failed(choice) else "lost"
    verdict = "noted" if verdict == "lost" and choice.millis is None else verdict
    return Decision(
        subject=f"{selection.operation}: {choice.name}"[:400],
        verdict=verdict,
        rule="autotune" if selection.measured else "only_choice" if len(selection.choices) == 1 else "by_default",
        reason=_reason(selection, choice)[:4_000],
        numbers=numbers,
        round=number,
        origins=places.marks(selection.origins),
    )


def _reason(selection: Selection, choice: Choice) -> str:
    of = f"for {', '.join(selection.inputs)}" if selection.inputs else "for no inputs"
    detail = f" {choice.description}." if choice.description else ""
    if failed(choice):
        return f"It failed when Inductor tried it {of}.{detail}"
    if choice.chosen and selection.measured:
        measured = sum(other.millis is not None for other in selection.choices)
        return f"The fastest of {measured} that Inductor measured {of}.{detail}"
    if choice.chosen and len(selection.choices) == 1:
        return f"The only one that this configuration allows {of}; nothing was measured.{detail}"
    if choice.chosen:
        return f"Taken by default {of}: none of the {len(selection.choices)} candidates was measured.{detail}"
    if choice.millis is None:
        return f"Not measured {of}.{detail}"
    return f"Measured {of}, and another was faster.{detail}"


def _configured(kernel: Kernel, one: Configuration, number: int) -> Decision:
    numbers = {
        "ms": one.millis,
        "warps": one.warps,
        "stages": one.stages,
        "registers": one.registers,
        "spills": one.spills,
        "shared": one.shared,
    }
    works = one.millis is None or math.isfinite(one.millis)
    said = "Its only configuration: nothing to measure." if one.millis is None else "Measured at the kernel's first call"
    said += "" if one.millis is None else ", and the fastest." if one.chosen else ", and another was faster." if works else ": it failed."
    return Decision(
        subject=f"{kernel.name}: {one.text}"[:400],
        verdict="chosen" if one.chosen else "lost" if works else "refused",
        rule="triton_config",
        reason=said,
        numbers={name: value for name, value in numbers.items() if isinstance(value, int) or (isinstance(value, float) and works)},
        round=number,
        origins=kernel.origins,
    )


def _with_facts(kernel: Kernel, tuned: Tuned) -> Kernel:
    chosen = next((one for one in tuned.get(kernel.name, ()) if one.chosen), None)
    if chosen is None:
        return kernel
    known = {
        "warps": chosen.warps,
        "stages": chosen.stages,
        "registers": chosen.registers,
        "spills": chosen.spills,
        "shared": chosen.shared,
    }
    facts = {name: value for name, value in known.items() if value is not None}
    return kernel.model_copy(update={"facts": {**kernel.facts, "configuration": chosen.text[:400], **facts}})


def _heuristic(kernel: Kernel) -> Decision:
    """Which configurations a Triton kernel may run with is known when it is built; the fastest is found at its first call."""
    facts = kernel.facts
    shown = ", ".join(f"{name} {facts[name]}" for name in ("heuristic", "size_hints", "reduction_hint", "warps", "stages") if name in facts)
    return Decision(
        subject=kernel.name,
        verdict="noted",
        rule="triton_heuristics",
        reason=f"The configurations of this kernel follow from its heuristic: {shown or 'unknown'}."[:4_000],
        numbers={name: facts[name] for name in ("heuristic", "size_hints", "reduction_hint", "warps", "stages") if name in facts},
        origins=kernel.origins,
    )
