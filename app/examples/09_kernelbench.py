# KernelBench style: Model, get_inputs, get_init_inputs
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, features: int, scale: float) -> None:
        super().__init__()
        self.linear = nn.Linear(features, features)
        self.scale = scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.linear(x)
        return torch.sigmoid(h) * h * self.scale


def get_inputs():
    return [torch.randn(128, 256)]


def get_init_inputs():
    return [256, 0.5]
