"""The ``autotune`` stage of the real Inductor: between what it chose, what it measured, and what it took by default."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from compiler.capture.places import Places
from compiler.observe.inductor_autotune import Choice, Selection, TuneLog, failed
from compiler.recorder import Draft
from compiler.trace import Decision, Kernel, Scalar

NOTHING = "Inductor had no choice to make here: no operation has more than one library or template that could do it."


def describe_autotune(draft: Draft, log: TuneLog, kernels: Sequence[Kernel], places: Places) -> None:
    """Fills in the stage."""
    draft.origins = places.origins
    for number, selection in enumerate(log.selections, 1):
        draft.decisions += [_decision(selection, choice, number, places) for choice in _ordered(selection)]
    draft.decisions += [_heuristic(kernel) for kernel in kernels if kernel.kind == "triton"]
    if not draft.decisions:
        draft.section("Choices", NOTHING)
    measured = sum(selection.measured for selection in log.selections)
    draft.facts |= {"selections": len(log.selections), "measured": measured, "by_default": len(log.selections) - measured}


def _ordered(selection: Selection) -> list[Choice]:
    return sorted(selection.choices, key=lambda choice: (not choice.chosen, choice.millis is None, choice.millis or 0.0))


def _decision(selection: Selection, choice: Choice, number: int, places: Places) -> Decision:
    numbers: dict[str, Scalar] = {}
    if choice.millis is not None and not failed(choice):
        numbers["ms"] = round(choice.millis, 6)
    numbers["kind"] = choice.kind
    verdict: Literal["chosen", "lost", "refused"] = "chosen" if choice.chosen else "refused" if failed(choice) else "lost"
    return Decision(
        subject=f"{selection.operation}: {choice.name}"[:400],
        verdict=verdict,
        rule="autotune" if selection.measured else "only_choice" if len(selection.choices) == 1 else "default",
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
        return f"The fastest of {len(selection.choices)} that Inductor measured {of}.{detail}"
    if choice.chosen and len(selection.choices) == 1:
        return f"The only one that this configuration allows {of}; nothing was measured.{detail}"
    if choice.chosen:
        return f"Taken without measuring {of}: the first of {len(selection.choices)}.{detail}"
    if choice.millis is None:
        return f"Not measured {of}.{detail}"
    return f"Measured {of}, and another was faster.{detail}"


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
