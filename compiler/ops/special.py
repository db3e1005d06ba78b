"""Rows for special functions, and for random numbers."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from compiler.ops.row import FLOAT, Reference, Row, Template, unary

MASK32 = 0xFFFFFFFF


def philox(seed: Tensor, offset: Tensor) -> tuple[Tensor, Tensor]:
    """The first two words of Philox 4x32-10 as int64 in [0, 2**32). Products wrap in int64, which leaves their 64 bits right."""
    c0, c1 = offset & MASK32, (offset >> 32) & MASK32
    k0, k1 = seed & MASK32, (seed >> 32) & MASK32
    c2, c3 = torch.zeros_like(c0), torch.zeros_like(c0)
    for _ in range(10):
        a, b = c0 * 0xD2511F53, c2 * 0xCD9E8D57
        c0, c2 = ((b >> 32) & MASK32) ^ c1 ^ k0, ((a >> 32) & MASK32) ^ c3 ^ k1
        c1, c3 = b & MASK32, a & MASK32
        k0, k1 = (k0 + 0x9E3779B9) & MASK32, (k1 + 0xBB67AE85) & MASK32
    return c0, c1


def unit(word: Tensor) -> Tensor:
    """A word as a float32 in [0, 1): its 31 lower bits, or those of its complement when the sign bit is set."""
    return torch.where(word >= 1 << 31, MASK32 - word, word).to(torch.float32) * 4.6566127342e-10


def uniform(seed: Tensor, offset: Tensor) -> Tensor:
    return unit(philox(seed, offset)[0])


def normal(seed: Tensor, offset: Tensor) -> Tensor:
    first, second = (unit(word) for word in philox(seed, offset))
    return torch.sqrt(-2.0 * torch.log(first.clamp_min(1.0e-7))) * torch.cos(6.283185307179586 * second)


def within(index: Tensor, size: Tensor) -> Tensor:
    if bool(((index < 0) | (index >= size)).any()):
        raise IndexError("an index is out of range")
    return index


def polygamma(n: Tensor, x: Tensor) -> Tensor:
    """Eager's, of as many orders as there are."""
    result = torch.full_like(x, torch.nan)
    for order in n.unique().tolist():
        result = torch.where(n == order, torch.polygamma(int(order), x), result)
    return result


SELF_OTHER = ("self", "other")
LONG_LOOP = "its loop runs as long as the operands say, and the threads of a GPU would wait for the longest"
HALF_STEP = "fuselab_nextafter_half({0}, {1})"


def computed(
    name: str, call: str, reference: Reference, triton: Template, aten: str, *, domain: tuple[float, float], operand: str = "self"
) -> Row:
    """A function of one float that C++ computes in double: ``call`` of it."""
    row = unary(name, triton, f"({{t}}){call}", reference, aten=(f"aten.{aten}",), domain=domain)
    return replace(row, operands=(operand,))


def looped(
    name: str, operands: tuple[str, ...], cpp: str, reference: Reference, *aten: str, domain: tuple[tuple[float, float], ...]
) -> Row:
    """A function whose loop depends on its operands."""
    overloads = tuple(f"aten.{each}" for each in aten)
    return Row(name, operands, overloads, "", cpp, reference, promote="float", kinds=FLOAT, domain=domain, only_cpp=LONG_LOOP)


def orthogonal(name: str, cpp: str) -> Row:
    """Polynomials of degree ``n``."""
    overloads = [f"special_{name}.{overload}" for overload in ("default", "x_scalar", "n_scalar")]
    return looped(name, ("x", "n"), cpp, getattr(torch.special, name), *overloads, domain=((-1.5, 1.5), (-1, 12)))


def frexp_row(part: str, place: int) -> Row:
    """One of the results of frexp, as a float."""
    triton = {
        "float32": f"fuselab_frexp({{0}}, 23, 127, {2.0**127!r}, {place == 1})",
        "float64": f"fuselab_frexp({{0}}, 52, 1023, {2.0**1023!r}, {place == 1})",
    }
    return Row(f"frexp_{part}", ("self",), (), triton, f"({{t}})fuselab::frexp_{part}({{0}})", lambda a: torch.frexp(a)[place].to(a.dtype),
        kinds=FLOAT)  # fmt: skip


