"""A scheduled program as a Python module: ``call(inputs)`` allocates, launches and frees; it runs alone with torch and Triton or g++."""

from __future__ import annotations

import keyword
import re
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from compiler.codegen.cpp import may_fail
from compiler.codegen.cpp_prelude import FLAGS, LIBRARIES
from compiler.codegen.sources import CppUnit, KernelSource, WrapperSource
from compiler.codegen.triton_text import triton_helpers
from compiler.codegen.writer import Marked, Writer
from compiler.ir import Allocation, Argument, Buffer, Extern, Kernel, OpenNumber, Program, Ref, Symbol
from compiler.sizes import Binding, found
from compiler.target import Target

if TYPE_CHECKING:
    from torch import Tensor

PRINTED_ELEMENTS = 16
_TAKEN = frozenset({
    "torch", "triton", "tl", "libdevice", "aten", "device", "call", "inputs", "outputs", "view", "seen_as", "laid_out", "handed_on",
    "reuse", "example", "constants", "library", "build", "cpp_kernel", "checked", "ctypes", "os", "subprocess", "tempfile", "record", "inf",
    "nan", "_", "math", "sized_cpp_kernel",
})  # fmt: skip
_CUDA_DEVICE = re.compile(r"torch\.device\([^()]*cuda[^()]*\)|device\(type='cuda'[^()]*\)")

_VIEWS = '''
def view(tensor, shape, strides, offset=0):
    """A strided view that starts ``offset`` elements after the first element of the tensor."""
    return torch.as_strided(tensor, shape, strides, tensor.storage_offset() + offset)


def seen_as(tensor, dtype, shape, strides, offset=0):
    """The tensor's memory as elements of another dtype, which strides and offset count."""
    flat = torch.empty(0, dtype=dtype, device=tensor.device)
    start = tensor.storage_offset() * tensor.element_size() // flat.element_size()
    return flat.set_(tensor.untyped_storage(), start + offset, shape, strides)


def laid_out(tensor, shape, strides, dtype):
    """The tensor, copied if a library returned it with other strides than the program expects; no other shape or dtype will do."""
    if tensor.shape != shape or tensor.dtype != dtype:
        raise RuntimeError(f"the call gave {tuple(tensor.shape)} {tensor.dtype}, and its fake kernel promised {shape} {dtype}")
    if all(size == 1 or have == want for size, have, want in zip(shape, tensor.stride(), strides)):
        return tensor
    return torch.empty_strided(shape, strides, dtype=tensor.dtype, device=tensor.device).copy_(tensor)


def handed_on(tensor, shape, strides, dtype):
    """As ``laid_out``, of a tensor that only libraries and the caller read: where a library's own description of its result was wrong."""
    return tensor if tensor.shape != shape else laid_out(tensor, shape, strides, dtype)


def reuse(tensor, shape, strides, dtype):
    """A new tensor in the memory of one that is no longer needed."""
    return seen_as(tensor, dtype, shape, strides)
'''

_BUILD = '''
def build(source):
    """Compiles the C++ above into a shared library in a temporary folder."""
    folder = tempfile.mkdtemp(prefix="fuselab-")
    path = os.path.join(folder, "kernels.cpp")
    with open(path, "w") as file:
        file.write(source)
    library = os.path.join(folder, "kernels.so")
    subprocess.run(["g++", {flags}, path, "-o", library, {libraries}], check=True)
    return library


def cpp_kernel(name, arguments):
    """A function that passes the addresses of tensors to a function of the library."""
    function = getattr(library, name)
    function.argtypes, function.restype = [ctypes.c_void_p] * arguments, None
    return lambda *tensors: function(*[tensor.data_ptr() for tensor in tensors])


library = ctypes.CDLL(globals().get("fuselab_library") or build(SOURCE))
'''

_SIZED = '''
def sized_cpp_kernel(name, arguments, sizes):
    """The same for a function that is passed open sizes after the addresses of tensors."""
    function = getattr(library, name)
    function.argtypes, function.restype = [ctypes.c_void_p] * arguments + [ctypes.c_int64] * sizes, None
    return lambda *given: function(*[tensor.data_ptr() for tensor in given[:arguments]], *given[arguments:])
'''

_CHECKED = '''
def checked(kernel):
    """The kernel, followed by the question whether it met an index that no element has, or divided an integer by zero."""

    def launch(*tensors):
        kernel(*tensors)
        fault = library.kernel_fault()
        if fault == 1:
            raise IndexError("index out of range: it is negative, or not below the size of the axis that it counts along")
        if fault:
            raise RuntimeError("ZeroDivisionError: an integer was divided by zero")

    return launch
'''

