"""A GPU that is described but not here: while ``answering`` is open, what Inductor and Triton ask of the device is answered for a target.

The only place that puts such answers into torch. Nothing happens at import, and everything is put back afterwards.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import types
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from compiler.target import REPORTED, Target

DEVICE = torch.device("cuda", 0)
CUDA_VERSION, HIP_VERSION = "13.0", "7.0.51831"
"""What torch.version says where the installed torch was built without them."""

_GUARDS = "_ZN3c104impl26device_guard_impl_registryE"
_CUDA, _GUARD_TYPES = 1, 21  # the place of CUDA in c10::DeviceType, and how many types there are

_HOOKS = "_ZN2at6detail12getCUDAHooksEv"
_IS_BUILT, _HAS_CONTEXT, _HOOKS_SIZE = 2, 4, 60  # places in the virtual table, after the two destructors; its length

MEMORIES = (
    "torch._inductor.fx_passes.fuse_attention._warn_tf32_disabled",
    "torch._inductor.compile_fx._warn_tf32_disabled",
    "torch._inductor.kernel.mm._is_sm7x_or_older_gpu",
    "torch._inductor.runtime.hints.DeviceProperties.create",
    "torch._inductor.utils.get_backend_num_stages",
    "torch._inductor.utils.get_device_tflops",
    "torch._inductor.utils.get_gpu_dram_gbps",
    "torch._inductor.utils.get_gpu_type",
    "torch._inductor.utils.get_max_num_sms",
    "torch._inductor.utils.is_big_gpu",
    "torch._inductor.utils.using_b200",
    "torch._inductor.utils._rocm_native_device_arch_name",
    "torch._inductor.utils.use_decompose_k_choice",
    "torch._inductor.codegen.triton.TritonOverrides._setup_libdevice_routing",
    "torch.utils._triton._device_supports_tma",
    "torch.utils._triton.has_datacenter_blackwell_tma_device",
    "torch.utils._triton.has_triton",
    "torch.utils._triton.has_triton_experimental_host_tma",
    "torch.utils._triton.has_triton_stable_tma_api",
    "torch.utils._triton.has_triton_tensor_descriptor_host_tma",
    "torch.utils._triton.has_triton_tma",
    "torch.utils._triton.has_triton_tma_device",
    "torch.utils._triton.triton_backend",
    "torch.utils._triton.triton_hash_with_backend",
)
"""Functions that remember what they found out about the device; some exist in some versions only. They forget it at both ends."""

RELIES_ON = (
    "torch._C._accelerator_getDeviceIndex",
    "torch._C._conv_determine_backend_memory_format",
    "torch._C._ensureCUDADeviceGuardSet",
    "torch._C._select_conv_backend",
    "torch._dynamo.device_interface.CudaInterface.Worker",
    "torch._dynamo.device_interface.device_interfaces",
    "torch._dynamo.device_interface.get_interface_for_device",
    "torch._inductor.fx_passes.joint_graph.lazy_init",
    "torch._inductor.fx_passes.joint_graph.pass_patterns",
    "torch._inductor.fx_passes.post_grad.lazy_init",
    "torch._inductor.fx_passes.post_grad.pass_patterns",
    "torch._inductor.graph.GraphLowering._compile_to_module_lines",
    "torch._inductor.pattern_matcher.init_once_fakemode",
    "torch._inductor.runtime.triton_helpers.set_driver_to_gpu",
    "torch._prims_common.suggest_memory_format",
    "torch._subclasses.fake_tensor.FakeTensorMode.cache_clear",
    "torch._subclasses.fake_tensor.init_gpu_context",
    "torch.optim.optimizer._get_foreach_kernels_supported_devices",
)


def properties(target: Target) -> types.SimpleNamespace:
    """What ``torch.cuda.get_device_properties`` says on such a machine."""
    said = REPORTED[target.name]
    return types.SimpleNamespace(
        name=said.model,
        major=said.major,
        minor=said.minor,
        multi_processor_count=target.multiprocessors,
        total_memory=said.memory,
        warp_size=target.warp,
        max_threads_per_multi_processor=target.threads_per_multiprocessor,
        max_threads_per_block=1024,
        regs_per_multiprocessor=said.registers,
        shared_memory_per_block=said.shared_per_block,
        shared_memory_per_block_optin=target.shared_per_block,
        shared_memory_per_multiprocessor=target.shared_per_multiprocessor,
        L2_cache_size=said.l2,
        gcnArchName=said.arch,
        is_integrated=0,
    )


@contextmanager
def answering(target: Target) -> Iterator[None]:
    """Every question about the device is answered for the target, although no GPU, or another, may be here."""
    from torch._dynamo import device_interface

    device_interface.get_interface_for_device("cpu")  # the registry fills itself on first use
    with ExitStack() as stack:
        stack.enter_context(_guard_of_nothing())
        stack.enter_context(_accelerator())
        for owner, answers in _answers(target):
            for name, answer in answers.items():
                if hasattr(owner, name):  # versions differ; what does not exist is not asked
                    stack.enter_context(patch.object(owner, name, answer))
        stack.enter_context(patch.object(torch._C, "_cuda_cudaCachingAllocator_is_enabled", lambda: True, create=True))
        interface = device_interface.CudaInterface
        stack.enter_context(patch.dict(device_interface.device_interfaces, {"cuda": interface, "cuda:0": interface}))
        stack.enter_context(_driver(target))
        forget()
        stack.callback(forget)
        yield


@contextmanager
def optimisers_as_on_gpu() -> Iterator[None]:
    """Inside, PyTorch's optimisers update parameters of the CPU as they would on a GPU: all of a group at once, through foreach ops."""
    from torch.optim import optimizer

    usual = optimizer._get_foreach_kernels_supported_devices()
    with patch.object(optimizer, "_get_foreach_kernels_supported_devices", lambda: [*usual, "cpu"]):
        yield


