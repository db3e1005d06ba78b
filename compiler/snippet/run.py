"""Runs a script as ``__main__``, with every ``torch.compile`` going through our pipeline, and emits what happens as events."""

from __future__ import annotations

import ast
import contextlib
import functools
import linecache
import math
import sys
import time
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from compiler.capture import compile_region
from compiler.capture.examine import Examiner
from compiler.capture.observed import observe_region
from compiler.capture.present import present_here
from compiler.capture.uncompiled import eager_region
from compiler.observe.absent_gpu import optimisers_as_on_gpu
from compiler.observe.dynamo_names import watching_frames
from compiler.observe.inductor_config import Entries, UnknownEntry, check_backend, checked_entries, configuration, settings_of
from compiler.observe.inductor_names import usual_autograd
from compiler.observe.own_kernels import launches_captured
from compiler.observe.torch_names import fresh_dynamo, optimize, real_tensors
from compiler.options import Options
from compiler.recorder import Recorder
from compiler.runtime.triton_launches import launches_interpreted
from compiler.snippet.conventions import (
    Choice,
    NothingToCompile,
    choose,
    computes,
    ends_program,
    is_plain,
    plain_function,
    printed_apart,
)
from compiler.snippet.devices import STAND_IN, Cuda, tensors_on, to_cpu
from compiler.snippet.environment import environment
from compiler.snippet.faults import problem_of, syntax_problem
from compiler.snippet.modules import remember_modules
from compiler.snippet.output import Printed, plain_warnings
from compiler.spans import SNIPPET
from compiler.target import Target
from compiler.trace import Begin, End, Event, Problem

SHARE = 0.75
"""Of a run's time, when nothing more is begun that it can do without: what has been begun still has to end."""
Turn = Callable[[], contextlib.AbstractContextManager[object]]


def run_snippet(
    source: str,
    options: Options,
    target: Target,
    compiler: str,
    emit: Callable[[Event], None],
    turn: Turn = contextlib.nullcontext,
    seconds: float = math.inf,
) -> int:
    """0 when the script ran and all of it was compiled, 1 otherwise. ``emit`` gets a Begin first and an End last, whatever happens.

    Inside ``turn()`` nothing else is measured on the device. After ``seconds`` the run is ended from outside; before that, what it can do
    without is left out.
    """
    emit(Begin.model_validate({
        "compiler": compiler, "target": target.name, "options": options.as_facts(), "environment": environment(target),
    }))  # fmt: skip
    recorder = Recorder(emit, until=time.monotonic() + SHARE * seconds)
    run = Run(source, options, target, recorder, turn, compiler)
    problem = run.whole()
    emit(End(status="error" if problem else "ok", problem=problem))
    return 1 if problem else 0


