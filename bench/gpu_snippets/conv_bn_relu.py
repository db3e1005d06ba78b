# convolution, batch norm, ReLU, one training step
import torch
from torch import nn

model = nn.Sequential(nn.Conv2d(64, 128, 3, padding=1), nn.BatchNorm2d(128), nn.ReLU()).cuda()
x = torch.randn(64, 64, 56, 56, device="cuda")
torch.compile(model)(x).square().mean().backward()
