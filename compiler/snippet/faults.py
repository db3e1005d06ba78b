"""What went wrong in a script, with the place in it and what to do."""

from __future__ import annotations

import re
import socket
import sys
import traceback
from collections.abc import Iterator
from typing import Literal

from compiler import blame
from compiler.blame import foreseen
from compiler.capture.running import eagers_error
from compiler.errors import CompileError
from compiler.observe.inductor_config import UnknownEntry
from compiler.observe.torch_names import cause, is_broken_promise, is_compiled_too_often, is_untraceable, user_frames
from compiler.recorder import Recorder
from compiler.spans import SNIPPET
from compiler.trace import Problem, StageName

MAX_MESSAGE = 3_000
MAX_DETAIL = 20_000
NO_BREAK = "fullgraph=True allows no graph break; without it Dynamo would break the graph at this line."

HINTS: dict[type[BaseException], str] = {
    MemoryError: "Use smaller tensors.",
    RecursionError: "The script calls itself too deeply.",
    EOFError: "Nobody answers: write the value into the snippet instead of asking for it.",
    PermissionError: "In the playground a snippet reads Python's packages and writes to its own temporary folder, and nothing else.",
    socket.gaierror: "A snippet in the playground has no network: make the data in the snippet itself, such as with torch.randn.",
}

NOT_PYTHON = "This line is not Python."
FOREIGN = (
    (r"(>>>|\.\.\.)|(In|Out) ?\[\d*\]:", "Leave out the prompts (>>> and ...) and what was printed: a snippet is Python source alone."),
    (r"[%!]|[\w, ]+= ?[%!]|\?|.*\?$", "This is a command of IPython's: leave out lines that begin with % or !, or that ask with ?."),
    (r"```|~~~", "Leave out the marks around the code: a snippet is Python source alone."),
    (r"\$ ", "This is a command of a shell: a snippet is Python source alone."),
)
"""How lines begin that are pasted with Python from elsewhere, and what to do about them."""

NO_OTHERS = (
    "A snippet in the playground has no network and no processes of its own, nor memory shared between them: compute in this one process."
)
IN_FILES = (
    "Inductor wanted to write files where a run may not, such as a folder of debugging files: leave out the entry of its configuration "
    "that asks for them."
)
IN_INDUCTOR = (
    "Inductor itself raised this while it compiled. Leave out what was set of its configuration; if it raises it without, it is a fault of "
    "PyTorch's, to be reported there."
)
EAGER_TOO = "Eager PyTorch raises here as well, {}. The program or its inputs have to change."
INDUCTOR_STAGES: tuple[tuple[str, StageName], ...] = (
    ("torch/_functorch/", "joint"),
    ("torch/_inductor/fx_passes/", "passes"),
    ("torch/_inductor/pattern_matcher.py", "passes"),
    ("torch/_inductor/compile_fx.py", "passes"),
    ("torch/_inductor/graph.py", "loops"),
    ("torch/_inductor/lowering.py", "loops"),
    ("torch/_inductor/ir.py", "loops"),
    ("torch/_inductor/scheduler.py", "fusion"),
    ("torch/_inductor/select_algorithm.py", "autotune"),
    ("torch/_inductor/codegen/", "code"),
    ("torch/_inductor/codecache.py", "wrapper"),
    ("torch/_inductor/cpp_builder.py", "wrapper"),
    ("torch/_inductor/async_compile.py", "wrapper"),
)
"""Which stage shows what is done in a file of PyTorch's."""

NO_DRIVER = (
    "The script launches a Triton kernel of its own, which needs a GPU, and the target is the CPU. Choose a GPU as the target: the kernel "
    "is then compiled for it, and runs on Triton's interpreter where that GPU is not here."
)


def syntax_problem(error: SyntaxError | ValueError | RecursionError) -> Problem:
    """A script that is no Python."""
    if isinstance(error, SyntaxError):
        column = max(0, (error.offset or 1) - 1)
        return Problem(
            kind="snippet",
            message=f"{type(error).__name__}: {error.msg}",
            line=error.lineno or 0,
            column=column,
            hint=next((hint for begins, hint in FOREIGN if re.match(begins, (error.text or "").strip())), NOT_PYTHON),
        )
    return Problem(kind="snippet", message=f"The snippet cannot be parsed: {error}"[:MAX_MESSAGE])


def problem_of(error: BaseException, recorder: Recorder) -> Problem:
    """The problem behind an exception that reached the end of the script: that of the failed stage, or the script's own."""
    line, column = place_of(error)
    inner = cause(error)
    if recorder.problem is not None and (recorder.failed is inner or isinstance(inner, CompileError)):
        known = recorder.problem
        return known if known.line else known.model_copy(update={"line": line, "column": column})
    if isinstance(inner, CompileError):
        return inner.problem().model_copy(update={"line": inner.line or line, "column": inner.column or column})
    if isinstance(error, SystemExit):
        return Problem(kind="snippet", message=f"The script ended itself with status {error.code!r}.", line=line, column=column)
    if is_untraceable(inner):
        return untraceable(str(inner), line, column)
    if isinstance(inner, UnknownEntry):
        message, hint = str(inner)[:MAX_MESSAGE], inner.hint[:MAX_MESSAGE]
        return Problem(kind="snippet", message=message, line=line, column=column, hint=hint)
    if is_compiled_too_often(inner):
        return compiled_too_often(inner, line, column)
    if is_broken_promise(inner):
        return broken_promise(str(inner), line)
    text = plain_message(str(inner).strip() or str(error).strip())
    detail = "".join(traceback.format_exception(error, limit=-12))
    stage = inductor_stage(inner)
    if stage and foreseen(inner):
        line, column = blame.place_of(inner).line or line, blame.place_of(inner).column
    op, eager = "", eagers_error(inner)
    if eager is not None:
        place = blame.place_of(eager)
        op, line, column = place.op, *((place.line, place.column) if place.line and not place.file else (line, column))
    return Problem(
        kind="snippet",
        stage=stage,
        op=op[:400],
        message=(text if re.match(r"\w+Error: ", text) else f"{type(inner).__name__}: {text}")[:MAX_MESSAGE].rstrip(": "),
        line=line,
        column=column,
        hint=_hint(inner, text, stage) if eager is None else _of_eager(eager, inner),
        detail=detail.encode("utf-8", "replace").decode()[-MAX_DETAIL:],
    )


