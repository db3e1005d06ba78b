"""What takes the bits of a float apart: frexp, and the next 16-bit float."""

from __future__ import annotations

CPP = """\
inline double frexp_mantissa(double x) {
  int exponent;
  return __builtin_frexp(x, &exponent);
}
inline double frexp_exponent(double x) {
  int exponent = 0;
  __builtin_frexp(x, &exponent);
  return std::fabs(x) < INFINITY ? exponent : 0;
}
// Of 16-bit floats, held as floats. A bfloat16 is the upper half of a float; in the range of denormal float16 the steps are of one size.
inline float stepped(float a, float b, uint32_t step) {
  uint32_t bits;
  __builtin_memcpy(&bits, &a, 4);
  bits += (a < b) == (a > 0) ? step : -step;
  __builtin_memcpy(&a, &bits, 4);
  return a;
}
inline float nextafter_bfloat16(float a, float b) {
  if (a != a || b != b) return a + b;
  return a == b ? b : a == 0 ? std::copysign(0x1p-133f, b) : stepped(a, b, 0x10000);
}
inline float nextafter_float16(float a, float b) {
  if (a != a || b != b) return a + b;
  const float size = std::fabs(a);
  const bool outward = a == 0 || (a < b) == (a > 0);
  if (a == b) return b;
  if (size == INFINITY) return std::copysign(65504.0f, a);
  if (size < 0x1p-14f || (size == 0x1p-14f && !outward)) return std::copysign(size + (outward ? 0x1p-24f : -0x1p-24f), a == 0 ? b : a);
  return stepped(a, b, 0x2000);
}
"""

TRITON: dict[str, str] = {
    # A denormal is made normal first.
    "fuselab_frexp": """\
@triton.jit
def fuselab_frexp(x, FRACTION: tl.constexpr, BIAS: tl.constexpr, SCALE: tl.constexpr, EXPONENT: tl.constexpr):
    small = tl.abs(x) * SCALE < 2.0
    scaled = tl.where(small, x * SCALE, x)
    bits = scaled.to(tl.int32 if FRACTION == 23 else tl.int64, bitcast=True)
    field = (bits >> FRACTION) & (2 * BIAS + 1)
    none = (x == 0) | (x != x) | (tl.abs(x) == float('inf'))
    if EXPONENT:
        exponent = field - tl.where(small, 2 * BIAS - 1, BIAS - 1)
        return tl.where(none, 0, exponent).to(x.dtype)
    mantissa = bits + ((BIAS - 1 - field) << FRACTION)
    return tl.where(none, x, mantissa.to(x.dtype, bitcast=True))
""",
    "fuselab_nextafter_half": """\
@triton.jit
def fuselab_nextafter_half(a, b):
    first, second = a.to(tl.float32), b.to(tl.float32)
    bits = a.to(tl.int16, bitcast=True)
    step = tl.where((first < second) == (first > 0), 1, -1).to(tl.int16)
    start = tl.where(second < 0, -32767, 1).to(tl.int16)
    moved = tl.where(first == 0, start, bits + step).to(a.dtype, bitcast=True)
    return tl.where(first == second, b, tl.where((first != first) | (second != second), a + b, moved))
""",
}
