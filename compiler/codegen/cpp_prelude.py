"""C++ that a translation unit begins with: 16-bit floats, NaN-aware extrema, functions of libm and of the table of ops."""

from __future__ import annotations

from compiler.codegen.cpp_vectors import COMMON, vectors
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

PLAIN = ("ceil", "fabs", "floor", "lgamma", "nearbyint", "sqrt", "trunc")
PLAIN_BINARY = ("copysign", "fmod", "nextafter")
_TYPES = (("float", "f"), ("double", ""))


def _lines(form: str, names: tuple[str, ...]) -> list[str]:
    return [form.format(name=name, t=kind, f=suffix) for name in names for kind, suffix in _TYPES]


# What of <cmath>, <cstdint>, <limits> and <type_traits> is used, without reading them: they take three times as long as the kernels.
STANDARD = "\n".join([
    *(f"typedef __{name.upper()}_TYPE__ {name}_t;" for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")),
    "#define INT64_C(number) __INT64_C(number)",
    "#define INFINITY __builtin_inff()",
    '#define NAN __builtin_nanf("")',
    'extern "C" {',
    *(f"double {name}(double) noexcept;" for name in ("j0", "j1", "y0", "y1")),
    "}",
    "namespace std {",
    *_lines("inline {t} {name}({t} a) {{ return __builtin_{name}{f}(a); }}", PLAIN),
    *_lines("inline {t} {name}({t} a, {t} b) {{ return __builtin_{name}{f}(a, b); }}", PLAIN_BINARY),
    *_lines("inline {t} fma({t} a, {t} b, {t} c) {{ return __builtin_fma{f}(a, b, c); }}", ("fma",)),
    # By the bits: of __builtin_signbit in a loop over 16-bit floats g++ 12 makes an instruction that it does not know itself.
    "inline bool signbit(float a) { int32_t bits; __builtin_memcpy(&bits, &a, 4); return bits < 0; }",
    "inline bool signbit(double a) { int64_t bits; __builtin_memcpy(&bits, &a, 8); return bits < 0; }",
    "template <class T> constexpr bool is_signed_v = T(-1) < T(0);",
    "template <class T> struct numeric_limits {",
    "    static constexpr T infinity() { return __builtin_inff(); }",
    '    static constexpr T quiet_NaN() { return __builtin_nanf(""); }',
    "};",
    "}",
])  # fmt: skip

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

// g++ 12 makes a truncation of a cast to an integer and back, which keeps the sign of zero and what no integer holds.
// It knows nothing of this zero, so (float)((int64_t)x ^ no_bits) stays what it says.
__attribute__((noipa)) static int64_t zero() { return 0; }
static const int64_t no_bits = zero();

template <typename T> static inline T larger(T value, T best) { return value > best || value != value ? value : best; }
template <typename T> static inline T smaller(T value, T best) { return value < best || value != value ? value : best; }
#pragma omp declare reduction(larger : float, double : omp_out = larger(omp_in, omp_out)) initializer(omp_priv = -__builtin_inff())
#pragma omp declare reduction(smaller : float, double : omp_out = smaller(omp_in, omp_out)) initializer(omp_priv = __builtin_inff())
"""


def prelude(code: str) -> str:
    """What the C++ text calls, directly or through the functions of the table of ops."""
    called = cpp_prelude(code)
    return f"{STANDARD}\n{COMMON}\n{vectors(called + code)}\n{called.rstrip()}\n{CONVERSIONS}"
