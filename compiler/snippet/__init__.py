"""A submitted script comes in, a stream of trace events goes out: the script runs as ``__main__``, and what it compiles goes through the pipeline."""

from compiler.snippet.run import run_snippet

__all__ = ["run_snippet"]
