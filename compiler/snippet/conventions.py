"""What to compile in a script that does not call ``torch.compile``, and with which tensors."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from compiler.trace import Problem

NAMES = ("fn", "f", "model", "Model")
HELPERS = ("get_inputs", "get_init_inputs", "inputs", "main")
DEFINE_INPUTS = "Define inputs = [tensor, ...] or get_inputs(), or call torch.compile(...) yourself."


class NothingToCompile(Exception):
    """The script leaves open what to compile; carries the problem to be shown."""

    def __init__(self, message: str, hint: str, line: int = 0) -> None:
        super().__init__(message)
        self.problem = Problem(kind="snippet", message=message, hint=hint, line=line)


@dataclass(frozen=True, slots=True)
class Choice:
    """What is called with what. ``sentence`` says on the page what was chosen."""

    callee: Callable[..., Any]
    arguments: tuple[Any, ...]
    keywords: dict[str, Any] = field(default_factory=dict)
    sentence: str = ""


def choose(namespace: dict[str, Any], filename: str) -> Choice:
    """The callable of a script that has run, by convention, and its arguments.

    Raises NothingToCompile when there is none, or nothing to call it with.
    """
    name = next((name for name in NAMES if callable(namespace.get(name))), None) or _last_callable(namespace, filename)
    if name is None:
        made = _last_class(namespace)
        if made is not None:
            hint = f"Make one, model = {made.__name__}(...), beside its inputs, or call torch.compile({made.__name__}(...)) yourself."
            raise NothingToCompile(f"There is nothing to compile: the script keeps no module of its class {made.__name__}.", hint)
        raise NothingToCompile("There is nothing to compile: the script defines no function or module.", DEFINE_INPUTS)
    callee = namespace[name]
    said = name
    if isinstance(callee, type):
        initial = namespace["get_init_inputs"]() if callable(namespace.get("get_init_inputs")) else []
        callee, said = _constructed(callee, initial), f"{name}({', '.join(map(repr, initial))})"[:200]
    given = namespace.get("inputs")
    if given is None and callable(namespace.get("get_inputs")):
        given = namespace["get_inputs"]()
    if given is not None:
        if isinstance(given, dict):
            return Choice(callee, (), given, f"Compiled {said}, called with the keywords of inputs.")
        arguments = tuple(given) if isinstance(given, list | tuple) else (given,)
        source = "inputs" if namespace.get("inputs") is not None else "get_inputs()"
        return Choice(callee, arguments, {}, f"Compiled {said}, called with {source}.")
    keywords = _from_top_level(callee, namespace, name)
    shown = ", ".join(f"{parameter}" if parameter == source else f"{parameter}={source}" for parameter, source in keywords.items())
    return Choice(
        callee,
        (),
        {parameter: namespace[source] for parameter, source in keywords.items()},
        f"Compiled {said}({shown}): the script names no inputs.",
    )


def _constructed(kind: type, initial: Sequence[Any]) -> Callable[..., Any]:
    if len(initial) == 2 and isinstance(initial[0], list) and isinstance(initial[1], dict):
        return kind(*initial[0], **initial[1])  # type: ignore[no-any-return]
    return kind(*initial)  # type: ignore[no-any-return]


def _last_callable(namespace: dict[str, Any], filename: str) -> str | None:
    found = None
    for name, value in namespace.items():
        own = inspect.isfunction(value) and inspect.unwrap(value).__code__.co_filename == filename
        if (own or isinstance(value, torch.nn.Module)) and name not in HELPERS and not name.startswith("_"):
            found = name
    return found


def _last_class(namespace: dict[str, Any]) -> type | None:
    """The last class of modules that the script defines."""
    own = [value for value in namespace.values() if isinstance(value, type) and issubclass(value, torch.nn.Module)]
    return next((value for value in reversed(own) if value.__module__ == "__main__"), None)


def _from_top_level(callee: Callable[..., Any], namespace: dict[str, Any], name: str) -> dict[str, str]:
    """The top-level name that each parameter takes: the one of its own name, or else the next tensor."""
    target = callee.forward if isinstance(callee, torch.nn.Module) else callee
    line = getattr(getattr(inspect.unwrap(target), "__code__", None), "co_firstlineno", 0)
    if not isinstance(target, type(_from_top_level)) and not inspect.ismethod(target):
        raise NothingToCompile(f"{name} cannot be called without inputs.", DEFINE_INPUTS, line)
    parameters = inspect.signature(target).parameters.values()
    wanted = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    chosen = {p.name: p.name for p in wanted if p.name in namespace and not callable(namespace[p.name])}
    free = [key for key, value in namespace.items() if isinstance(value, torch.Tensor) and key not in chosen.values()]
    for parameter in wanted:
        if parameter.name in chosen or parameter.default is not parameter.empty:
            continue
        if not free:
            raise NothingToCompile(
                f"There is nothing to call {name} with: no tensor for its parameter {parameter.name!r}.", DEFINE_INPUTS, line
            )
        chosen[parameter.name] = free.pop(0)
    return {p.name: chosen[p.name] for p in wanted if p.name in chosen}


# -- Scripts of plain statements


def is_plain(tree: ast.Module) -> bool:
    """The script neither defines functions or classes nor compiles anything: its top-level statements are the program."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            return False
        if isinstance(node, ast.Attribute) and node.attr == "compile":
            return False
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in ("inputs", "fn"):
            return False
    return True


