"""A small stand-in for compiler.snippet: runs the source with ``emit`` at hand, and sends one stage for each call of ``say``."""

import traceback

from compiler.trace import Begin, End, Output, Problem, Region, RegionFound, Stage


def run_snippet(source, options, target, compiler, emit):
    emit(Begin(compiler=compiler, target=target.name, options=options.as_facts()))
    emit(RegionFound(region=Region(id=0, title="fn")))

    def say(text):
        emit(Output(stream="stdout", text=str(text)))

    def stage(name, **fields):
        emit(Stage(region=0, name=name, **fields))

    try:
        exec(compile(source, "<snippet>", "exec"), {"__name__": "__main__", "say": say, "stage": stage, "emit": emit})
    except BaseException as error:
        emit(
            End(status="error", problem=Problem(kind="snippet", message=f"{type(error).__name__}: {error}", detail=traceback.format_exc()))
        )
        return 1
    emit(End(status="ok"))
    return 0