def _hint(error: BaseException, text: str, stage: str) -> str:
    files = [frame.filename for one in chain(error) for frame in traceback.extract_tb(one.__traceback__)]
    if "active drivers" in text:
        return NO_DRIVER
    if isinstance(error, OSError | RuntimeError) and any("/multiprocessing/" in file or "/torch/distributed/" in file for file in files):
        return NO_OTHERS
    if known := foreseen(error):
        return known
    if stage:
        return IN_FILES if isinstance(error, OSError) else IN_INDUCTOR
    if missing := next((one.name for one in chain(error) if isinstance(one, ModuleNotFoundError) and one.name), None):
        return _not_there(missing)
    return next((hint for kind, hint in HINTS.items() if any(isinstance(one, kind) for one in chain(error))), "")


def _not_there(module: str) -> str:
    """What to do without a module. Of what is installed only the certain is said: a terminal's Python may have more than a playground's."""
    package = module.partition(".")[0]
    if package != module and package in sys.modules:
        return f"{package} is installed where this snippet runs, but has no module {module}: its version may be another."
    return f"{package} is not installed where this snippet runs. Do without it: torch and Python's standard library are there."


def _of_eager(eager: Exception, raised: BaseException) -> str:
    return blame.OF_EAGER if eager is raised else EAGER_TOO.format(f"{type(eager).__name__}: {eager}"[:MAX_MESSAGE].rstrip("."))


def inductor_stage(error: BaseException) -> StageName | Literal[""]:
    """The stage at which Inductor raised this while it compiled, "" if it did not."""
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    if not any("torch/_inductor/compile_fx.py" in file for file in files):
        return ""
    found = [stage for file in files for place, stage in INDUCTOR_STAGES if place in file]
    return found[-1] if found else ""


def chain(error: BaseException) -> Iterator[BaseException]:
    """The exception and those in whose handling it was raised."""
    for _ in range(20):
        yield error
        before = error.__cause__ or error.__context__
        if before is None:
            return
        error = before


def untraceable(text: str, line: int, column: int) -> Problem:
    """What Dynamo cannot trace where no graph break is allowed: its explanation as the message, its hints as the hint."""
    rows = [row.strip() for row in plain_message(text).splitlines() if row.strip()]
    hints = [row.removeprefix("Hint: ") for row in rows if row.startswith("Hint: ") and "report an issue" not in row]
    told = [row.removeprefix("Explanation: ") for row in rows if not row.startswith("Hint: ")]
    return Problem(
        kind="snippet",
        stage="dynamo",
        message=": ".join([told[0], " ".join(told[1:])] if told[1:] else told)[:MAX_MESSAGE],
        line=line,
        column=column,
        hint=" ".join([NO_BREAK, *hints])[:MAX_MESSAGE],
        detail=text.encode("utf-8", "replace").decode()[-MAX_DETAIL:],
    )


def compiled_too_often(error: BaseException, line: int, column: int) -> Problem:
    """A function that would have been compiled once more than the limit allows, where leaving it to eager is not allowed."""
    why = next((str(one) for one in chain(error) if is_untraceable(one)), str(error))
    told = untraceable(why, line, column)
    ending = "fullgraph=True leaves nothing to eager; without it calls that fit no compiled graph run in eager."
    return told.model_copy(update={"hint": told.hint.replace(NO_BREAK, ending)})


def broken_promise(text: str, line: int) -> Problem:
    """A size that was marked as open, and that the code made a constant: the place where it did."""
    rows = [row.strip().removeprefix("- ") for row in text.splitlines() if row.strip().startswith("- ")]
    places = re.findall(rf'File "{re.escape(SNIPPET)}", line (\d+)', text)
    said, _, hint = (rows[0] if rows else text).partition(". ")
    return Problem(
        kind="snippet",
        stage="dynamo",
        message=said[:MAX_MESSAGE],
        line=int(places[-1]) if places else line,
        hint=hint[:MAX_MESSAGE],
        detail=text.encode("utf-8", "replace").decode()[-MAX_DETAIL:],
    )


def plain_message(text: str) -> str:
    """A message without what Dynamo adds for its own developers."""
    text = text.partition("\nfrom user code:")[0].partition("\nSet TORCHDYNAMO_VERBOSE")[0]
    tracing = re.search(r"got (\w+)\((['\"])(.*?)\2\)", text, re.DOTALL)
    if tracing and "fake tensor" in text:
        return f"{tracing[1]}: {tracing[3]}"
    lines = [line for line in text.splitlines() if not line.strip().startswith(("Developer debug context", "For more details about"))]
    return "\n".join(lines).strip()


def place_of(error: BaseException) -> tuple[int, int]:
    """The last line of the script that the exception passed, and the column there."""
    frames = [frame for frame in user_frames(error) if frame.filename == SNIPPET]
    if not frames:
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == SNIPPET]
    if not frames:
        return 0, 0
    return frames[-1].lineno or 0, getattr(frames[-1], "colno", None) or 0
