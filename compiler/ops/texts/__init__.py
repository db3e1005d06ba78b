"""Special functions that neither libm nor libdevice has, for the prelude: as C++ and, where no loop depends on the operands, as Triton.

In C++ they compute in double whatever the dtype, but for those that eager lets overflow or round in the dtype: these are templates.
"""

from __future__ import annotations

from compiler.ops.texts import bessel, bits, gamma, normal, orthogonal
from compiler.ops.texts.polynomials import POLYNOMIALS, cpp_polynomial, triton_polynomial

CPP_SPECIAL = "".join([
    *(cpp_polynomial(name, row) for name, row in POLYNOMIALS.items()),
    gamma.CPP, bessel.CPP, normal.CPP, orthogonal.CPP, bits.CPP,
])  # fmt: skip
TRITON_SPECIAL: dict[str, str] = {
    **{f"fuselab_{name}": triton_polynomial(name, row) for name, row in POLYNOMIALS.items()},
    **gamma.TRITON, **bessel.TRITON, **normal.TRITON, **bits.TRITON,
}  # fmt: skip
