"""Functions of glibc's libmvec, called so that a value does not depend on where it is computed.

GCC calls ``sinf`` for a single float, and variants of libmvec for two, four, eight or sixteen at once. These differ in their last bits.
A value that is computed twice, such as one that the backward pass computes again and compares with its maximum, must come out the same,
whatever loop it stands in. So all of them, the single one too, call the widest variant that the machine has.
"""

from __future__ import annotations

import re

# Since glibc 2.35. The headers offer them only under -ffast-math.
UNARY = (
    "acos", "acosh", "asin", "asinh", "atan", "atanh", "cbrt", "cos", "cosh", "erf", "erfc", "exp", "exp10", "exp2", "expm1",
    "log", "log10", "log1p", "log2", "sin", "sinh", "tan", "tanh",
)  # fmt: skip
BINARY = ("atan2", "hypot", "pow")
_TYPES = (("float", "f", "F"), ("double", "", "D"))

# b, d and e are the letters of SSE, AVX2 and AVX-512 in the names of the vector ABI; a number says how many values are computed at once.
COMMON = """\
#define FUSELAB_VECTOR __attribute__((simd("notinbranch"), const))
#define FUSELAB_USED static __attribute__((used, const))
#define FUSELAB_SIZE(size) __attribute__((vector_size(size)))
typedef float fuselab_bF FUSELAB_SIZE(16), fuselab_dF FUSELAB_SIZE(32), fuselab_eF FUSELAB_SIZE(64);
typedef double fuselab_bD FUSELAB_SIZE(16), fuselab_dD FUSELAB_SIZE(32), fuselab_eD FUSELAB_SIZE(64);
template <class N, class W> static inline W fuselab_widened(N x) { W w = {}; __builtin_memcpy(&w, &x, sizeof x); return w; }
template <class N, class W> static inline N fuselab_narrowed(W w) { N x; __builtin_memcpy(&x, &w, sizeof x); return x; }"""


def vectors(used: str) -> str:
    """The declarations and definitions of what the C++ text calls as ``std::name``."""
    called = set(re.findall(r"std::(\w+)", used))
    lines = []
    for names, operands in ((UNARY, ("x",)), (BINARY, ("x", "y"))):
        for name in names:
            if name in called:
                lines += [_one(name, operands, *kind) for kind in _TYPES]
    if {"sin", "cos"} <= called:  # GCC makes one call of the two
        lines += [SINE_AND_COSINE.format(kind=kind, suffix=suffix) for kind, suffix, _ in _TYPES]
    return "\n".join(lines)


SINE_AND_COSINE = """\
extern "C" {{
static __attribute__((used)) void fuselab_one_sincos{suffix}({kind} x, {kind}* sine, {kind}* cosine) {{
    *sine = fuselab_one_sin{suffix}(x);
    *cosine = fuselab_one_cos{suffix}(x);
}}
}}
asm(".set sincos{suffix}, fuselab_one_sincos{suffix}");"""


def _one(name: str, operands: tuple[str, ...], kind: str, suffix: str, letter: str) -> str:
    """One function of one type. GCC knows it by its usual name; the assembler gives the name of all but the widest variant to ours.

    GCC would not compute a function of another name in a loop with branches, so it would vectorise less.
    """
    full = f"{name}{suffix}"
    lanes = {"b": 4, "d": 8, "e": 16} if kind == "float" else {"b": 2, "d": 4, "e": 8}
    mark = "v" * len(operands)

    def typed(type_name: str) -> str:
        return ", ".join(f"{type_name} {operand}" for operand in operands)

    def variants(wide: str, narrower: str) -> str:
        vector = f"fuselab_{wide}{letter}"
        widest = f"_ZGV{wide}N{lanes[wide]}{mark}_{full}"
        single = ", ".join(f"{vector}{{{operand}}}" for operand in operands)
        rows = [
            f'extern "C" {vector} {widest}({", ".join([vector] * len(operands))}) noexcept;',
            f'extern "C" {{ FUSELAB_USED {kind} fuselab_one_{full}({typed(kind)}) {{ return {widest}({single})[0]; }} }}',
            f'asm(".set {full}, fuselab_one_{full}");',
        ]
        for part in narrower:
            small = f"fuselab_{part}{letter}"
            given = ", ".join(f"fuselab_widened<{small}, {vector}>({operand})" for operand in operands)
            rows += [
                f'extern "C" {{ FUSELAB_USED {small} fuselab_{part}_{full}({typed(small)}) '
                f"{{ return fuselab_narrowed<{small}, {vector}>({widest}({given})); }} }}",
                f'asm(".set _ZGV{part}N{lanes[part]}{mark}_{full}, fuselab_{part}_{full}");',
            ]
        return "\n".join(rows)

    return "\n".join([
        f"#if defined(__AVX512F__)\n{variants('e', 'db')}",
        f"#elif defined(__AVX2__)\n{variants('d', 'b')}",
        f"#else\n{variants('b', '')}\n#endif",
        f'extern "C" FUSELAB_VECTOR {kind} {full}({typed(kind)}) noexcept;',
        f"namespace std {{ inline {kind} {name}({typed(kind)}) {{ return __builtin_{full}({', '.join(operands)}); }} }}",
    ])  # fmt: skip
