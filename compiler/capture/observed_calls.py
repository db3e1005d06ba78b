"""Why Inductor calls something for an op instead of writing loops: a scheduler node comes in, a decision as our own lowering's goes out."""

from __future__ import annotations

from dataclasses import replace

from compiler.capture.places import Places
from compiler.lowering.libraries import FALLBACK, SORT, Library, library_for
from compiler.observe.inductor_loops import View, called_name, has_lowering, is_fallback, is_own_kernel
from compiler.target import Target
from compiler.trace import Decision

ONE_DNN = Library("library", "Inductor gives this to oneDNN's tuned kernels.", "oneDNN", "oneDNN", "oneDNN")
ONE_MKL = Library("library", "Inductor gives this to oneMKL's tuned kernels.", "oneMKL", "oneMKL", "oneMKL")
OWN_KERNEL = Library("own_kernel", "The script launches a Triton kernel of its own.", "Triton", "Triton", "Triton")
OTHER_CALL = Library("call", "Inductor has no loops for this: the wrapper calls it.", "ATen", "ATen", "ATen")
NO_LOWERING = "Inductor has no lowering for this op: {} is called."
NOT_LOWERED = "Inductor has a lowering for this op, but not for these operands or this device: {} is called."


def op_of(view: View) -> str:
    """``aten.linalg_qr.default``, ``extern_kernels.mm``"""
    return called_name(view.ir).removeprefix("torch.ops.")


def library_of(view: View) -> Library:
    """What answers a call of Inductor's, and why it is called; the rules are named as those of our own lowering."""
    op = op_of(view)
    space = op.partition(".")[0]
    if is_own_kernel(view):
        return OWN_KERNEL
    if space in ("mkldnn", "onednn", "mkl"):
        return ONE_MKL if space == "mkl" else ONE_DNN
    known = library_for(op) if space in ("aten", "extern_kernels") else FALLBACK
    if not is_fallback(view):
        return known if known is not FALLBACK else OTHER_CALL
    if known not in (FALLBACK, SORT):
        return known
    lowered = has_lowering(view.ir)
    reason = (NOT_LOWERED if lowered else NO_LOWERING).format("PyTorch's own kernel" if space == "aten" else "the op's own code")
    return replace(known, rule="unsupported" if lowered and known is FALLBACK else known.rule, reason=reason)


def call_decision(view: View, places: Places, target: Target) -> Decision:
    library = library_of(view)
    return Decision(
        subject=(", ".join(view.origins) or view.name)[:400],
        verdict="extern",
        rule=library.rule,
        reason=library.reason,
        numbers={"op": op_of(view)[:400], "library": library.name(target)},
        origins=places.marks(view.origins)[:40],
    )
