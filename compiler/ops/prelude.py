"""Functions that templates call beyond those of the language: what a C++ text calls, and what a Triton text calls."""

from __future__ import annotations

import re

from compiler.ops.texts import CPP_SPECIAL, TRITON_SPECIAL

CPP_FAULT = """\
// What eager raises for: the kernel goes on with 0, and the wrapper raises once it has ended.
static int fault = 0;
"""

CPP_FUNCTIONS = """\
// NaN wins. In two steps, since GCC vectorises no nested choice of this kind.
template <class T> inline T maximum(T a, T b) { const T larger = a > b ? a : b; return a != a ? a : larger; }
template <class T> inline T minimum(T a, T b) { const T smaller = a < b ? a : b; return a != a ? a : smaller; }

inline int64_t failed(int code) { __atomic_store_n(&fault, code, __ATOMIC_RELAXED); return 0; }
inline int64_t within(int64_t index, int64_t size) { return (uint64_t)index < (uint64_t)size ? index : failed(1); }

// Integer division: the lowest number divided by -1 wraps. It may not trap.
template <class T> inline T quotient(T a, T b) {
  return b == 0 ? T(failed(2)) : std::is_signed_v<T> && b == T(-1) ? T(0 - (uint64_t)a) : T(a / b);
}
template <class T> inline T truncated_remainder(T a, T b) {
  return b == 0 ? T(failed(2)) : std::is_signed_v<T> && b == T(-1) ? T(0) : T(a % b);
}
template <class T> inline T floor_remainder(T a, T b) {
  const T rest = truncated_remainder(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? T(rest + b) : rest;
}
template <class T> inline T floor_quotient(T a, T b) {
  const T whole = quotient(a, b);
  return truncated_remainder(a, b) != 0 && (a < 0) != (b < 0) ? T(whole - 1) : whole;
}
template <class T> inline T remainder(T a, T b) {
  const T rest = std::fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
template <class T> inline T floor_divide(T a, T b) {
  if (b == 0) return a / b;
  const T rest = std::fmod(a, b);
  T whole = (a - rest) / b;
  if (rest != 0 && (b < 0) != (rest < 0)) whole -= T(1);
  if (whole == 0) return std::copysign(T(0), a / b);
  const T floored = std::floor(whole);
  return whole - floored > T(0.5) ? floored + T(1) : floored;
}
template <class T> inline T int_pow(T base, T exponent) {
  if (exponent < 0) return base == 1 ? T(1) : base == T(-1) ? (exponent & 1 ? T(-1) : T(1)) : T(0);
  uint64_t result = 1, factor = (uint64_t)base;
  for (uint64_t left = (uint64_t)exponent; left; left >>= 1, factor *= factor)
    if (left & 1) result *= factor;
  return T(result);
}
template <class T> inline T gelu_tanh_slope(T x) {
  const T scale = T(0.7978845608028654), t = std::tanh(scale * (x + T(0.044715) * x * x * x));
  return T(0.5) * (T(1) + t) + T(0.5) * x * (T(1) - t * t) * scale * (T(1) + T(3) * T(0.044715) * x * x);
}
template <class T> inline T mish_slope(T x) {
  const T t = std::tanh(std::log1p(std::exp(x))), s = T(1) / (T(1) + std::exp(-x));
  return t + x * s * (T(1) - t * t);
}
template <class T> inline T logit(T x, T eps) {
  const T inside = x < eps ? eps : x > T(1) - eps ? T(1) - eps : x;
  return std::log(inside / (T(1) - inside));
}
// log(exp(a) + exp(b)) without leaving the range.
template <class T> inline T log_add(T a, T b) {
  const T low = minimum(a, b), high = maximum(a, b);
  return low != high || std::fabs(low) < T(INFINITY) ? high + std::log1p(std::exp(low - high)) : a;
}
// The power series, whose terms have one sign. It is even or odd in x.
inline double bessel_i(double x, int order) {
  if (!(std::fabs(x) < 750)) return x != x ? x : order && x < 0 ? -INFINITY : INFINITY;
  const double square = x * x / 4;
  double term = order ? x / 2 : 1, sum = term;
  for (int k = 1; std::fabs(term) > 1e-17 * std::fabs(sum); k++) {
    term *= square / (double(k) * (k + order));
    sum += term;
  }
  return sum;
}
// exp(x * x) * erfc(x): directly where both fit, else the asymptotic series.
inline double erfcx(double x) {
  if (x < 25) return x < -26.7 ? INFINITY : std::exp(x * x) * std::erfc(x);
  const double r = 1 / (x * x);
  return 0.5641895835477563 / x * (1 - r / 2 * (1 - 1.5 * r * (1 - 2.5 * r * (1 - 3.5 * r))));
}
// Giles' approximations, then two steps of Newton's method.
template <class T> inline T erfinv(T y) {
  if (!(std::fabs(y) < T(1))) return std::fabs(y) == T(1) ? y * T(INFINITY) : T(NAN);
  const T w = -std::log((T(1) - y) * (T(1) + y)), u = w < T(5) ? w - T(2.5) : std::sqrt(w) - T(3);
  static const double near[9] = {2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
                                 -0.00125372503, -0.00417768164, 0.246640727, 1.50140941};
  static const double far[9] = {-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
                                -0.0076224613, 0.00943887047, 1.00167406, 2.83297682};
  const double* c = w < T(5) ? near : far;
  T p = T(c[0]);
  for (int k = 1; k < 9; ++k) p = T(c[k]) + p * u;
  T x = p * y;
  for (int k = 0; k < 2; ++k) x -= (std::erf(x) - y) / (T(1.1283791670955126) * std::exp(-x * x));
  return x;
}

// Philox 4x32 with 10 rounds, counter (offset, 0, 0), key seed: the numbers of tl.rand and tl.randn.
inline void philox(int64_t seed, int64_t offset, uint32_t& c0, uint32_t& c1) {
  uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)((uint64_t)seed >> 32), c2 = 0, c3 = 0;
  c0 = (uint32_t)offset;
  c1 = (uint32_t)((uint64_t)offset >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = (uint64_t)0xD2511F53u * c0, b = (uint64_t)0xCD9E8D57u * c2;
    c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
    c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
    c1 = (uint32_t)b;
    c3 = (uint32_t)a;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
}
inline float unit(uint32_t bits) { return (float)((int32_t)bits < 0 ? ~(int32_t)bits : (int32_t)bits) * 4.6566127342e-10f; }
inline float rand(int64_t seed, int64_t offset) {
  uint32_t first, second;
  philox(seed, offset, first, second);
  return unit(first);
}
inline float randn(int64_t seed, int64_t offset) {
  uint32_t first, second;
  philox(seed, offset, first, second);
  return std::sqrt(-2.0f * std::log(maximum(1.0e-7f, unit(first)))) * std::cos(6.283185307179586f * unit(second));
}
"""