@dataclass(slots=True)
class Run:
    """One run of one script."""

    source: str
    options: Options
    target: Target
    recorder: Recorder
    turn: Turn = contextlib.nullcontext
    compiler: str = "fuselab"
    examiner: Examiner = field(init=False)
    asked: list[Callable[..., Any]] = field(default_factory=list)
    notes: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.examiner = Examiner(self.recorder, self.options, self.target, compiler=self.compiler)  # type: ignore[arg-type]  # held by the caller

    def whole(self) -> Problem | None:
        """Runs, then measures; the first thing that went wrong, if anything did."""
        try:
            entries = checked_entries(self.options.config)
        except UnknownEntry as error:
            return Problem(kind="snippet", message=str(error)[:4_000], hint=error.hint[:4_000])
        self._say_options(entries)
        out, err = Printed("stdout", self.recorder.emit), Printed("stderr", self.recorder.emit)
        settings, watching = configuration(entries), watching_frames(self.examiner.frames.log)
        problem: Problem | None = None
        with (
            fresh_dynamo(),
            usual_autograd(self.compiler),
            plain_warnings(),
            settings,
            watching,
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            try:
                problem = self._script()
                out.finish()
                err.finish()
                with self.turn() if self.options.measure and present_here(self.target) else contextlib.nullcontext():
                    self.examiner.finish()
            except Exception as error:  # the trace must end, whatever is broken in the compiler; the problem tells it
                problem = problem or problem_of(error, self.recorder)
            finally:
                out.finish()
                err.finish()
        return problem or self.recorder.problem

    def _script(self) -> Problem | None:
        try:
            tree = ast.parse(self.source, SNIPPET)
        except (SyntaxError, ValueError, RecursionError) as error:
            return syntax_problem(error)
        if any(node for node in ast.walk(tree)) and not tree.body:
            return Problem(kind="snippet", message="The snippet is empty.", hint="Write a function of tensors, or choose an example.")
        linecache.cache[SNIPPET] = (len(self.source), None, self.source.splitlines(keepends=True), SNIPPET)
        module = types.ModuleType("__main__")
        module.__dict__.update(__file__=SNIPPET, __builtins__=__builtins__)
        before, arguments = sys.modules["__main__"], sys.argv
        sys.modules["__main__"], sys.argv = module, [SNIPPET]
        try:
            with self._devices(tree, module.__dict__), remember_modules(self.examiner.modules), self._compiling():
                self._run(tree, module.__dict__)
            return None
        except NothingToCompile as error:
            return error.problem
        except SystemExit as error:
            return None if error.code in (None, 0) else problem_of(error, self.recorder)
        except Exception as error:  # anything that a script can raise
            return problem_of(error, self.recorder)
        finally:
            sys.modules["__main__"], sys.argv = before, arguments

    @contextlib.contextmanager
    def _devices(self, tree: ast.Module, namespace: dict[str, Any]) -> Iterator[None]:
        """Where tensors live: on the target's device if it is here, or else on the CPU, in its stead."""
        if self.target.is_gpu and present_here(self.target):
            with tensors_on("cuda"):
                yield
            return
        namespace[STAND_IN] = Cuda(self.target)
        if to_cpu(tree):
            self.recorder.note(
                f"The script speaks of a GPU. Its tensors are on the CPU here, and stand for tensors on {self.target.name}."
                if self.target.is_gpu
                else "The script speaks of a GPU; it was compiled for the CPU, which is the chosen target."
            )
        with contextlib.ExitStack() as stack:
            if self.target.is_gpu:
                stack.enter_context(optimisers_as_on_gpu())
                stack.enter_context(launches_interpreted(self._say_once, real_tensors))
            if self.target.is_gpu and self.compiler == "inductor":
                stack.enter_context(launches_captured())
            yield

    @contextlib.contextmanager
    def _compiling(self) -> Iterator[None]:
        """``torch.compile`` in the script means our compiler."""
        original = torch.compile
        torch.compile = self._compile
        try:
            yield
        finally:
            torch.compile = original

    def _compile(
        self,
        model: Callable[..., Any] | None = None,
        *,
        fullgraph: bool | None = None,
        dynamic: bool | None = None,
        backend: object = None,
        mode: str | None = None,
        options: dict[str, Any] | None = None,
        disable: bool = False,
        **_: object,
    ) -> Any:  # noqa: ANN401  # as torch.compile: what it was given, or a decorator
        if model is None:
            return lambda function: self._compile(
                function, fullgraph=fullgraph, dynamic=dynamic, backend=backend, mode=mode, options=options, disable=disable
            )
        if disable:
            return model
        if isinstance(backend, str):
            check_backend(backend)
        if self.compiler == "inductor" and backend not in (None, "inductor"):
            self._say_other_backend(backend)
        if self.compiler == "fuselab":
            self._say_ignored(backend=None if backend == "fuselab" else backend, mode=None if mode == "default" else mode, options=options)
        given: dict[str, object] = {"dynamic": dynamic, "fullgraph": fullgraph}
        given |= {"mode": mode, "options": options} if self.compiler == "inductor" else {}
        said = ", ".join(f"{name}={value!r}"[:1_000] for name, value in given.items() if value is not None)
        if said:
            self._say_once(f"The script itself gives torch.compile {said}, which goes before the run's options.")
        fullgraph = self.options.fullgraph if fullgraph is None else fullgraph
        dynamic = self.options.dynamic if dynamic is None else dynamic
        settings = settings_of(mode or (None if options else self.options.mode), options, dynamic) if self.compiler == "inductor" else {}
        compiled = optimize(functools.partial(self._backend, settings=settings, given=said), fullgraph=fullgraph, dynamic=dynamic)(model)
        self.asked.append(compiled)
        return compiled

    def _say_options(self, entries: Entries) -> None:
        """The options of the run that its compiler does not follow are said."""
        ignored = [f"mode {self.options.mode}"] if self.options.mode != "default" else []
        ignored += [f"inductor.{name}" for name in entries.inductor]
        if ignored and self.compiler != "inductor":
            who = "Fuselab's own compiler" if self.compiler == "fuselab" else "Eager PyTorch"
            said = f"{who} follows neither modes nor entries of Inductor's configuration; ignored: {', '.join(ignored)}."
            self.recorder.note(said[:4_000])

    def _say_ignored(self, **given: object) -> None:
        """What ``torch.compile`` was asked for and does not get here is said, once."""
        ignored = ", ".join(f"{name}={value!r}"[:80] for name, value in given.items() if value is not None)
        note = f"torch.compile was given {ignored}, which was ignored: everything here is compiled by Fuselab, in one mode."
        if ignored:
            self._say_once(note)

    def _say_other_backend(self, backend: object) -> None:
        """A backend that is not Inductor is not run, which is said, once for each."""
        name = repr(backend) if isinstance(backend, str) else getattr(backend, "__name__", type(backend).__name__)
        note = f"torch.compile was given backend={name[:200]}, which was not run: what is shown is what Inductor makes of the same graphs."
        self._say_once(note)

    def _say_once(self, note: str) -> None:
        if note not in self.notes:
            self.notes.add(note)
            self.recorder.note(note)

    def _backend(self, gm: torch.fx.GraphModule, inputs: list[Any], *, settings: Mapping[str, Any], given: str) -> Callable[..., Any]:
        self.examiner.frames.given = given
        if self.compiler == "eager":
            return eager_region(gm, inputs, target=self.target, recorder=self.recorder, observer=self.examiner)
        if self.compiler != "fuselab":
            return observe_region(gm, inputs, settings=settings, target=self.target, recorder=self.recorder, observer=self.examiner)
        return compile_region(gm, inputs, options=self.options, target=self.target, recorder=self.recorder, observer=self.examiner)

    # What is executed

    def _run(self, tree: ast.Module, namespace: dict[str, Any]) -> None:
        plain = is_plain(tree)
        if plain:
            plain = self._plain(tree, namespace)
        else:
            exec(compile(tree, SNIPPET, "exec", dont_inherit=True), namespace)
        if not plain and self.recorder.regions == 0:
            if problem := self.examiner.frames.gave_up():
                raise NothingToCompile(problem.message, problem.hint, problem.line)
            self._chosen(namespace)

    def _plain(self, tree: ast.Module, namespace: dict[str, Any]) -> bool:
        """Runs a script of statements; whether there was something to compile in it."""
        statements = list(tree.body)
        while statements and not (computes(statements[0], namespace) and not ends_program(statements[0])):
            if computes(statements[0], namespace) and (computed := printed_apart(statements[0])):
                statements[:1] = computed
                continue
            exec(compile(ast.Module([statements.pop(0)], []), SNIPPET, "exec", dont_inherit=True), namespace)
        if not statements:
            return False
        found = plain_function(statements, namespace)
        if not found.function.body or not (found.parameters or found.results):
            exec(compile(ast.Module(statements, []), SNIPPET, "exec", dont_inherit=True), namespace)
            return False
        made = ast.fix_missing_locations(ast.Module([found.function], []))
        exec(compile(made, SNIPPET, "exec", dont_inherit=True), namespace)
        first = found.function.body[0].lineno
        last = found.function.body[-1].lineno
        self.recorder.note(
            (f"Compiled line {first}" if first == last else f"Compiled the statements of lines {first} to {last}")
            + " as one function"
            + (f" of {', '.join(found.parameters)}." if found.parameters else ".")
        )
        results = self._compile(namespace.pop("top_level"))(*[namespace[name] for name in found.parameters])
        if found.results:
            namespace.update(zip(found.results, results, strict=True))
        exec(compile(ast.Module(found.rest, []), SNIPPET, "exec", dont_inherit=True), namespace)
        return True

    def _chosen(self, namespace: dict[str, Any]) -> None:
        """Compiles and calls what the conventions say."""
        choice = choose(namespace, SNIPPET)
        self.recorder.note(choice.sentence)
        compiled = choice.callee if choice.callee in self.asked else self._compile(choice.callee)
        with torch.set_grad_enabled(torch.is_grad_enabled() and wants_gradients(choice)):
            result = compiled(*choice.arguments, **choice.keywords)
        if isinstance(result, torch.Tensor) and result.numel() == 1 and result.requires_grad:
            self.recorder.note("The result is a number that requires gradients: its backward pass was run as well.")
            result.backward()


def wants_gradients(choice: Choice) -> bool:
    """A function does if anything that it reads does; a module only if an input does or its result is a loss."""
    if not isinstance(choice.callee, torch.nn.Module):
        return True
    values = [*choice.arguments, *choice.keywords.values()]
    if any(isinstance(value, torch.Tensor) and value.requires_grad for value in values):
        return True
    try:
        return scalar_result(choice.callee, choice)
    except Exception:  # the module may not run on shapes alone; then its gradients are kept
        return True


def scalar_result(module: torch.nn.Module, choice: Choice) -> bool:
    """The module's result has one element, judged by shapes alone."""
    state = {name: value.to("meta") for name, value in (*module.named_parameters(), *module.named_buffers())}
    arguments = [value.to("meta") if isinstance(value, torch.Tensor) else value for value in choice.arguments]
    keywords = {name: value.to("meta") if isinstance(value, torch.Tensor) else value for name, value in choice.keywords.items()}
    with torch.no_grad():
        result = torch.func.functional_call(module, state, tuple(arguments), keywords)
    return isinstance(result, torch.Tensor) and result.numel() == 1
