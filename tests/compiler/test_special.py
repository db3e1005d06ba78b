"""Special functions far from where the table's samples lie, through g++: eager's answer, overflow and poles included."""

import pytest
import torch

from compiler import backend

S = torch.special
SIZES = torch.cat([torch.logspace(-20, 20, 41), torch.linspace(0, 40, 81), torch.tensor([torch.inf])]).double()
LINE = torch.cat([SIZES, -SIZES, torch.tensor([torch.nan])])
NUMBERS = torch.tensor([1e-3, 0.5, 1, 2, 2.5, 3.3, 7, 9, 19, 20, 55, 100, 120, 1e3, 12345, torch.inf, 0, -0.5, -2.5, -3, -8.5, torch.nan])
DEGREES = torch.tensor([-2, -1, 0, 0.5, 1, 2, 3, 5, 8, 9, 20, 64, 127, 128, 129, 513, 1e3, torch.inf, torch.nan, 1e19])
POINTS = torch.cat([torch.linspace(-2, 2, 33), torch.tensor([torch.inf, -torch.inf, 10, -10, 1e10, -1e10])])

ONE = {
    **{name: getattr(S, name) for name in ("i0e", "i1e", "modified_bessel_k0", "modified_bessel_k1", "scaled_modified_bessel_k0")},
    **{name: getattr(S, name) for name in ("scaled_modified_bessel_k1", "spherical_bessel_j0", "ndtri", "log_ndtr", "digamma")},
    **{f"polygamma_{n}": lambda x, n=n: torch.polygamma(n, x) for n in (0, 1, 2, 3, 4, 20, 100)},
    "angle": torch.angle,
    "frexp": lambda x: torch.frexp(x)[0] * torch.frexp(x)[1],
}
TWO = {"igamma": torch.igamma, "igammac": torch.igammac, "zeta": S.zeta, "nextafter": torch.nextafter}
POLYNOMIALS = {name: getattr(S, name) for name in ("hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p")}  # fmt: skip
CHEBYSHEV = {f"{name}_{kind}": getattr(S, f"{name}_{kind}") for name in ("chebyshev_polynomial", "shifted_chebyshev_polynomial") for kind in "tuvw"}  # fmt: skip


def compare(function, operands, rtol, atol):
    torch._dynamo.reset()
    torch.testing.assert_close(
        torch.compile(function, backend=backend)(*operands), function(*operands), rtol=rtol, atol=atol, equal_nan=True
    )


PRECISION = {torch.float64: {"rtol": 1e-6, "atol": 1e-300}, torch.float32: {"rtol": 2e-4, "atol": 1e-6}}


@pytest.mark.parametrize("dtype", PRECISION, ids=str)
@pytest.mark.parametrize("function", ONE.values(), ids=ONE)
def test_functions_of_one_number(function, dtype):
    compare(function, (LINE.to(dtype),), **PRECISION[dtype])


@pytest.mark.parametrize("dtype", PRECISION, ids=str)
@pytest.mark.parametrize("function", TWO.values(), ids=TWO)
def test_functions_of_two_numbers(function, dtype):
    compare(function, (NUMBERS.to(dtype)[:, None], NUMBERS.to(dtype)), **PRECISION[dtype])


@pytest.mark.parametrize("dtype", PRECISION, ids=str)
@pytest.mark.parametrize("function", POLYNOMIALS.values(), ids=POLYNOMIALS)
def test_polynomials_of_any_degree(function, dtype):
    compare(function, (POINTS.to(dtype)[:, None], DEGREES.to(dtype)), rtol=PRECISION[dtype]["rtol"], atol=1e-5)


@pytest.mark.parametrize("function", CHEBYSHEV.values(), ids=CHEBYSHEV)
def test_polynomials_of_chebyshev(function):
    """In float64 alone: in float32 eager takes cosines of angles that it has rounded."""
    compare(function, (POINTS.double()[:, None], DEGREES.double()), rtol=1e-6, atol=1e-5)
