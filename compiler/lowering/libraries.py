"""Which library an op that is no loop nest is handed to, and the sentence that says why."""

from __future__ import annotations

from dataclasses import dataclass

from compiler.target import Target


@dataclass(frozen=True, slots=True)
class Library:
    rule: str
    reason: str
    cpu: str
    cuda: str
    hip: str

    def name(self, target: Target) -> str:
        return {"cpu": self.cpu, "cuda": self.cuda, "hip": self.hip}[target.kind]


MATMUL = Library("matmul", "Matrix products go to the vendor's tuned library.", "oneMKL", "cuBLAS", "hipBLASLt")
CONVOLUTION = Library("convolution", "Convolutions go to the vendor's tuned library.", "oneDNN", "cuDNN", "MIOpen")
ATTENTION = Library(
    "attention", "Attention goes to PyTorch's fused attention kernels.", "ATen flash attention", "FlashAttention", "AOTriton"
)
SORT = Library("sort", "Sorting needs passes over the data that one loop nest cannot express.", "ATen", "CUB", "hipCUB")
ALLOCATION = Library("allocation", "Memory without values is made: nothing is computed.", "ATen", "ATen", "ATen")
FALLBACK = Library("fallback", "No lowering rule exists for this op: PyTorch's own kernel is called.", "ATen", "ATen", "ATen")

BY_PACKET: dict[str, Library] = {
    **dict.fromkeys(("mm", "bmm", "addmm", "baddbmm", "addmv", "mv", "dot", "addbmm", "_int_mm", "_scaled_mm", "linear", "matmul"), MATMUL),
    **dict.fromkeys(("convolution", "convolution_backward", "_convolution", "cudnn_convolution", "mkldnn_convolution"), CONVOLUTION),
    **dict.fromkeys(("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"), ALLOCATION),
    **dict.fromkeys(("sort", "topk", "argsort", "kthvalue", "median", "mode", "unique_consecutive", "_unique2", "msort"), SORT),
}


def library_for(op: str) -> Library:
    """The library for an overload such as ``aten.mm.default``."""
    packet = op.split(".")[1] if op.count(".") >= 1 else op
    if "attention" in packet:
        return ATTENTION
    return BY_PACKET.get(packet, FALLBACK)