def forget() -> None:
    """Whatever torch remembers of the device, or has derived from it, is asked for again."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    for name in MEMORIES:
        function = find(name)
        if hasattr(function, "cache_clear"):
            function.cache_clear()
    FakeTensorMode.cache_clear()


def find(dotted: str) -> Any:  # noqa: ANN401  # a function of torch, or None
    """What stands under a dotted name, None if there is nothing."""
    parts = dotted.split(".")
    for split in range(len(parts), 0, -1):
        try:
            value: Any = importlib.import_module(".".join(parts[:split]))
        except ImportError:
            continue
        return functools.reduce(lambda owner, name: getattr(owner, name, None), parts[split:], value)
    return None


def _answers(target: Target) -> Iterator[tuple[Any, dict[str, Any]]]:
    """(owner, name -> answer) for every place that is asked about the device."""
    from torch._dynamo.device_interface import CudaInterface

    facts = properties(target)
    pair, arch = (facts.major, facts.minor), facts.gcnArchName.partition(":")[0]
    state = torch.zeros(16, dtype=torch.uint8)
    first: Callable[..., int] = lambda *_, **__: 0  # noqa: E731  # an answer, as those below
    true, nothing = (lambda *_, **__: True), (lambda *_, **__: None)
    counted: dict[str, Callable[..., Any]] = {
        "is_available": true,
        "device_count": lambda: 1,
        "current_device": first,
        "synchronize": nothing,
    }
    counted |= {"get_device_properties": lambda *_, **__: facts, "is_bf16_supported": true, "memory_allocated": first}
    yield torch.cuda, {
        **counted, "get_device_capability": lambda *_: pair, "get_device_name": lambda *_: facts.name,
        "get_rng_state": lambda *_: state, "set_rng_state": nothing, "is_tf32_supported": lambda: target.kind == "cuda",
        "_exchange_device": first, "_maybe_exchange_device": first, "set_device": nothing, "is_initialized": true, "_lazy_init": nothing,
    }  # fmt: skip
    interface: dict[str, Callable[..., Any]] = {
        **counted, "get_compute_capability": lambda *_: arch if target.kind == "hip" else target.capability,
        "is_triton_capable": true, "raise_if_triton_unavailable": nothing, "get_raw_stream": first,
        "exchange_device": first, "maybe_exchange_device": first, "set_device": nothing,
    }  # fmt: skip
    yield CudaInterface, static(interface)
    worker: dict[str, Callable[..., Any]] = {"get_device_properties": lambda *_: facts, "current_device": first, "set_device": nothing}
    yield CudaInterface.Worker, static(worker)
    cuda, hip = (None, torch.version.hip or HIP_VERSION) if target.kind == "hip" else (torch.version.cuda or CUDA_VERSION, None)
    yield torch.version, {"cuda": cuda, "hip": hip}
    yield torch._C, {"_ensureCUDADeviceGuardSet": nothing, "_accelerator_getDeviceIndex": first}
    yield find("torch._inductor.runtime.triton_helpers"), {"set_driver_to_gpu": nothing}
    yield find("torch._subclasses.fake_tensor"), {"init_gpu_context": nothing}


def static(functions: dict[str, Callable[..., Any]]) -> dict[str, Any]:
    return {name: staticmethod(function) for name, function in functions.items()}


@contextmanager
def _guard_of_nothing() -> Iterator[None]:
    """C++ asks for a guard of the device before it indexes a fake tensor: PyTorch's own that does nothing stands in for CUDA's."""
    guards, idle = _guards(), _idle_guard()
    before = guards[_CUDA]
    guards[_CUDA] = ctypes.addressof(idle)
    try:
        yield
    finally:
        guards[_CUDA] = before


def _guards() -> Any:  # noqa: ANN401  # an array of ctypes
    """C++'s registry: a pointer for each type of device."""
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
    return (ctypes.c_void_p * _GUARD_TYPES).in_dll(library, _GUARDS)


