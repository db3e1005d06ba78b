"""C++ that every translation unit begins with: 16-bit floats, NaN-aware extrema, and libm functions that GCC may call as vectors."""

from __future__ import annotations

from compiler.ops import cpp_prelude

FLAGS = (
    "-std=c++17",
    "-O3",
    "-march=native",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=off",
    "-fwrapv",
    "-fopenmp",
    "-shared",
    "-fPIC",
    "-g1",
)
LIBRARIES = ("-lmvec", "-lm")

# Functions of glibc's libmvec since 2.35; the headers offer them only under -ffast-math, so they are declared here.
UNARY = (
    "acos", "acosh", "asin", "asinh", "atan", "atanh", "cbrt", "cos", "cosh", "erf", "erfc", "exp", "exp10", "exp2", "expm1",
    "log", "log10", "log1p", "log2", "sin", "sinh", "tan", "tanh",
)  # fmt: skip
BINARY = ("atan2", "hypot", "pow")


def _declarations() -> str:
    lines = []
    for kind, suffix in (("float", "f"), ("double", "")):
        lines += [f"FUSELAB_VECTOR {kind} {name}{suffix}({kind}) noexcept;" for name in UNARY]
        lines += [f"FUSELAB_VECTOR {kind} {name}{suffix}({kind}, {kind}) noexcept;" for name in BINARY]
    return "\n".join(lines)


VECTORS = f"""
#define FUSELAB_VECTOR __attribute__((simd("notinbranch"), const))
extern "C" {{
{_declarations()}
}}
"""

CONVERSIONS = """
static inline float bits_float(uint32_t bits) { float value; __builtin_memcpy(&value, &bits, 4); return value; }
static inline uint32_t float_bits(float value) { uint32_t bits; __builtin_memcpy(&bits, &value, 4); return bits; }

static inline float from_bfloat16(uint16_t bits) { return bits_float((uint32_t)bits << 16); }
static inline uint16_t to_bfloat16(float value) {
    uint32_t bits = float_bits(value), rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : rounded);
}
static inline float round_bfloat16(float value) { return from_bfloat16(to_bfloat16(value)); }

static inline float from_float16(uint16_t half) {
    uint32_t bits = float_bits(bits_float((uint32_t)(half & 0x7fffu) << 13) * 0x1p112f);
    bits |= (half & 0x7c00u) == 0x7c00u ? 0x7f800000u : 0u;
    return bits_float(bits | (uint32_t)(half & 0x8000u) << 16);
}
static inline uint16_t to_float16(float value) {
    uint32_t bits = float_bits(value), sign = (bits >> 16) & 0x8000u, size = bits & 0x7fffffffu;
    uint32_t normal = (size - 0x38000000u + 0xfffu + ((size >> 13) & 1u)) >> 13;
    uint32_t tiny = float_bits(bits_float(size) + 0.5f) - 0x3f000000u;
    uint32_t half = size < 0x38800000u ? tiny : normal;
    half = size >= 0x47800000u ? 0x7c00u : half;
    half = size > 0x7f800000u ? 0x7e00u : half;
    return (uint16_t)(half | sign);
}
static inline float round_float16(float value) { return from_float16(to_float16(value)); }

template <typename T> static inline T larger(T value, T best) { return value > best || value != value ? value : best; }
template <typename T> static inline T smaller(T value, T best) { return value < best || value != value ? value : best; }
#pragma omp declare reduction(larger : float, double : omp_out = larger(omp_in, omp_out)) initializer(omp_priv = -__builtin_inff())
#pragma omp declare reduction(smaller : float, double : omp_out = smaller(omp_in, omp_out)) initializer(omp_priv = __builtin_inff())
"""


def prelude() -> str:
    """All of it, with what the table of ops calls."""
    return f"{cpp_prelude().strip()}\n{VECTORS}{CONVERSIONS}"