ROWS: tuple[Row, ...] = (
    unary("erf", "tl.erf({0})", "std::erf({0})", torch.erf, aten=("aten.erf.default", "aten.special_erf.default")),
    unary("erfc", "libdevice.erfc({0})", "std::erfc({0})", torch.erfc, aten=("aten.erfc.default", "aten.special_erfc.default")),
    unary("erfinv", "libdevice.erfinv({0})", "fuselab::erfinv({0})", torch.erfinv, domain=(-1, 1),
        aten=("aten.erfinv.default", "aten.special_erfinv.default")),
    unary("lgamma", "libdevice.lgamma({0})", "std::lgamma({0})", torch.lgamma, domain=(0.1, 9),
        aten=("aten.lgamma.default", "aten.special_gammaln.default")),
    unary("ndtr", "0.5 * libdevice.erfc({0} * -0.7071067811865476)", "({t})0.5 * std::erfc({0} * ({t})-0.7071067811865476)",
        torch.special.ndtr, aten=("aten.special_ndtr.default",)),
    unary("bessel_i0", "libdevice.cyl_bessel_i0({0}) + ({0} - {0})", "({t})fuselab::bessel_i((double){0}, 0) + ({0} - {0})",
        torch.special.i0, domain=(-9, 9),
        aten=("aten.i0.default", "aten.special_i0.default", "aten.special_modified_bessel_i0.default")),
    unary("bessel_i1", "libdevice.cyl_bessel_i1({0}) + ({0} - {0})", "({t})fuselab::bessel_i((double){0}, 1) + ({0} - {0})",
        torch.special.i1, domain=(-9, 9),
        aten=("aten.special_i1.default", "aten.special_modified_bessel_i1.default")),
    unary("erfcx", "libdevice.erfcx({0})", "({t})fuselab::erfcx((double){0})", torch.special.erfcx, domain=(-4, 30),
        aten=("aten.special_erfcx.default",)),
    computed("bessel_i0e", "fuselab::bessel_i0e({0})", torch.special.i0e, "fuselab_bessel_i0e({0})", "special_i0e.default",
        domain=(-30, 30)),
    computed("bessel_i1e", "fuselab::bessel_i1e({0})", torch.special.i1e, "fuselab_bessel_i1e({0})", "special_i1e.default",
        domain=(-30, 30)),
    computed("bessel_k0", "(fuselab::bessel_k0e({0}) * std::exp(-(double){0}))", torch.special.modified_bessel_k0,
        "fuselab_bessel_k0e({0}) * tl.exp(-{0})", "special_modified_bessel_k0.default", domain=(-0.1, 9)),
    computed("bessel_k1", "(fuselab::bessel_k1e({0}) * std::exp(-(double){0}))", torch.special.modified_bessel_k1,
        "fuselab_bessel_k1e({0}) * tl.exp(-{0})", "special_modified_bessel_k1.default", domain=(-0.1, 9)),
    computed("scaled_bessel_k0", "fuselab::bessel_k0e({0})", torch.special.scaled_modified_bessel_k0, "fuselab_bessel_k0e({0})",
        "special_scaled_modified_bessel_k0.default", domain=(-0.1, 30), operand="x"),
    computed("scaled_bessel_k1", "fuselab::bessel_k1e({0})", torch.special.scaled_modified_bessel_k1, "fuselab_bessel_k1e({0})",
        "special_scaled_modified_bessel_k1.default", domain=(-0.1, 30), operand="x"),
    computed("spherical_bessel_j0", "fuselab::spherical_bessel_j0({0})", torch.special.spherical_bessel_j0,
        "fuselab_spherical_bessel_j0({0})", "special_spherical_bessel_j0.default", domain=(-9, 9), operand="x"),
    computed("airy_ai", "fuselab::airy_ai({0})", torch.special.airy_ai, "fuselab_airy_ai({0}.to(tl.float64)).to({t})",
        "special_airy_ai.default", domain=(-9, 9), operand="x"),
    computed("ndtri", "fuselab::ndtri({0})", torch.special.ndtri, "fuselab_ndtri({0})", "special_ndtri.default", domain=(-0.1, 1.1)),
    computed("log_ndtr", "fuselab::log_ndtr({0})", torch.special.log_ndtr, "fuselab_log_ndtr({0})", "special_log_ndtr.default",
        domain=(-30, 9)),
    computed("digamma", "fuselab::digamma({0})", torch.digamma, "fuselab_digamma({0})", "digamma.default", domain=(-9, 30)),
    Row("digamma", ("self",), ("aten.polygamma.default",), "", "", torch.digamma, when={"n": 0}, promote="float", kinds=FLOAT),
    Row("trigamma", ("self",), ("aten.polygamma.default",), "fuselab_trigamma({0})", "fuselab::trigamma({0})",
        lambda a: torch.polygamma(1, a), when={"n": 1}, promote="float", kinds=FLOAT, domain=((-9, 30),)),
    looped("polygamma", ("n", "self"), "fuselab::polygamma({0}, {1})", polygamma, "polygamma.default", domain=((2, 6), (-4, 9))),
    looped("zeta", SELF_OTHER, "({t})fuselab::zeta((double){0}, (double){1})", torch.special.zeta, "special_zeta.default",
        "special_zeta.other_scalar", "special_zeta.self_scalar", domain=((0.9, 9), (-1, 12))),
    looped("igamma", SELF_OTHER, "({t})fuselab::incomplete_gamma({0}, {1}, false)", torch.igamma, "igamma.default",
        domain=((-0.1, 30),)),
    looped("igammac", SELF_OTHER, "({t})fuselab::incomplete_gamma({0}, {1}, true)", torch.igammac, "igammac.default",
        domain=((-0.1, 30),)),
    orthogonal("chebyshev_polynomial_t", "fuselab::chebyshev({0}, {1}, 1)"),
    orthogonal("chebyshev_polynomial_u", "fuselab::chebyshev({0}, {1}, 2)"),
    orthogonal("chebyshev_polynomial_v", "fuselab::chebyshev({0}, {1}, 3)"),
    orthogonal("chebyshev_polynomial_w", "fuselab::chebyshev({0}, {1}, 4)"),
    orthogonal("shifted_chebyshev_polynomial_t", "fuselab::chebyshev({0} + {0} - 1, {1}, 1)"),
    orthogonal("shifted_chebyshev_polynomial_u", "fuselab::chebyshev({0} + {0} - 1, {1}, 2)"),
    orthogonal("shifted_chebyshev_polynomial_v", "fuselab::chebyshev({0} + {0} - 1, {1}, 3)"),
    orthogonal("shifted_chebyshev_polynomial_w", "fuselab::chebyshev({0} + {0} - 1, {1}, 4)"),
    orthogonal("hermite_polynomial_h", "fuselab::hermite({0}, {1}, 2)"),
    orthogonal("hermite_polynomial_he", "fuselab::hermite({0}, {1}, 1)"),
    orthogonal("laguerre_polynomial_l", "fuselab::laguerre({0}, {1})"),
    orthogonal("legendre_polynomial_p", "fuselab::legendre({0}, {1})"),
    unary("angle", "tl.where({0} != {0}, {0}, tl.where({0} < 0, tl.full([], 3.141592653589793, {t}), 0.0))",
        "({0} != {0} ? {0} : {0} < 0 ? ({t})3.141592653589793 : ({t})0)", torch.angle),
    frexp_row("mantissa", 0),
    frexp_row("exponent", 1),
    # libdevice has no function for 16 bits.
    Row("nextafter", SELF_OTHER, ("aten.nextafter.default",),
        {"float": "libdevice.nextafter({0}, {1})", "float16": HALF_STEP, "bfloat16": HALF_STEP},
        {"float": "std::nextafter({0}, {1})", "float16": "fuselab::nextafter_float16({0}, {1})",
        "bfloat16": "fuselab::nextafter_bfloat16({0}, {1})"}, torch.nextafter, opmath=False, kinds=FLOAT),
    # x - x: eager has no limit at infinity.
    unary("bessel_j0", "libdevice.j0({0}) + ({0} - {0})", "({t})::j0((double){0}) + ({0} - {0})", torch.special.bessel_j0,
        aten=("aten.special_bessel_j0.default",), domain=(-9, 9)),
    unary("bessel_j1", "libdevice.j1({0}) + ({0} - {0})", "({t})::j1((double){0}) + ({0} - {0})", torch.special.bessel_j1,
        aten=("aten.special_bessel_j1.default",), domain=(-9, 9)),
    unary("bessel_y0", "libdevice.y0({0}) + ({0} - {0})", "({t})::y0((double){0}) + ({0} - {0})", torch.special.bessel_y0,
        aten=("aten.special_bessel_y0.default",), domain=(0.1, 9)),
    unary("bessel_y1", "libdevice.y1({0}) + ({0} - {0})", "({t})::y1((double){0}) + ({0} - {0})", torch.special.bessel_y1,
        aten=("aten.special_bessel_y1.default",), domain=(0.1, 9)),
    # On a GPU nobody is told: an index out of range reads element 0, and never memory of others.
    Row("index_within", ("index", "size"), (), "tl.where(({0} >= 0) & ({0} < {1}), {0}, 0)", "fuselab::within({0}, {1})", within,
        promote="keep", opmath=False, kinds=("int",), domain=((0, 9), (10, 20))),
    Row("rand", ("seed", "offset"), (), "tl.rand({0}, {1})", "fuselab::rand({0}, {1})", uniform, promote="keep", opmath=False,
        kinds=("int",), domain=((0, 1e9), (0, 1e9))),
    Row("randn", ("seed", "offset"), (), "tl.randn({0}, {1})", "fuselab::randn({0}, {1})", normal, promote="keep", opmath=False,
        kinds=("int",), domain=((0, 1e9), (0, 1e9))),
)  # fmt: skip
