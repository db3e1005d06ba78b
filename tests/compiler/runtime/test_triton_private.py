"""What ``triton_private`` relies on in Triton. If one of these fails after an upgrade, that module is the only one to change."""

from __future__ import annotations

import inspect

import pytest

from compiler.codegen import generate
from compiler.runtime.triton_private import ast_source, compile_stages, gpu_target, load_kernel, tool
from compiler.target import TARGETS
from tests.compiler.codegen.cases import broadcast_add


def kernel(target: str = "sm_90"):
    return generate(broadcast_add().program("cuda"), TARGETS[target]).kernels[0]


def test_the_wheel_carries_the_tools() -> None:
    for name in ("nvdisasm", "cuobjdump", "ptxas"):
        assert tool(name).exists()


def test_targets_are_described_by_backend_architecture_and_warp_size() -> None:
    found = gpu_target(TARGETS["sm_90"])
    assert (found.backend, found.arch, found.warp_size) == ("cuda", 90, 32)
    found = gpu_target(TARGETS["gfx942"])
    assert (found.backend, found.arch, found.warp_size) == ("hip", "gfx942", 64)


def test_a_kernel_needs_no_file_of_its_own() -> None:
    """Triton reads the source through ``inspect`` and so through ``linecache``."""
    function = load_kernel(kernel())
    assert "tl.store" in inspect.getsource(function.fn)


def test_sources_take_signature_constants_and_attributes() -> None:
    source = ast_source(kernel())
    assert list(source.signature.values()) == ["*fp32", "*fp32", "*fp32", "constexpr"]
    assert {"options", "context"} <= set(inspect.signature(source.make_ir).parameters)


@pytest.mark.parametrize(
    ("target", "names"), [("sm_90", ["ttir", "ttgir", "llir", "ptx", "cubin"]), ("gfx942", ["ttir", "ttgir", "llir", "amdgcn", "hsaco"])]
)
def test_stages_and_their_order(target: str, names: list[str]) -> None:
    products = list(compile_stages(kernel(target), TARGETS[target]))
    assert [name for name, _, _ in products] == names
    assert isinstance(products[-1][1], bytes)
    assert products[-1][2]["shared"] == 0


def test_products_are_contracted_nowhere() -> None:
    """``enable_fp_fusion=False`` reaches LLVM and ptxas: no fused multiply-add in a kernel of one product and one sum."""
    import torch

    from tests.compiler.codegen.cases import rounding

    case = rounding(torch.bfloat16)
    for name, product, _ in compile_stages(generate(case.program("cuda"), TARGETS["sm_90"]).kernels[0], TARGETS["sm_90"]):
        if name == "ptx":
            assert "fma.rn" not in str(product)
