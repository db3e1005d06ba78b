"""A submitted script comes in, a stream of trace events goes out: it runs as ``__main__``, and what it compiles takes our pipeline."""

from compiler.snippet.run import run_snippet

__all__ = ["run_snippet"]
