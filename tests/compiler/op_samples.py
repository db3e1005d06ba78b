"""Operands on which the rows of the table are tried: points of the row's domain, and the values at which arithmetic is hard."""

import zlib

import torch

from compiler.ops import Row, kind_of

COUNT = 160
SPECIAL = {
    "float64": [float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -1.5, 5e-324, -1e-310, 1e300],
    "float32": [float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -1.5, 1e-45, -1e-40, 1e38],
}
NORMAL_DIVISOR = {"fmod", "remainder", "floor_divide"}  # eager's vectors give NaN for a denormal one; ours is exact
# Eager raises for a zero divisor and for a negative power.
NO_SPECIAL_INT = {"floor_divide": (1,), "trunc_divide": (1,), "fmod": (1,), "remainder": (1,), "pow": (0, 1)}
ONLY_INT64 = ("rand", "randn", "index_within")
SCALARS = {
    "add_scaled": (2,), "sub_scaled": (2,), "leaky_relu": (1,), "leaky_relu_backward": (2,), "threshold": (1, 2), "threshold_backward": (2,),
    "softplus": (1, 2), "softplus_backward": (2, 3), "hardtanh": (1, 2), "hardtanh_backward": (2, 3), "elu": (1, 2, 3), "celu": (1,), **{f"pow_{name}": (1,) for name in ("2", "3", "half", "minus_half", "minus_1", "minus_2")},
    "elu_backward": (2, 3, 4), "elu_backward_of_result": (2, 3, 4), "softshrink": (1,), "softshrink_backward": (2,), "hardshrink": (1,),
    "hardshrink_backward": (2,), "addcmul": (3,), "addcdiv": (3,), "logit_clamped": (1,), "dropout_backward": (1, 2),
    "polygamma": (0,),
}  # fmt: skip

WHOLE_NUMBERS = {"polygamma": (0,)}
# Eager's logarithm of half a denormal is that of 0; its igamma of a denormal is 0, not 1.
NORMAL = {"bessel_k0", "bessel_k1", "scaled_bessel_k0", "scaled_bessel_k1", "igamma", "igammac"}

POLYNOMIALS = {
    *(f"{shifted}chebyshev_polynomial_{kind}" for shifted in ("", "shifted_") for kind in "tuvw"), "hermite_polynomial_h",
    "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p",
}  # fmt: skip
NO_NAN = POLYNOMIALS  # eager returns what was in memory, if the degree is not 0 or 1


def computing_dtypes(row: Row) -> list[str]:
    """The dtypes that templates see."""
    if row.name in ONLY_INT64:
        return ["int64"]
    return [dtype for dtype in ("float32", "float64", "int64", "int32", "int8", "uint8", "bool") if kind_of(dtype) in row.kinds]


def operand_dtypes(row: Row, dtype: str) -> list[str]:
    return ["bool" if row.name == "where" and k == 0 else dtype for k in range(len(row.operands))]


def result_dtype(row: Row, dtype: str) -> str:
    return "bool" if row.promote == "bool" else "float32" if row.name in ("rand", "randn") else dtype


def specials(row: Row, operand: int, dtype: str) -> list[float]:
    if operand in SCALARS.get(row.name, ()) or row.name in ONLY_INT64:
        return []
    if kind_of(dtype) == "float":
        if row.name in NO_NAN and operand == 0:
            return SPECIAL[dtype][1:]
        normal = row.name in NORMAL or (operand == 1 and row.name in NORMAL_DIVISOR)
        return [value for value in SPECIAL[dtype] if not (normal and 0 < abs(value) < 1e-30)]
    if kind_of(dtype) == "bool" or operand in NO_SPECIAL_INT.get(row.name, ()):
        return []
    limits = torch.iinfo(getattr(torch, dtype))
    return [limits.min, limits.max, 0, 1, limits.max - 1]


def sample(row: Row, dtype: str) -> list[torch.Tensor]:
    """One tensor for each operand: random points first, then special values of each operand, then pairs of them for the first two."""
    generator = torch.Generator().manual_seed(zlib.crc32(f"{row.name} {dtype}".encode()))
    columns: list[torch.Tensor] = []
    for operand, each in enumerate(operand_dtypes(row, dtype)):
        low, high = row.bounds(operand)
        points = torch.rand(COUNT + 200, generator=generator, dtype=torch.float64) * (high - low) + low
        if each == "bool":
            points = (points > (low + high) / 2).double()
        elif operand in WHOLE_NUMBERS.get(row.name, ()):
            points = points.round()
        elif kind_of(each) == "int":
            points = points.round().clamp_min(0 if each == "uint8" else -(2.0**62))
        columns.append(points.to(getattr(torch, each)))
    place = COUNT // 2
    for operand, column in enumerate(columns):
        values = torch.tensor(
            specials(row, operand, dtype) if column.dtype != torch.bool else [],
            dtype=torch.float64 if kind_of(dtype) == "float" else torch.int64,
        )
        column[place : place + len(values)] = values.to(column.dtype)
        place += len(values)
    if len(columns) >= 2:
        first, second = (specials(row, operand, dtype) if columns[operand].dtype != torch.bool else [] for operand in (0, 1))
        for position, (a, b) in enumerate([(a, b) for a in first for b in second]):
            if COUNT + position < len(columns[0]):
                columns[0][COUNT + position], columns[1][COUNT + position] = a, b
    return columns


def tolerance(row: Row, dtype: str) -> dict[str, float]:
    """A few units in the last place; functions that a library computes by series of single precision get more."""
    if kind_of(dtype) != "float" and row.name not in ("rand", "randn"):
        return {"rtol": 0.0, "atol": 0.0}
    if row.name in EAGER_IS_ROUGH:
        return {"rtol": EAGER_IS_ROUGH[row.name], "atol": 2e-5}
    loose = row.name in LOOSE
    if dtype == "float64":
        return {"rtol": 1e-6 if loose else 1e-11, "atol": 1e-6 if loose else 1e-12}
    return {"rtol": 2e-4 if loose else 4e-6, "atol": 2e-5 if loose else 2e-6}


# Eager's Bessel functions and its sixth in hardsigmoid_backward are good to single precision only.
LOOSE = {
    "hardsigmoid_backward", "lgamma", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "erfinv", "randn", "logaddexp2", "pow",
    "digamma", "trigamma", "polygamma", "bessel_i0e", "bessel_i1e", *NORMAL, "ndtri", "log_ndtr", *POLYNOMIALS,
}  # fmt: skip
EAGER_IS_ROUGH = {"airy_ai": 5e-4}  # against 40 digits: 2e-5 in float64, 3e-4 in float32
