"""What goes wrong while a snippet is compiled: each error says at which stage, where in the visitor's code, and what to do."""

from compiler.trace import Problem


class CompileError(Exception):
    """A snippet or one of its graphs cannot be compiled.

    ``stage`` is a stage name of the trace; ``line`` and ``column`` are 1-based and 0-based places in the snippet (0 when unknown);
    ``op`` is the ATen overload at fault, if one is; ``hint`` says what the visitor can do; ``file`` is the
    name of the line's file, empty for a submitted snippet.
    """

    def __init__(self, stage: str, message: str, *, line: int = 0, column: int = 0, op: str = "", hint: str = "", file: str = "") -> None:
        super().__init__(message)
        self.stage, self.message, self.line, self.column, self.op, self.hint, self.file = stage, message, line, column, op, hint, file

    def __str__(self) -> str:
        place = f" ({self.file + ', ' if self.file else ''}line {self.line})" if self.line else ""
        op = f" [{self.op}]" if self.op else ""
        return f"{self.stage}: {self.message}{op}{place}" + (f"\n  hint: {self.hint}" if self.hint else "")

    def problem(self) -> Problem:
        return Problem(kind="stage", stage=self.stage, message=self.message, hint=self.hint, line=self.line, column=self.column, op=self.op)


class Unsupported(CompileError):
    """The loop IR cannot express this; lowering answers it with an extern call."""


class TargetError(ValueError):
    """No such target; the message lists those that exist."""


class OptionsError(ValueError):
    """An option is unknown or has a value that it cannot have."""
