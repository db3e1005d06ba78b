"""Modified Bessel functions, scaled or of the second kind, the spherical one of order 0, and Airy's function."""

from __future__ import annotations

CPP = """\
inline double bessel_i0e(double x) {
  const double size = std::fabs(x);
  return size <= 8 ? std::exp(-size) * i0_near(size * size / 4) : i0_far(16 / size - 1) / std::sqrt(size);
}
inline double bessel_i1e(double x) {
  const double size = std::fabs(x);
  return size <= 8 ? std::exp(-size) * x / 2 * i1_near(size * size / 4)
                   : std::copysign(i1_far(16 / size - 1) / std::sqrt(size), x);
}
// exp(x) K0(x): DLMF 10.31.2, then a fit.
inline double bessel_k0e(double x) {
  if (x == 0) return INFINITY;
  if (!(x > 0)) return NAN;
  const double y = x * x / 4;
  return x <= 2 ? std::exp(x) * (k0_near(y) - (std::log(x) - 0.6931471805599453) * i0_near(y)) : k0_far(4 / x - 1) / std::sqrt(x);
}
// exp(x) K1(x): DLMF 10.31.1, then a fit.
inline double bessel_k1e(double x) {
  if (x == 0) return INFINITY;
  if (!(x > 0)) return NAN;
  const double y = x * x / 4;
  return x <= 2 ? std::exp(x) * (1 / x + x / 2 * ((std::log(x) - 0.6931471805599453) * i1_near(y) - k1_near(y)))
                : k1_far(4 / x - 1) / std::sqrt(x);
}
// DLMF 9.4.1 near 0, 9.7.5 and 9.7.9 with fitted sums elsewhere. Eager has no limit at infinity.
inline double airy_ai(double x) {
  const double size = std::fabs(x), root = std::sqrt(size), z = size * root / 1.5;
  if (size == INFINITY) return NAN;
  if (x > 0 && z > 2) return airy_far(4 / z - 1) * std::exp(-z) / (3.5449077018110318 * std::sqrt(root));
  if (x < 0 && z > 4) {
    const double s = 32 / (z * z) - 1, angle = z - 0.7853981633974483;
    return (airy_cosine(s) * std::cos(angle) + airy_sine(s) / z * std::sin(angle)) / (1.772453850905516 * std::sqrt(root));
  }
  const double cube = x * x * x;
  return 0.3550280538878172 * airy_first(cube) - 0.2588194037928068 * x * airy_second(cube);
}
inline double spherical_bessel_j0(double x) {
  return std::fabs(x) < 0.5 ? sinc_near(x * x) : std::fabs(x) == INFINITY ? 0 : std::sin(x) / x;
}
"""

TRITON: dict[str, str] = {
    "fuselab_bessel_i0e": """\
@triton.jit
def fuselab_bessel_i0e(x):
    size = tl.abs(x)
    near = tl.exp(-size) * fuselab_i0_near(size * size * 0.25)
    return tl.where(size <= 8, near, fuselab_i0_far(16.0 / size - 1.0) / tl.sqrt(size))
""",
    "fuselab_bessel_i1e": """\
@triton.jit
def fuselab_bessel_i1e(x):
    size = tl.abs(x)
    near = tl.exp(-size) * size * 0.5 * fuselab_i1_near(size * size * 0.25)
    value = tl.where(size <= 8, near, fuselab_i1_far(16.0 / size - 1.0) / tl.sqrt(size))
    return tl.where(x < 0, -value, value)
""",
    "fuselab_bessel_k0e": """\
@triton.jit
def fuselab_bessel_k0e(x):
    y = x * x * 0.25
    near = tl.exp(x) * (fuselab_k0_near(y) - (tl.log(x) - 0.6931471805599453) * fuselab_i0_near(y))
    value = tl.where(x <= 2, near, fuselab_k0_far(4.0 / x - 1.0) / tl.sqrt(x))
    return tl.where(x > 0, value, tl.where(x == 0, float('inf'), float('nan')))
""",
    "fuselab_bessel_k1e": """\
@triton.jit
def fuselab_bessel_k1e(x):
    y = x * x * 0.25
    near = tl.exp(x) * (1.0 / x + x * 0.5 * ((tl.log(x) - 0.6931471805599453) * fuselab_i1_near(y) - fuselab_k1_near(y)))
    value = tl.where(x <= 2, near, fuselab_k1_far(4.0 / x - 1.0) / tl.sqrt(x))
    return tl.where(x > 0, value, tl.where(x == 0, float('inf'), float('nan')))
""",
    # Of a float64: single precision leaves too little of the series.
    "fuselab_airy_ai": """\
@triton.jit
def fuselab_airy_ai(x):
    size = tl.abs(x)
    root = tl.sqrt(size)
    z = size * root / 1.5
    right = fuselab_airy_far(4.0 / z - 1.0) * tl.exp(-z) / (3.5449077018110318 * tl.sqrt(root))
    s = 32.0 / (z * z) - 1.0
    angle = z - 0.7853981633974483
    left = fuselab_airy_cosine(s) * tl.cos(angle) + fuselab_airy_sine(s) / z * tl.sin(angle)
    cube = x * x * x
    near = 0.3550280538878172 * fuselab_airy_first(cube) - 0.2588194037928068 * x * fuselab_airy_second(cube)
    value = tl.where((x > 0) & (z > 2), right, tl.where((x < 0) & (z > 4), left / (1.772453850905516 * tl.sqrt(root)), near))
    return tl.where(size == float('inf'), float('nan'), value)
""",
    "fuselab_spherical_bessel_j0": """\
@triton.jit
def fuselab_spherical_bessel_j0(x):
    far = tl.where(tl.abs(x) == float('inf'), 0.0, tl.sin(x) / x)
    return tl.where(tl.abs(x) < 0.5, fuselab_sinc_near(x * x), far)
""",
}
