"""A value that is computed twice is the same, in whatever loop: else a maximum is not found again among the values that it was taken of."""

import ctypes
import subprocess

import pytest
import torch

from compiler import backend
from compiler.codegen.cpp_prelude import FLAGS, LIBRARIES, prelude
from compiler.codegen.cpp_vectors import BINARY, UNARY
from compiler.options import POLICIES

INSIDE = {"exp": torch.exp, "tanh": torch.tanh, "sin": lambda x: (x / 4).sin(), "gelu": torch.nn.functional.gelu, "sigmoid": torch.sigmoid,
          "softplus": torch.nn.functional.softplus, "pow": lambda x: (x.abs() + 0.5).pow(1.7), "sincos": lambda x: (x / 4).sin() + (x / 9).cos()}  # fmt: skip
OUTSIDE = {
    "amax": lambda x: x.amax(1), "amin of columns": lambda x: x.amin(0), "max": lambda x: x.max(), "max with index": lambda x: x.max(1)[0],
    "norm": lambda x: x.norm(float("inf"), 1), "max_pool": lambda x: torch.nn.functional.max_pool1d(x, 3, 2), "sorted": lambda x: x.median(1)[0],
    "scattered": lambda x: torch.zeros(4, x.shape[1]).scatter_reduce(0, torch.arange(x.shape[0])[:, None].expand_as(x) % 4, x, "amax"),
}  # fmt: skip


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("outside", OUTSIDE)
@pytest.mark.parametrize("inside", INSIDE)
def test_gradients_of_an_extremum(inside, outside, policy):
    for size in (7, 33):
        torch.manual_seed(size)
        x = torch.randn(size, size + 4, dtype=torch.float64).float().requires_grad_()

        def function(x):
            return OUTSIDE[outside](INSIDE[inside](x))

        torch._dynamo.reset()
        ours = torch.compile(function, backend=backend, options={"policy": policy})(x)
        theirs = function(x)
        torch.testing.assert_close(ours, theirs)
        for result in (ours, theirs):
            result.square().sum().backward()
            gradient, x.grad = x.grad, None
            theirs = gradient if result is theirs else theirs
            ours = gradient if result is ours else ours
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("kind", ["float", "double"])
@pytest.mark.parametrize("name", [*UNARY, *BINARY])
def test_a_function_gives_the_same_bits_wherever_a_value_stands(name, kind, tmp_path):
    """One value at a time in a loop that is not vectorised, as against all of them in loops of every length and beside other widths."""
    call = f"std::{name}(a[i])" if name in UNARY else f"std::{name}(a[i], b[i])"
    given = f"const {kind}* __restrict a, const {kind}* __restrict b, {kind}* __restrict o, int64_t* __restrict w, int64_t n"
    text = f"""
    extern "C" void one({given}) {{ _Pragma("GCC novector") for (int64_t i = 0; i < n; i += w[0]) o[i] = {call}; }}
    extern "C" void many({given}) {{ _Pragma("omp simd") for (int64_t i = 0; i < n; ++i) o[i] = {call}; }}
    extern "C" void beside({given}) {{ _Pragma("omp simd") for (int64_t i = 0; i < n; ++i) {{ o[i] = {call}; w[i] += (int64_t)i; }} }}"""
    source, library = tmp_path / "functions.cpp", tmp_path / "functions.so"
    source.write_text(prelude(text) + text)
    subprocess.run(["g++", *FLAGS, "-Wno-unknown-pragmas", str(source), "-o", str(library), *LIBRARIES], check=True)
    loaded = ctypes.CDLL(str(library))
    torch.manual_seed(0)
    dtype = torch.float32 if kind == "float" else torch.float64
    a, b = (torch.rand(1_000, dtype=dtype) * 4 - 1 for _ in range(2))
    a[:6] = torch.tensor([float("inf"), float("-inf"), float("nan"), 0.0, -0.0, 1e30], dtype=dtype)

    def run(function, first, count):
        out, wide = torch.full((count,), 7.0, dtype=dtype), torch.ones(count, dtype=torch.int64)
        pointers = [ctypes.c_void_p(value.data_ptr()) for value in (a[first:], b[first:], out, wide)]
        getattr(loaded, function)(*pointers, ctypes.c_int64(count))
        return out

    whole = run("one", 0, 1_000)
    exact = getattr(torch, {"cbrt": "abs", "exp10": "abs"}.get(name, name))
    if exact is not torch.abs:
        wanted = exact(a.double()) if name in UNARY else exact(a.double(), b.double())
        torch.testing.assert_close(whole, wanted.to(dtype), equal_nan=True, rtol=1e-5 if kind == "float" else 1e-12, atol=1e-6)
    for function in ("many", "beside"):
        for first, count in [(0, 1_000), *((10 * count, count) for count in range(1, 40))]:
            same = run(function, first, count)
            assert torch.equal(same.nan_to_num(9.0), whole[first : first + count].nan_to_num(9.0)), (function, count)