@functools.cache
def _idle_guard() -> ctypes.c_void_p:
    """A guard of CUDA that does nothing: an object without data, so the pointer to its virtual table is all of it.

    PyTorch registers one where the guard in CUDA's place knows no device. So one of another type stands there for a moment.
    """
    guards = _guards()
    before = guards[_CUDA]
    table = ctypes.c_void_p.from_address(before).value if before else None
    for other in [pointer for place, pointer in enumerate(guards) if pointer and place != _CUDA]:
        guards[_CUDA] = other
        torch._C._ensureCUDADeviceGuardSet()
        if guards[_CUDA] != other:
            break
    made = ctypes.c_void_p.from_address(guards[_CUDA]).value
    if made != table:  # else PyTorch had one already, and has freed it for the new one
        guards[_CUDA] = before
    return ctypes.c_void_p(made)


@contextmanager
def _accelerator() -> Iterator[None]:
    """The backward of a tensor on a device asks C++ whether torch was built for such devices, and whether they are in use.

    The hooks of CUDA get a copy of their virtual table, in which ``isBuilt`` says yes and ``hasPrimaryContext`` no.
    """
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
    hooks = library[_HOOKS]
    hooks.restype = ctypes.c_void_p
    table = ctypes.c_void_p.from_address(hooks())
    before = table.value or 0
    copied = (ctypes.c_void_p * (2 + _HOOKS_SIZE)).from_buffer_copy(ctypes.string_at(before - 16, 8 * (2 + _HOOKS_SIZE)))
    says_yes = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p)(lambda _: True)
    says_no = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_int8)(lambda *_: False)
    copied[2 + _IS_BUILT] = ctypes.cast(says_yes, ctypes.c_void_p).value
    copied[2 + _HAS_CONTEXT] = ctypes.cast(says_no, ctypes.c_void_p).value
    table.value = ctypes.addressof(copied) + 16
    try:
        yield
    finally:
        table.value = before


@contextmanager
def _driver(target: Target) -> Iterator[None]:
    """Triton's driver answers for the target."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.backends.driver import DriverBase

    facts = {
        "max_shared_mem": target.shared_per_block, "multiprocessor_count": target.multiprocessors, "max_num_regs": 65536,
        "warpSize": target.warp, "sm_clock_rate": 0, "mem_clock_rate": 0, "mem_bus_width": 0,
    }  # fmt: skip
    arch: int | str = target.name if target.kind == "hip" else target.capability
    machine = GPUTarget(target.kind, arch, target.warp)
    answers: dict[str, Any] = {
        "__init__": lambda self: setattr(self, "utils", types.SimpleNamespace(get_device_properties=lambda _: facts)),
        "is_active": classmethod(lambda _: True),
        "get_current_target": lambda _: machine,
        "get_active_torch_device": lambda _: DEVICE,
        "get_current_device": lambda _: 0,
        "get_current_stream": lambda _, __=None: 0,
        "get_device_interface": lambda _: torch.cuda,
    }
    empty = {name: (lambda _, *__: None) for name in getattr(DriverBase, "__abstractmethods__", ()) if name not in answers}
    config = triton.runtime.driver
    before = dict(vars(config))
    config.set_active(type("AbsentDriver", (DriverBase,), {**empty, **answers})())
    try:
        yield
    finally:
        vars(config).clear()
        vars(config).update(before)
