# Convolution, batch norm, ReLU
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()).eval()
inputs = [torch.randn(4, 3, 32, 32)]
