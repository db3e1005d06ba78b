"""The logarithm of the normal distribution, and its quantiles."""

from __future__ import annotations

CPP = """\
inline double log_ndtr(double x) {
  return x < -1 ? std::log(erfcx(x * -0.7071067811865476) / 2) - x * x / 2 : std::log1p(std::erfc(x * 0.7071067811865476) / -2);
}
// By erfinv in the middle; in the tails Newton's method on the logarithm, from Abramowitz and Stegun 26.2.23.
inline double ndtri(double p) {
  if (!(p > 0 && p < 1)) return p == 0 ? -INFINITY : p == 1 ? INFINITY : NAN;
  if (p > 0.1 && p < 0.9) return 1.4142135623730951 * erfinv(2 * p - 1);
  const double l = std::log(p < 0.5 ? p : 1 - p), t = std::sqrt(-2 * l);
  double x = (2.515517 + t * (0.802853 + t * 0.010328)) / (1 + t * (1.432788 + t * (0.189269 + t * 0.001308))) - t;
  for (int k = 0; k < 3; ++k) {
    const double scaled = erfcx(x * -0.7071067811865476);
    x -= (std::log(scaled / 2) - x * x / 2 - l) * scaled * 1.2533141373155003;
  }
  return p < 0.5 ? x : -x;
}
"""

TRITON: dict[str, str] = {
    "fuselab_log_ndtr": """\
@triton.jit
def fuselab_log_ndtr(x):
    left = tl.log(libdevice.erfcx(x * -0.7071067811865476) * 0.5) - x * x * 0.5
    return tl.where(x < -1, left, libdevice.log1p(libdevice.erfc(x * 0.7071067811865476) * -0.5))
""",
    "fuselab_ndtri": """\
@triton.jit
def fuselab_ndtri(p):
    goal = tl.log(tl.where(p < 0.5, p, 1.0 - p))
    t = tl.sqrt(-2.0 * goal)
    x = (2.515517 + t * (0.802853 + t * 0.010328)) / (1.0 + t * (1.432788 + t * (0.189269 + t * 0.001308))) - t
    for _ in tl.static_range(3):
        scaled = libdevice.erfcx(x * -0.7071067811865476)
        x = x - (tl.log(scaled * 0.5) - x * x * 0.5 - goal) * scaled * 1.2533141373155003
    x = tl.where(p < 0.5, x, -x)
    x = tl.where((p > 0.1) & (p < 0.9), 1.4142135623730951 * libdevice.erfinv(2.0 * p - 1.0), x)
    x = tl.where(p == 0, float('-inf'), tl.where(p == 1, float('inf'), x))
    return tl.where((p >= 0) & (p <= 1), x, float('nan'))
""",
}
