"""What a model of the zoo is: how it is built, what it is called with, and how it is trained."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

TIMM = Path(sys.prefix) / "timm"
"""Where ``make models`` installs timm, and torchvision, without which timm cannot be imported."""


@dataclass(frozen=True, slots=True)
class Model:
    """``build`` gives the module, in float32, and the keyword arguments of its call.

    ``optimizer`` makes the optimiser of its parameters; ``compiled_step``: its step is compiled as well.
    """

    name: str
    family: str
    build: Callable[[], tuple[torch.nn.Module, dict[str, Any]]]
    optimizer: Callable[..., torch.optim.Optimizer] = lambda parameters: torch.optim.SGD(parameters, lr=0.1)
    compiled_step: bool = False

    def missing(self) -> str:
        """Why it cannot be built here, "" if it can."""
        if self.family == "timm" and TIMM.is_dir() and str(TIMM) not in sys.path:
            sys.path.append(str(TIMM))
        if self.family == "own" or importlib.util.find_spec(self.family) is not None:
            return ""
        return f"{self.family} is not installed: " + ("make models" if self.family == "timm" else f"pip install {self.family}")


def tokens(*shape: int, below: int = 99) -> torch.Tensor:
    """Token numbers, none of them a special one."""
    return torch.randint(5, below, shape)


def without_dropout(module: torch.nn.Module) -> torch.nn.Module:
    """The same module, whose training draws no random numbers, so that two runs of it can be compared."""
    for part in module.modules():
        for name, value in vars(part).items():
            if "drop" in name and isinstance(value, float):
                setattr(part, name, 0.0)
        if isinstance(part, torch.nn.modules.dropout._DropoutNd):
            part.p = 0.0
    return module