def reads(statement: ast.stmt) -> set[str]:
    """The names whose values a statement needs."""
    loaded = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load | ast.Del)}
    added = {node.target.id for node in ast.walk(statement) if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name)}
    return loaded | added


def writes(statement: ast.stmt) -> set[str]:
    return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def computes(statement: ast.stmt, namespace: dict[str, Any]) -> bool:
    """The statement reads a tensor or a module that the script has made."""
    return any(isinstance(namespace.get(name), torch.Tensor | torch.nn.Module) for name in reads(statement))


def ends_program(statement: ast.stmt) -> bool:
    """The statement prints, checks or trains: it comes after the program."""
    if isinstance(statement, ast.Assert | ast.Delete | ast.Import | ast.ImportFrom):
        return True
    calls = [node.func for node in ast.walk(statement) if isinstance(node, ast.Call)]
    return any(
        (isinstance(f, ast.Name) and f.id == "print") or (isinstance(f, ast.Attribute) and f.attr in ("backward", "step")) for f in calls
    )


def printed_apart(statement: ast.stmt) -> list[ast.stmt] | None:
    """``print(model(x))`` as two statements, what is computed and what is printed; None if it computes nothing."""
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Name(id="print"), args=arguments) as call):
            if not any(isinstance(node, ast.Call | ast.BinOp) for argument in arguments for node in ast.walk(argument)):
                return None
            assigned = ast.Assign([ast.Name("printed", ast.Store())], ast.Tuple(arguments, ast.Load()))
            shown = ast.Call(call.func, [ast.Starred(ast.Name("printed", ast.Load()), ast.Load())], call.keywords)
            return [ast.fix_missing_locations(ast.copy_location(made, statement)) for made in (assigned, ast.Expr(shown))]
    return None


@dataclass(frozen=True, slots=True)
class Plain:
    """A script's statements as a function: its parameters, its results, and what comes after it."""

    function: ast.FunctionDef
    parameters: tuple[str, ...]
    results: tuple[str, ...]
    rest: list[ast.stmt]


def plain_function(statements: list[ast.stmt], namespace: dict[str, Any]) -> Plain:
    """The statements up to the first that prints or trains, as the function ``top_level``; every line keeps its number.

    It returns what the rest reads, and what nothing in it reads.
    """
    count = next((place for place, statement in enumerate(statements) if ends_program(statement)), len(statements))
    body, rest = statements[:count], statements[count:]
    read = set().union(*map(reads, body)) if body else set()
    written = list(dict.fromkeys(name for statement in body for name in sorted(writes(statement))))
    later = set().union(*map(reads, rest)) if rest else set()
    tensors = [name for name, value in namespace.items() if name in read and isinstance(value, torch.Tensor)]
    changed = [name for name in written if name in namespace and name in read and name not in tensors]
    parameters = (*tensors, *changed)
    last_reads = {name: max((i for i, s in enumerate(body) if name in reads(s)), default=-1) for name in written}
    last_writes = {name: max(i for i, s in enumerate(body) if name in writes(s)) for name in written}
    results = tuple(name for name in written if name in later or last_reads[name] <= last_writes[name] or not read)
    end = body[-1]
    values = ast.Tuple([ast.Name(name, ast.Load()) for name in results], ast.Load())
    if isinstance(end, ast.Expr) and not results:
        body = [*body[:-1], ast.copy_location(ast.Return(end.value), end)]
    else:
        body = [*body, ast.copy_location(ast.Return(values), end)]
    arguments = ast.arguments([], [ast.arg(name) for name in parameters], None, [], [], None, [])
    function = ast.copy_location(ast.FunctionDef("top_level", arguments, body, []), body[0])
    return Plain(ast.fix_missing_locations(function), parameters, results, rest)
