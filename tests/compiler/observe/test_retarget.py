"""Inductor generates code for GPUs that are not here; what it says of them, and that nothing of it stays behind."""

import re

import pytest
import torch
from torch._inductor.graph import GraphLowering

from bench.retarget import ALL, GPU_TARGETS, collect, normal, without_device
from compiler.capture.inductor_kernels import assembled
from compiler.observe import absent_attention, absent_gpu, constants_on_cpu, retarget
from compiler.target import REPORTED, TARGETS
from tests.compiler.observe.test_torch_names import resolve

FEW = ("large softmax", "mlp_trained", "conv_bn_trained", "flash attention", "dropout_trained", "constants", "input_mutated", "dynamic")
RAISES_EAGERLY = {"index", "pooling"}  # eager checks what compiled code does not: the code exists before the program goes on eagerly


def codes(names, target):
    found = without_device(list(names), target)
    found.pop("versions")
    return found


@pytest.fixture(scope="module")
def few():
    """The output code of a few programs for each target."""
    return {target: codes(FEW, target) for target in GPU_TARGETS}


@pytest.fixture(scope="module")
def every():
    """The output code of all programs for one target."""
    return codes(ALL, "sm_90")


@pytest.mark.parametrize("name", ALL)
def test_a_program_gives_code_for_the_absent_gpu(every, name):
    found = every[name]
    assert not found["error"] or name in RAISES_EAGERLY, found["error"]
    for code in found["codes"]:
        assert "cpp_fused" not in code
        assert "device='cpu'" not in code


@pytest.mark.parametrize("target", GPU_TARGETS)
@pytest.mark.parametrize("name", FEW)
def test_code_says_the_facts_of_its_target(few, name, target):
    found = few[target][name]
    assert not found["error"], found["error"]
    facts = TARGETS[target]
    for code in found["codes"]:
        for said in re.findall(r"DeviceProperties\(([^)]*)\)", code):
            assert f"multi_processor_count={facts.multiprocessors}," in said
            assert f"warp_size={facts.warp}" in said
            assert f"major={REPORTED[target].major}," in said
            assert f"cc={target!r}" in said if facts.kind == "hip" else f"cc={facts.capability}" in said


@pytest.mark.parametrize("target", GPU_TARGETS)
def test_kernels_reach_machine_code(few, target):
    reached = [
        kernel for name in ("large softmax", "mlp_trained") for code in few[target][name]["codes"] for kernel in assembled(code, target)
    ]
    assert reached
    for name, levels, error in reached:
        assert not error, f"{name}: {error}"
        assert levels[-1].stage == "sass"
        assert levels[-1].facts["registers"] > 0


def test_patterns_are_those_of_the_gpu(few):
    assert "prepare_softmax_online" in few["sm_90"]["large softmax"]["codes"][0]
    calls = [re.findall(r"_scaled_dot_product_\w+?_attention(?:_backward)?\b", code) for code in few["sm_80"]["flash attention"]["codes"]]
    assert {call for found in calls for call in found} == {
        "_scaled_dot_product_flash_attention",
        "_scaled_dot_product_flash_attention_backward",
    }
    assert "_scaled_dot_product_cudnn_attention" in few["sm_90"]["flash attention"]["codes"][0]


def test_measured_choices_fall_to_a_default_and_are_told():
    said = []

    def backend(gm, inputs):
        settings = {"max_autotune": True, "max_autotune_gemm_backends": "ATEN,TRITON"}
        return retarget.compile_retargeted(gm, inputs, TARGETS["sm_90"], said.append, config_patches=settings)

    torch._dynamo.reset()
    torch.compile(lambda a, b: a @ b, backend=backend)(torch.ones(256, 256), torch.ones(256, 256))
    assert [each.subject for each in said] == ["mm"]
    assert said[0].candidates > 1


def test_nothing_stays_behind():
    from torch._dynamo.device_interface import CudaInterface
    from torch._inductor.fx_passes import joint_graph, post_grad

    def state():
        patterns = [len(held) for module in (joint_graph, post_grad) for found in module.pass_patterns for held in found.patterns.values()]
        guard = absent_gpu._guards()[1]
        return (
            torch.version.cuda, torch.cuda.is_available(), CudaInterface.is_available(), GraphLowering.compile_to_module,
            joint_graph.lazy_init, guard, patterns, torch._C._select_conv_backend, torch._C._only_lift_cpu_tensors(),
            torch.utils._triton.has_triton(), torch.ops.aten.scaled_dot_product_attention.default.py_kernels.copy(),
        )  # fmt: skip

    run = collect(["cat"], None)  # what Inductor sets up once for the CPU is no difference
    before = state()
    codes(["large softmax", "sdpa_causal_trained"], "gfx942")
    assert state() == before
    again = collect(["cat"], None)
    assert [normal(code) for code in again["cat"]["codes"]] == [normal(code) for code in run["cat"]["codes"]]


@pytest.mark.parametrize("module", [absent_gpu, absent_attention, constants_on_cpu, retarget], ids=lambda module: module.__name__)
def test_the_names_exist(module):
    for name in module.RELIES_ON:
        resolve(name)


def test_what_remembers_the_device_is_found():
    assert sum(absent_gpu.find(name) is not None for name in absent_gpu.MEMORIES) >= len(absent_gpu.MEMORIES) - 6


def test_an_optimiser_chooses_as_it_would_on_the_gpu():
    """PyTorch updates parameters on a GPU through foreach ops by default, and those on the CPU one by one."""
    inside = "adamw training"
    (*_, update) = codes([inside], "sm_90")[inside]["codes"]
    assert "aten._foreach_add" in update
    (*_, on_cpu) = collect([inside], None)[inside]["codes"]
    assert "aten._foreach" not in on_cpu
