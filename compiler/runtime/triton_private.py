"""Everything that is taken from Triton beyond its documented interface, for Triton 3.6 to 3.9; its test states what is relied on.
Kernel text comes in; the result of each stage of Triton's compiler goes out as soon as it exists."""

from __future__ import annotations

import inspect
import linecache
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from compiler.codegen.sources import KernelSource
from compiler.target import Target

TYPE_NAMES = {
    "float64": "fp64",
    "float32": "fp32",
    "float16": "fp16",
    "bfloat16": "bf16",
    "int64": "i64",
    "int32": "i32",
    "int16": "i16",
    "int8": "i8",
    "uint8": "u8",
    "bool": "i1",
}


def file_name(source: KernelSource) -> str:
    """The file that Triton is told the kernel stands in."""
    return f"/fuselab/{source.name}.py"


def tool(name: str) -> Path:
    """A tool that Triton's wheel carries: ``nvdisasm``, ``cuobjdump``, ``ptxas``."""
    import triton

    return Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / name


def load_kernel(source: KernelSource) -> Any:  # noqa: ANN401  # Triton's JITFunction has no public name
    """The kernel as a function of Triton."""
    name = file_name(source)
    linecache.cache[name] = (len(source.text), None, source.text.splitlines(keepends=True), name)
    namespace: dict[str, Any] = {"__name__": f"fuselab_{source.name}"}
    exec(compile(source.text, name, "exec"), namespace)
    return namespace[source.name]


def gpu_target(target: Target) -> Any:  # noqa: ANN401
    from triton.backends.compiler import GPUTarget

    arch: int | str = target.name if target.kind == "hip" else target.capability
    return GPUTarget(target.kind, arch, target.warp)


@lru_cache(maxsize=16)
def _backend(target: Target) -> Any:  # noqa: ANN401
    from triton.compiler.compiler import make_backend

    return make_backend(gpu_target(target))


def ast_source(source: KernelSource) -> Any:  # noqa: ANN401
    """Signature and attributes as a launch on tensors of PyTorch gives them: every pointer is a multiple of 16 bytes."""
    from triton.compiler import ASTSource

    pointers = {name: f"*{TYPE_NAMES[dtype]}" for name, dtype in zip(source.parameters, source.dtypes, strict=True)}
    return ASTSource(
        fn=load_kernel(source),
        signature={
            **pointers,
            **dict.fromkeys((name for name, _ in source.sizes), "i64" if source.wide else "i32"),
            **{name: "constexpr" for name, _ in source.constants},
        },
        constexprs=dict(source.constants),
        attrs={(place,): [["tt.divisibility", 16]] for place in range(len(pointers))},
    )


def compile_stages(source: KernelSource, target: Target) -> Iterator[tuple[str, str | bytes, dict[str, Any]]]:
    """(name, product, metadata so far) for ttir, ttgir, llir, ptx and cubin, or amdgcn and hsaco, each as soon as it exists."""
    given = {"num_warps": source.warps, "num_stages": source.stages, "enable_fp_fusion": False}
    yield from program_stages(source.name, ast_source(source), given, target)  # nothing is parsed before the first stage is asked for


def inductor_program(tuner: Any, constants: Mapping[str, Any]) -> Any:  # noqa: ANN401  # Inductor's CachingAutotuner
    """A kernel of Inductor's with the constants of one configuration, as Inductor hands it to Triton."""
    from triton.compiler import ASTSource

    meta = tuner.triton_meta
    known = {**meta.get("constants", {}), **constants}
    signature = {**meta["signature"], **dict.fromkeys(constants, "constexpr")}
    given = {name: kind for name, kind in signature.items() if name in tuner.fn.arg_names}
    attributes = {place: value for each in meta["configs"] for place, value in dict(each).items()}
    return ASTSource(fn=tuner.fn, signature=given, constexprs=known, attrs=attributes)


def program_stages(
    name: str,
    program: Any,  # noqa: ANN401
    given: Mapping[str, Any],
    target: Target,
) -> Iterator[tuple[str, str | bytes, dict[str, Any]]]:
    """As ``compile_stages``, for a program of Triton's (an ASTSource) under these options."""
    from triton._C.libtriton import ir

    backend, machine = _backend(target), gpu_target(target)
    options = backend.parse_options(dict(given))
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    available = {
        "target": machine,
        "options": options,
        "codegen_fns": backend.get_codegen_implementation(options),
        "module_map": backend.get_module_map(),
        "context": context,
    }
    wanted = inspect.signature(program.make_ir).parameters
    module = program.make_ir(**{name: available[name] for name in wanted})
    stages: dict[str, Any] = {}
    backend.add_stages(stages, options, program.language)
    metadata: dict[str, Any] = {"hash": name, "target": machine, **vars(options)}
    for stage, run in stages.items():
        module = run(module, metadata)
        yield stage, module if isinstance(module, bytes) else str(module), metadata


def correct_interpreter() -> None:
    """Makes Triton's interpreter round float32 to bfloat16 to the nearest even number, as GPUs do; by itself it cuts the bits off."""
    import numpy as np
    import triton.language as tl
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    before = InterpreterBuilder.cast_impl

    def cast_impl(self: object, value: Any, wanted: Any) -> Any:  # noqa: ANN401
        source, dtype = value.dtype.scalar, wanted.scalar
        if dtype == tl.bfloat16 and source == tl.float32:
            bits = np.ascontiguousarray(value.data, dtype=np.float32).view(np.uint32)
            rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
            nan = (bits & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
            return TensorHandle(np.where(nan, np.uint32(0x7FC0), rounded).astype(np.uint16), dtype)
        if source == tl.bfloat16 and dtype == tl.float32:
            return TensorHandle((np.ascontiguousarray(value.data).astype(np.uint32) << np.uint32(16)).view(np.float32), dtype)
        if tl.bfloat16 in (source, dtype) and source != dtype:
            return cast_impl(self, cast_impl(self, value, tl.float32), wanted)
        return before(self, value, wanted)

    def create_fp_to_fp(self: object, value: Any, wanted: Any, rounding: object) -> Any:  # noqa: ANN401
        return cast_impl(self, value, wanted)

    InterpreterBuilder.cast_impl = cast_impl
    InterpreterBuilder.create_fp_to_fp = create_fp_to_fp
