"""Rows for special functions that libdevice and the C++ library have, and for random numbers."""

from __future__ import annotations

import torch
from torch import Tensor

from compiler.ops.row import Row, unary

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
    Row("nextafter", ("self", "other"), ("aten.nextafter.default",), "libdevice.nextafter({0}, {1})", "std::nextafter({0}, {1})",
        torch.nextafter, opmath=False, kinds=("float",)),
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
