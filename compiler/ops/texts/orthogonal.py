"""Orthogonal polynomials by their recurrences, whose loops are as long as the degree: for C++ alone."""

from __future__ import annotations

CPP = """\
// The degree as eager reads it: the integer part, -1 for what is none.
template <class T> inline T degree(T n) {
  const T whole = std::trunc(n);
  return whole >= 0 && whole < T(9.2e18) ? whole : T(-1);
}
// The polynomials of the four kinds: p(k + 1) = 2 x p(k) - p(k - 1) (DLMF 18.9.1, table 18.9.1), with sines and cosines between -1 and 1
// (18.5.1 to 18.5.4). The third kind at -x is the fourth at x, but for its sign; the others are even or odd.
template <class T> inline T chebyshev(T x, T degree_of, int kind) {
  const T n = degree(degree_of);
  const T size = std::fabs(x), sign = x < 0 && std::fmod(n, T(2)) != 0 ? T(-1) : T(1);
  if (n < 0) return 0;
  if (n == 0) return 1;
  if (size == 1 || (size < 1 && n > 8)) {
    const int mirrored = x < 0 && kind > 2 ? 7 - kind : kind;
    if (size == 1) return sign * (mirrored == 2 ? n + 1 : mirrored == 4 ? 2 * n + 1 : T(1));
    const double angle = 2 * std::atan2(std::sqrt(1 - (double)size), std::sqrt(1 + (double)size));
    if (mirrored == 1) return sign * T(std::cos(n * angle));
    if (mirrored == 2) return sign * T(std::sin((n + 1.) * angle) / std::sin(angle));
    if (mirrored == 3) return sign * T(std::cos((n + 0.5) * angle) / std::cos(angle / 2));
    return sign * T(std::sin((n + 0.5) * angle) / std::sin(angle / 2));
  }
  T before = 1, last = kind == 1 ? x : kind == 2 ? x + x : kind == 3 ? x + x - 1 : x + x + 1;
  for (int64_t k = 1; T(k) < n && last == last; ++k) {
    const T next = (x + x) * last - before;
    before = last;
    last = next;
  }
  return last;
}
// H(k + 1) = 2 x H(k) - 2 k H(k - 1), and He(k + 1) = x He(k) - k He(k - 1) (DLMF table 18.9.1). Eager stops at these degrees.
template <class T> inline T hermite(T x, T degree_of, int times) {
  const T n = degree(degree_of);
  if (n < 0) return 0;
  if (n == 0) return 1;
  if (n > (sizeof(T) == 4 ? 128 : 512)) return NAN;
  T before = 1, last = times * x;
  for (int64_t k = 1; T(k) < n; ++k) {
    const T next = times * (x * last - k * before);
    before = last;
    last = next;
  }
  return last;
}
// (k + 1) L(k + 1) = (2 k + 1 - x) L(k) - k L(k - 1) (DLMF table 18.9.1). The first product may leave the range where the difference is
// within, so that the two are one operation. Eager gives 0 for a NaN.
template <class T> inline T laguerre(T x, T degree_of) {
  const T n = degree(degree_of);
  if (n < 0) return 0;
  if (n == 0 || x == 0) return 1;
  T before = 1, last = 1 - x;
  if (n > 1 && x != x) return 0;
  for (int64_t k = 1; T(k) < n && last == last; ++k) {
    const T next = std::fma(k + k + 1 - x, last, -k * before) / (k + 1);
    before = last;
    last = next;
  }
  return last;
}
// (k + 1) P(k + 1) = (2 k + 1) x P(k) - k P(k - 1) (DLMF table 18.9.1). Eager gives 0 for a NaN.
template <class T> inline T legendre(T x, T degree_of) {
  const T n = degree(degree_of);
  if (n < 0) return 0;
  if (n == 0) return 1;
  if (std::fabs(x) == 1) return x < 0 && std::fmod(n, T(2)) != 0 ? T(-1) : T(1);
  T before = 1, last = x;
  if (n > 1 && x != x) return 0;
  for (int64_t k = 1; T(k) < n && last == last; ++k) {
    const T next = std::fma((k + k + 1) * x, last, -k * before) / (k + 1);
    before = last;
    last = next;
  }
  return last;
}
"""
