"""Sizes that Dynamo left open, as ``compiler.sizes`` has them: symbols come out of SymInts, and guards go into Dynamo's ShapeEnv."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Literal

import sympy
import torch
from torch.fx import GraphModule

from compiler.errors import CompileError
from compiler.sizes import Size, Sizes, Sym, largest, made, operation

RELIES_ON = (
    "torch.fx.experimental.symbolic_shapes.ShapeEnv.evaluate_expr",
    "torch.fx.experimental.symbolic_shapes.ShapeEnv.bound_sympy",
    "torch.fx.experimental.symbolic_shapes.ShapeEnv.replace",
    "torch.fx.experimental.sym_node.SymNode.expr",
    "torch.fx.experimental.sym_node.SymNode.has_hint",
    "torch.utils._sympy.functions.FloorDiv",
    "torch.utils._sympy.functions.Mod",
    "torch.utils._sympy.functions.Max",
    "torch.utils._sympy.functions.Min",
    "torch.utils._sympy.printers.PythonPrinter",
)
"""Dotted names; beside them the attributes ``node``, ``shape_env``, ``guards`` and ``frozen`` of what these hold."""

OPERATIONS: dict[str, Literal["floordiv", "mod", "max", "min"]] = {
    "FloorDiv": "floordiv", "CleanDiv": "floordiv", "Mod": "mod", "PythonMod": "mod", "Max": "max", "Min": "min",
}  # fmt: skip


class OpenSizes(Sizes):
    """The symbols of a graph that is compiled right now. What a decision needs is asked of the ShapeEnv, which keeps a guard of it."""

    def __init__(self, env: Any) -> None:  # noqa: ANN401  # a ShapeEnv
        super().__init__({}, {})
        self.env = env
        self.expressions: dict[str, Any] = {}

    def size(self, value: object) -> Size:
        """A SymInt as a size.

        Raises CompileError for one whose value is only known when the program runs.
        """
        if isinstance(value, int):
            return int(value)
        node = value.node  # type: ignore[attr-defined]  # a SymInt
        if not node.has_hint():
            raise CompileError("loops", f"the size {value} is only known when the program runs")
        return self._of(node.expr)

    def python(self, value: object) -> str:
        """A SymFloat as Python over the symbols."""
        node = value.node  # type: ignore[attr-defined]  # a SymFloat
        if not node.has_hint():
            raise CompileError("loops", f"the number {value} is only known when the program runs")
        for name in node.expr.free_symbols:
            if not sympy_integer(name):
                raise CompileError("loops", f"the number {value} is left open", hint="compile with dynamic=False")
            self._of(name)
        return self._python(node.expr)

    def _of(self, expr: Any) -> Size:  # noqa: ANN401  # a sympy expression
        if expr.is_Integer:
            return int(expr)
        if expr.is_Symbol:
            return self._symbol(expr)
        arguments = expr.args
        if expr.is_Add:
            total: Size = 0
            for argument in arguments:
                total = total + self._of(argument)
            return total
        if expr.is_Mul and all(self._whole(argument) for argument in arguments):
            product: Size = 1
            for argument in arguments:
                product = product * self._of(argument)
            return product
        if expr.is_Pow and arguments[1].is_Integer and int(arguments[1]) > 0:
            base, power = self._of(arguments[0]), 1
            result: Size = base
            while power < int(arguments[1]):
                result, power = result * base, power + 1
            return result
        op = OPERATIONS.get(type(expr).__name__)
        if op in ("floordiv", "mod"):
            number, by = (self._of(argument) for argument in arguments)
            return number // by if op == "floordiv" else number % by
        if op in ("max", "min"):
            sizes = sorted((self._of(argument) for argument in arguments), key=str)
            last = sizes[-1]
            for one in sizes[-2::-1]:
                last = largest(one, last) if op == "max" else -largest(-one, -last)
            return last
        return self._opaque(expr)

    def _whole(self, expr: Any) -> bool:  # noqa: ANN401
        return bool(expr.is_integer)

    def _symbol(self, expr: Any) -> Size:  # noqa: ANN401
        name = str(expr)
        if name not in self.hints:
            self.hints[name] = self._hint(expr)
            self._bound(name, expr)
            self.expressions[name] = expr
        return self.symbol(name)

    def _opaque(self, expr: Any) -> Size:  # noqa: ANN401
        """What is no arithmetic of whole numbers, such as ``int(s0 * 1.5)``."""
        text = self._python(expr)
        self._bound(text, expr)
        self.expressions[text] = expr
        symbols = sorted((self._symbol(one) for one in expr.free_symbols), key=str)
        return operation(self, "python", text, *symbols)

    def _python(self, expr: Any) -> str:  # noqa: ANN401
        from torch.utils._sympy.printers import PythonPrinter

        text = PythonPrinter().doprint(expr)
        return re.sub(r"\btorch\.sym_(float|max|min)\b", r"\1", str(text)).replace("torch._sym_", "math.")

    def _bound(self, name: str, expr: Any) -> None:  # noqa: ANN401
        low = self.env.bound_sympy(expr).lower
        if low.is_Integer:
            self.least[name] = int(low)

    def _hint(self, expr: Any) -> int:  # noqa: ANN401
        value = self.env.backed_var_to_val[expr] if hasattr(self.env, "backed_var_to_val") else self.env.var_to_val[expr]
        return int(value)

    # Guards

    def ask(self, difference: Sym, relation: Literal[">", "=="]) -> bool:
        expr = self._sympy(difference)
        if self.env.frozen:
            raise CompileError("loops", f"it cannot be decided any more whether {difference} {relation} 0", hint="report this program")
        before = len(self.env.guards)
        answer = bool(self.env.evaluate_expr(sympy.Gt(expr, 0) if relation == ">" else sympy.Eq(expr, 0)))
        if len(self.env.guards) > before:
            self.record(difference, relation if answer else {">": "<=", "==": "!="}[relation])
        return answer

    def _sympy(self, size: Size) -> Any:  # noqa: ANN401
        from torch.utils._sympy.functions import FloorDiv, Max, Min, Mod

        if isinstance(size, int):
            return sympy.Integer(size)
        total = sympy.Integer(0)
        for monomial, factor in size.terms:
            product = sympy.Integer(factor)
            for atom in monomial:
                if atom.op in ("", "python"):
                    product *= self.expressions[atom.name if not atom.op else atom.args[0]]
                    continue
                if atom.op == "value":
                    product *= self._sympy(atom.args[0])
                    continue
                function = {"floordiv": FloorDiv, "mod": Mod, "max": Max, "min": Min}[atom.op]
                product *= function(*(self._sympy(argument) for argument in atom.args))
            total += product
        return total

    def specialise(self, name: str) -> None:
        """The symbol is its present value from now on."""
        self.ask(self._difference(name), "==")

    def _difference(self, name: str) -> Sym:
        difference = self.symbol(name) - self.hints[name]
        assert isinstance(difference, Sym)
        return difference


def sympy_integer(expr: Any) -> bool:  # noqa: ANN401
    return bool(expr.is_integer)


def symbolic_values(value: object) -> Iterable[Any]:
    if isinstance(value, torch.SymInt | torch.SymFloat):
        yield value
    elif isinstance(value, torch.Tensor):
        layout = value.stride() if value.layout == torch.strided else ()
        yield from (size for size in (*value.shape, *layout) if isinstance(size, torch.SymInt))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from symbolic_values(item)


def open_sizes(gm: GraphModule) -> OpenSizes | None:
    """The symbols of an ATen graph, None where all sizes are known."""
    for node in gm.graph.nodes:
        for value in symbolic_values(node.meta.get("val")):
            return OpenSizes(value.node.shape_env)
    return None


__all__ = ["RELIES_ON", "OpenSizes", "made", "open_sizes"]
