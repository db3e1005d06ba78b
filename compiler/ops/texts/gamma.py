"""The gamma function's relatives: digamma, trigamma and polygamma, the zeta function of Hurwitz, the incomplete gamma functions."""

from __future__ import annotations

CPP = """\
// Abramowitz and Stegun: recurrence 6.3.5 up to 10, then the series 6.3.18; left of 0 by reflection, 6.3.7.
inline double digamma(double x) {
  if (x == 0) return std::copysign((double)INFINITY, -x);
  double sum = 0;
  if (x < 0) {
    const double rest = x - std::nearbyint(x);
    if (rest == 0) return NAN;
    sum = -3.141592653589793 / std::tan(3.141592653589793 * rest);
    x = 1 - x;
  }
  for (; x < 10; x += 1) sum -= 1 / x;
  const double y = 1 / (x * x);
  return sum + std::log(x) - 0.5 / x - y * digamma_tail(y);
}
// Abramowitz and Stegun 6.4.6, 6.4.12, 6.4.7. How large it is at a pole depends on how the sine is rounded.
template <class T> inline T trigamma(T x) {
  T sign = 1, sum = 0;
  if (x < T(0.5)) {
    const T sine = std::sin(T(3.141592653589793) * x);
    sum = T(-9.869604401089358) / (sine * sine);
    sign = -1;
    x = 1 - x;
  }
  for (int k = 0; k < 10; ++k, x += 1) sum += 1 / (x * x);
  const T y = 1 / (x * x);
  return sign * (sum + (1 + T(0.5) / x + y * T(trigamma_tail(y))) / x);
}
// The zeta function of Hurwitz by the summation formula of Euler and Maclaurin (DLMF 2.10.1): sum of (q + k)**-x over k.
inline double zeta(double x, double q) {
  static const double factors[12] = {  // B(2k + 2) / (2k + 2)!
      1 / 12., -1 / 720., 1 / 30240., -1 / 1209600., 1 / 47900160., -691 / 1307674368000., 1 / 74724249600., -3617 / 10670622842880000.,
      43867 / 5109094217170944000., -174611 / 802857662698291200000., 77683 / 14101100039391805440000.,
      -236364091 / 1693824136731743669452800000.};
  if (x == 1) return INFINITY;
  if (x < 1) return NAN;
  if (q <= 0 && q == std::floor(q)) return INFINITY;
  if (q <= 0 && x != std::floor(x)) return NAN;
  double a = q, power = std::pow(q, -x), sum = power;
  for (int k = 0; k < 9 || a <= 9; ++k) {
    a += 1;
    power = std::pow(a, -x);
    sum += power;
    if (std::fabs(power / sum) < 1.1e-16) return sum;
  }
  sum += power * a / (x - 1) - power / 2;
  double rising = 1;
  for (int k = 0; k < 12; ++k) {
    rising *= x + 2 * k;
    power /= a;
    const double term = rising * power * factors[k];
    sum += term;
    if (std::fabs(term / sum) < 1.1e-16) break;
    rising *= x + 2 * k + 1;
    power /= a;
  }
  return sum;
}
// Abramowitz and Stegun 6.4.10. The factorial leaves the range where eager's does.
template <class T> inline T polygamma(T n, T x) {
  if (n == 0) return T(digamma((double)x));
  if (n == 1) return trigamma(x);
  return (std::fmod(n, T(2)) != 0 ? T(1) : T(-1)) * std::exp(std::lgamma(n + 1)) * T(zeta((double)n + 1, (double)x));
}
// log(gamma(1 + a)) for small a, with what rounding takes of 1 + a put back.
inline double log_gamma_after_one(double a) {
  const double sum = 1 + a;
  return std::lgamma(sum) + (a - (sum - 1)) * digamma(sum);
}
// mu - log(1 + mu) without cancellation.
inline double log_deficit(double mu) {
  if (std::fabs(mu) > 0.1) return mu - std::log1p(mu);
  double sum = 0, power = mu;
  for (int k = 2; k < 20; ++k) {
    power *= -mu;
    sum -= power / k;
  }
  return sum;
}
// The regularised incomplete gamma function P(a, x), or Q(a, x) = 1 - P(a, x): the series DLMF 8.7.1 and 8.11.4 left of the transition,
// the continued fraction 8.9.2 right of it, and Temme's uniform expansion 8.12.3, 8.12.4, 8.12.7 for large a.
inline double incomplete_gamma(double a, double x, bool upper) {
  if (a < 0 || x < 0) return NAN;
  if (a == 0) return x > 0 ? !upper : NAN;
  if (x == 0) return upper;
  if (a == INFINITY) return x == INFINITY ? NAN : upper;
  if (x == INFINITY) return !upper;
  if (a != a || x != x) return NAN;
  if (a > 10000) {
    const double mu = (x - a) / a, half = log_deficit(mu), sign = mu < 0 ? -1 : 1;
    if (a * half > 800) return (mu > 0) != upper;
    const double eta = sign * std::sqrt(2 * half);
    const double rest = (gamma_0(eta) + (gamma_1(eta) + gamma_2(eta) / a) / a) * std::exp(-a * half) / std::sqrt(6.283185307179586 * a);
    const double along = eta * std::sqrt(a / 2);
    return upper ? std::erfc(along) / 2 + rest : std::erfc(-along) / 2 - rest;
  }
  if (upper && x < 1.1 && x < a + 1) {
    const double l = a * std::log(x) - log_gamma_after_one(a);
    double term = 1, sum = 0;
    for (int k = 1; k < 30; ++k) {
      term *= -x / k;
      sum += term / (a + k);
    }
    return -std::expm1(l) - std::exp(l) * a * sum;
  }
  const double factor = std::exp(a * std::log(x) - x - std::lgamma(a + 1));
  if (x < a + 1) {
    double term = 1, sum = 1;
    for (double k = a + 1; term > 1e-17 * sum; k += 1) {
      term *= x / k;
      sum += term;
    }
    return upper ? 1 - factor * sum : factor * sum;
  }
  double b = x + 1 - a, c = 1e300, d = 1 / b, fraction = d;
  for (int k = 1; k < 10000; ++k) {
    const double over = k * (a - k);
    b += 2;
    d = 1 / (over * d + b);
    c = b + over / c;
    fraction *= c * d;
    if (std::fabs(c * d - 1) < 1e-16) break;
  }
  return upper ? factor * a * fraction : 1 - factor * a * fraction;
}
"""

