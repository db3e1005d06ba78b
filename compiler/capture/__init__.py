"""From a Python call to ATen graphs: Dynamo's regions come in, functional graphs go to the pipeline, a callable goes back."""

from compiler.capture.region import compile_region

__all__ = ["compile_region"]