_TRITON: dict[str, str] = {
    "fuselab_logit": """\
@triton.jit
def fuselab_logit(x, eps):
    inside = tl.where(x < eps, eps, tl.where(x > 1.0 - eps, 1.0 - eps, x))
    return tl.log(inside / (1.0 - inside))
""",
    "fuselab_trunc": """\
@triton.jit
def fuselab_trunc(x):
    return tl.where(x < 0, tl.ceil(x), tl.floor(x))
""",
    "fuselab_round": """\
@triton.jit
def fuselab_round(x):
    whole = tl.floor(x)
    rest = x - whole
    odd = whole - 2.0 * tl.floor(whole * 0.5) != 0
    return tl.where((rest > 0.5) | ((rest == 0.5) & odd), whole + 1.0, whole)
""",
    "fuselab_remainder": """\
@triton.jit
def fuselab_remainder(a, b):
    rest = libdevice.fmod(a, b)
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)
""",
    "fuselab_floor_divide": """\
@triton.jit
def fuselab_floor_divide(a, b):
    rest = libdevice.fmod(a, b)
    whole = (a - rest) / b
    whole = tl.where((rest != 0) & ((b < 0) != (rest < 0)), whole - 1.0, whole)
    floored = tl.floor(whole)
    floored = tl.where(whole - floored > 0.5, floored + 1.0, floored)
    return tl.where(b == 0, a / b, floored)
""",
    "fuselab_int_pow": """\
@triton.jit
def fuselab_int_pow(base, exponent):
    result = (base * 0 + 1).to(base.dtype)
    factor = base
    left = exponent
    for _ in tl.static_range(7):
        result = tl.where((left & 1) != 0, result * factor, result)
        factor = factor * factor
        left = left >> 1
    unit = tl.where(base + 1 == 0, tl.where((exponent & 1) != 0, base, base * base), (base == 1).to(base.dtype))
    small = (base == 0) | (base == 1) | (base + 1 == 0)
    power = tl.where(exponent < 0, unit, result)
    return tl.where(small & (exponent > 0), tl.where((exponent & 1) != 0, base, base * base), power)
""",
    "fuselab_gelu_tanh_slope": """\
@triton.jit
def fuselab_gelu_tanh_slope(x):
    t = libdevice.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))
    return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * 0.7978845608028654 * (1.0 + 3.0 * 0.044715 * x * x)
""",
    "fuselab_mish_slope": """\
@triton.jit
def fuselab_mish_slope(x):
    t = libdevice.tanh(libdevice.log1p(tl.exp(x)))
    s = 1.0 / (1.0 + tl.exp(-x))
    return t + x * s * (1.0 - t * t)
""",
}


def _functions(text: str) -> dict[str, str]:
    """The C++ functions by name, each with the comment above it."""
    starts = [match.start() for match in re.finditer(r"^(?:// .*\n)*(?:template <|inline )", text, re.MULTILINE)]
    parts = [text[start:end] for start, end in zip(starts, [*starts[1:], len(text)], strict=True)]
    return {re.search(r"(\w+)\(", part[part.index("inline ") :])[1]: part for part in parts}  # type: ignore[index]  # each has one


_CPP = _functions(CPP_FUNCTIONS) | _functions(CPP_SPECIAL)


def _needed(table: dict[str, str], code: str) -> list[str]:
    """The functions of the table that the text calls, and those that these call, in the table's order."""
    wanted: set[str] = set()
    todo = code
    while new := {name for name in table if name not in wanted and re.search(rf"\b{name}\b", todo)}:
        wanted |= new
        todo = "\n".join(table[name] for name in new)
    return [text for name, text in table.items() if name in wanted]


def cpp_prelude(code: str) -> str:
    """The functions that the C++ text calls, and those that these call, in namespace ``fuselab``."""
    return f"namespace fuselab {{\n{CPP_FAULT}{''.join(_needed(_CPP, code))}}}  // namespace fuselab\n"


def triton_prelude(code: str) -> str:
    """The functions that the Triton text calls, to be pasted before its kernels (after the imports of triton, tl and libdevice)."""
    return "\n\n".join(_needed(_TRITON | TRITON_SPECIAL, code))