_EXAMPLE = '''
def example(shape, strides, dtype, device):
    """A random tensor of this layout."""
    extent = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides)) if 0 not in shape else 0
    if dtype.is_floating_point or dtype.is_complex:
        values = torch.randn(extent, dtype=torch.complex64 if dtype.is_complex else torch.float32, device=device)
    else:
        values = torch.randint(0, 2, (extent,), device=device)
    return torch.as_strided(values.to(dtype), shape, strides)


'''


def wrapper_source(
    program: Program,
    kernels: Sequence[KernelSource],
    unit: CppUnit | None,
    target: Target,
    constants: Mapping[str, Tensor] | None = None,
) -> WrapperSource:
    """The whole module. ``constants`` are the tensors that the graph holds: small ones are printed, large ones only described."""
    return _Wrapper(program, kernels, unit, target, constants or {}).module()


def call_source(program: Program, kernels: Sequence[KernelSource], target: Target) -> str:
    """Only ``call``, with each step going through ``record(name, function, arguments, keywords)``, and no memory reused."""
    wrapper = _Wrapper(program, kernels, None, target, {}, recording=True)
    wrapper.call()
    return wrapper.writer.finish().text


class _Wrapper:
    def __init__(
        self,
        program: Program,
        kernels: Sequence[KernelSource],
        unit: CppUnit | None,
        target: Target,
        constants: Mapping[str, Tensor],
        recording: bool = False,
    ) -> None:
        self.program, self.unit, self.target, self.constants, self.recording = program, unit, target, constants, recording
        self.kernels = {kernel.name: kernel for kernel in kernels}
        self.graph = program.graph
        self.names = _names(self.graph.buffers, {*self.kernels, *(binding.symbol for binding in self.graph.symbols)})
        self.writer = Writer()
        seen_through_views = {ref.buffer for ref in self.graph.outputs if isinstance(ref, Ref) and not self._whole(ref)}
        self.handed_on = {ref.buffer for ref in self.graph.outputs if isinstance(ref, Ref)} - program.touched - seen_through_views

    # The module

    def module(self) -> WrapperSource:
        triton = [kernel for kernel in self.kernels.values() if kernel.language == "triton"]
        self._imports(bool(triton))
        if self.unit:
            self._cpp(self.unit)
        code = "".join("".join(kernel.text.splitlines(keepends=True)[kernel.definition :]) for kernel in triton)
        for helper in triton_helpers(code):
            self.line(f"\n\n{helper}")
        for kernel in triton:
            self.line("\n")
            self.writer.append(_definition(kernel))
        self._constants()
        self.line("\n")
        self.call()
        self._main()
        done = self.writer.finish()
        return WrapperSource(done.text, done.marks)

    def line(self, text: str = "", *origins: int) -> None:
        self.writer.line(text, *origins)

    def _imports(self, triton: bool) -> None:
        self.line(f'"""Generated by Fuselab for {self.target.name}. call(inputs) runs the program."""\n')
        for module in ("ctypes", "os", "subprocess", "tempfile") if self.unit else ("os",) if self.target.is_gpu else ():
            self.line(f"import {module}")
        if self.graph.symbols and "math." in repr((self.program, *(kernel.sizes for kernel in self.kernels.values()))):
            self.line("import math")
        self.line("\nimport torch")
        if triton:
            self.line("import triton\nimport triton.language as tl\nfrom triton.language.extra import libdevice")
        self.line("\naten = torch.ops.aten")
        if self.target.is_gpu:
            self.line('device = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"')
        self.line("\n" + _VIEWS.rstrip())

    def _cpp(self, unit: CppUnit) -> None:
        self.line("\n\nSOURCE = r'''")
        self.writer.append(Marked(unit.text, unit.marks))
        self.line("'''\n")
        flags = ", ".join(f'"{flag}"' for flag in FLAGS)
        self.line(_BUILD.format(flags=flags, libraries=", ".join(f'"{library}"' for library in LIBRARIES)).rstrip())
        if any(kernel.sizes for kernel in self.kernels.values()):
            self.line("\n" + _SIZED.strip("\n") + "\n\n")
        if any(may_fail(kernel) for kernel in self.kernels.values()):
            self.line("\n" + _CHECKED.strip("\n") + "\n\n")
        for kernel in self.kernels.values():
            if kernel.language == "cpp":
                made = f'cpp_kernel("{kernel.name}", {len(kernel.arguments)})'
                if kernel.sizes:
                    made = f'sized_cpp_kernel("{kernel.name}", {len(kernel.arguments)}, {len(kernel.sizes)})'
                self.line(f"{kernel.name} = {f'checked({made})' if may_fail(kernel) else made}", kernel.origin)

    def _constants(self) -> None:
        if not self.graph.constants:
            return
        self.line("\n# Tensors that the graph holds.\nconstants = {")
        with self.writer.indent():
            for name in self.graph.constants:
                self.line(f"{name!r}: {self._constant(name)}")
        self.line("}\nconstants.update(globals().get('fuselab_constants', {}))")

    def _constant(self, name: str) -> str:
        buffer, tensor = self.graph.buffers[name], self.constants.get(name)
        where = f"dtype=torch.{buffer.dtype}, device={self._device(buffer)}"
        if tensor is not None and tensor.numel() <= PRINTED_ELEMENTS and not tensor.is_complex():
            values = re.sub(r"\b(inf|nan)\b", r"float('\1')", repr(tensor.detach().cpu().tolist()))
            return f"view(torch.tensor({values}, {where}).contiguous(), {buffer.shape}, {buffer.strides}),"
        return f"torch.empty_strided({buffer.shape}, {buffer.strides}, {where}),  # its values are not part of this text"

    def _device(self, buffer: Buffer) -> str:
        return "device" if self.target.is_gpu and buffer.device != "cpu" else '"cpu"'

    def _main(self) -> None:
        self.line("\n" + _EXAMPLE.strip("\n") + '\n\n\nif __name__ == "__main__":')
        with self.writer.indent():
            self.line("torch.manual_seed(0)")
            present = self._present_sizes()
            for symbol, size in present.items():
                self.line(f"{symbol} = {size}")
            self.line("inputs = [")
            given = {one.place: one.formula for one in self.graph.symbols if one.axis is None and one.symbol in present}
            with self.writer.indent():
                for place, name in enumerate(self.graph.inputs):
                    if name is None:
                        self.line(f"{given.get(place)},")
                    else:
                        buffer = self.graph.buffers[name]
                        layout = f"{buffer.shape}, {buffer.strides}, torch.{buffer.dtype}, {self._device(buffer)}"
                        as_it_is = "" if buffer.layout == "strided" else f".to_sparse(layout=torch.{buffer.layout})"
                        self.line(f"example({layout}){as_it_is},  # {name}")
            self.line("]\nfor result in call(inputs):")
            with self.writer.indent():
                self.line(
                    "print(f'{tuple(result.shape)} {result.dtype} sum {result.double().sum().item():.6g}' "
                    "if isinstance(result, torch.Tensor) and not result.is_complex() else result)"
                )

    def _present_sizes(self) -> dict[str, int]:
        """What the symbols were when the program was compiled."""
        wanted = {binding.symbol for binding in self.graph.symbols}
        hints = {name: size.sizes.hints[name] for size in found(self.graph) for name in size.symbols()}
        return {name: hints[name] for name in sorted(wanted) if name in hints}

    # The function

    def call(self) -> None:
        self.line("def call(inputs):")
        with self.writer.indent():
            taken = [self._name(name) if name else "_" for name in self.graph.inputs]
            if taken:
                self.line(f"{', '.join(taken)}{',' if len(taken) == 1 else ''} = inputs")
            for binding in self.graph.symbols:
                self.line(f"{binding.symbol} = {self._bound(binding)}")
            for name in self.graph.constants:
                self.line(f"{self._name(name)} = constants[{name!r}]")
            made = {name for step in self.program.steps if isinstance(step, Extern) for name in step.outputs}
            for step, allocations, frees in zip(self.program.steps, self.program.allocations, self.program.frees, strict=True):
                for allocation in allocations:
                    if allocation.buffer not in made:
                        self._allocate(allocation, step.origin)
                if isinstance(step, Kernel):
                    self._launch(step)
                else:
                    self._extern(step)
                if frees:
                    self.line(f"del {', '.join(self._name(name) for name in frees)}")
            self.line(f"return [{', '.join(self._output(output) for output in self.graph.outputs)}]")

    def _bound(self, binding: Binding) -> str:
        """The value of a symbol, from what the call is given."""
        buffer = self.graph.inputs[binding.place]
        text = f"inputs[{binding.place}]" if buffer is None else f"{self._name(buffer)}.size({binding.axis})"
        if binding.plus:
            text = f"({text} - {binding.plus})"
        return text if binding.times == 1 else f"{text} // {binding.times}"

    def _name(self, buffer: str) -> str:
        return self.names[buffer]

    def _output(self, output: Ref | Symbol | OpenNumber | None) -> str:
        if isinstance(output, Symbol):
            return output.text
        return self._ref(output) if isinstance(output, Ref) else _literal(output)

    def _ref(self, ref: Ref) -> str:
        name = self._name(ref.buffer)
        if self._whole(ref):
            return name
        offset = f", {ref.offset}" if ref.offset else ""
        if ref.dtype:
            return f"seen_as({name}, torch.{ref.dtype}, {ref.shape}, {ref.strides}{offset})"
        return f"view({name}, {ref.shape}, {ref.strides}{offset})"

    def _whole(self, ref: Ref) -> bool:
        buffer = self.graph.buffers[ref.buffer]
        return (ref.shape, ref.strides, ref.offset, ref.dtype) == (buffer.shape, buffer.strides, 0, "")

    def _allocate(self, allocation: Allocation, origin: int) -> None:
        buffer = self.graph.buffers[allocation.buffer]
        name = self._name(buffer.name)
        if allocation.reuses is None or self.recording:
            where = f"dtype=torch.{buffer.dtype}, device={self._device(buffer)}"
            self.line(f"{name} = torch.empty_strided({buffer.shape}, {buffer.strides}, {where})", origin)
            return
        old = self.graph.buffers[allocation.reuses]
        before = self._name(old.name)
        if (old.shape, old.strides, old.dtype) == (buffer.shape, buffer.strides, buffer.dtype):
            self.line(f"{name} = {before}  # takes over its memory: {before} was read for the last time", origin)
        else:
            layout = f"{buffer.shape}, {buffer.strides}, torch.{buffer.dtype}"
            self.line(f"{name} = reuse({before}, {layout})  # {before} was read for the last time", origin)

    def _launch(self, kernel: Kernel) -> None:
        source = self.kernels[kernel.name]
        arguments = ", ".join([*(self._name(name) for name in source.arguments), *(str(size) for _, size in source.sizes)])
        if source.empty:
            self.line(f"# {kernel.name} has no iterations", kernel.origin)
            return
        function, keywords = kernel.name, ""
        if source.language == "triton":
            function = f"{kernel.name}[({source.grid},)]"
            constants = "".join(f"{name}={value}, " for name, value in source.constants)
            keywords = f"{constants}num_warps={source.warps}, num_stages={source.stages}, enable_fp_fusion=False"
        if self.recording:
            self.line(f"record({kernel.name!r}, {function}, [{arguments}], dict({keywords}))")
        else:
            self.line(f"{function}({arguments}{f', {keywords}' if keywords else ''})", kernel.origin)

    def _extern(self, step: Extern) -> None:
        # Ops that take functions ask whether they were given tuples; ATen takes either.
        as_tuples = step.call.startswith("torch.ops.higher_order.")
        arguments = [self._argument(argument, as_tuples) for argument in step.args]
        keywords = [f"{name}={self._argument(value, as_tuples)}" for name, value in step.kwargs]
        text = f"{step.call}({', '.join([*arguments, *keywords])})"
        if self.recording:
            text = f"record({step.name!r}, {step.call}, [{', '.join(arguments)}], dict({', '.join(keywords)}))"
        if all(name is None for name in step.outputs):
            self.line(text, step.origin)
            return
        if step.single:
            name = next(name for name in step.outputs if name)
            self.line(f"{self._name(name)} = {self._result(name, text)}", step.origin)
            return
        results = [self._name(output) if output else "_" for output in step.outputs]
        self.line(f"{', '.join(results)}{',' if len(results) == 1 else ''} = {text}", step.origin)
        for output in step.outputs:
            if output:
                name = self._name(output)
                self.line(f"{name} = {self._result(output, name)}", step.origin)

    def _result(self, output: str, text: str) -> str:
        """What a library call gave for a buffer, as the program expects it."""
        buffer = self.graph.buffers[output]
        if buffer.layout != "strided":
            return text
        check = "handed_on" if output in self.handed_on else "laid_out"
        return f"{check}({text}, {buffer.shape}, {buffer.strides}, torch.{buffer.dtype})"

    def _argument(self, argument: Argument, as_tuples: bool = False) -> str:
        match argument:
            case Ref():
                return self._ref(argument)
            case Symbol():
                name = self.names.get(argument.text, argument.text)
                return _CUDA_DEVICE.sub("torch.device(device)", name) if self.target.is_gpu else name
            case tuple():
                items = [self._argument(item, as_tuples) for item in argument]
                return f"({''.join(f'{item}, ' for item in items)})" if as_tuples else f"[{', '.join(items)}]"
            case _:
                return _literal(argument)


def _literal(value: object) -> str:
    text = repr(value)
    return f"float('{text}')" if text in ("inf", "-inf", "nan") else text


def _names(buffers: Mapping[str, Buffer], kernels: Collection[str]) -> dict[str, str]:
    names: dict[str, str] = {}
    used = {*_TAKEN, *kernels}
    for buffer in buffers:
        name = re.sub(r"\W", "_", buffer)
        while name in used or keyword.iskeyword(name) or name[:1].isdigit():
            name = f"t_{name}"
        used.add(name)
        names[buffer] = name
    return names


def _definition(kernel: KernelSource) -> Marked:
    """A Triton kernel without the imports and helpers of its module."""
    lines = kernel.text.split("\n")[kernel.definition :]
    return Marked("\n".join(lines), kernel.marks[kernel.definition :])