TRITON: dict[str, str] = {
    "fuselab_digamma": """\
@triton.jit
def fuselab_digamma(x):
    left = x < 0
    rest = x - tl.floor(x + 0.5)
    total = tl.where(left, -3.141592653589793 * tl.cos(3.141592653589793 * rest) / tl.sin(3.141592653589793 * rest), 0.0)
    y = tl.where(left, 1.0 - x, x)
    for _ in tl.static_range(10):
        total = tl.where(y < 10, total - 1.0 / y, total)
        y = tl.where(y < 10, y + 1.0, y)
    square = 1.0 / (y * y)
    total = total + tl.log(y) - 0.5 / y - square * fuselab_digamma_tail(square)
    return tl.where(left & (rest == 0), float('nan'), total)
""",
    "fuselab_trigamma": """\
@triton.jit
def fuselab_trigamma(x):
    left = x < 0.5
    sine = tl.sin(3.141592653589793 * x)
    total = tl.where(left, -9.869604401089358 / (sine * sine), 0.0)
    y = tl.where(left, 1.0 - x, x)
    for _ in tl.static_range(10):
        total = total + 1.0 / (y * y)
        y = y + 1.0
    square = 1.0 / (y * y)
    total = total + (1.0 + 0.5 / y + square * fuselab_trigamma_tail(square)) / y
    return tl.where(left, -total, total)
""",
}
