"""Whole models with small configurations and random weights, by name: ``ZOO``.

Those of ``transformers`` and ``timm`` are there if these packages are; ``missing(name)`` says why a model cannot be built.
"""

from __future__ import annotations

from tests.compiler.models import audio, graphs, language, pictures, sequences, signals, vision
from tests.compiler.models.model import Model

__all__ = ["ZOO", "Model"]

ZOO: dict[str, Model] = {
    model.name: model for module in (language, vision, audio, pictures, sequences, graphs, signals) for model in module.MODELS
}
