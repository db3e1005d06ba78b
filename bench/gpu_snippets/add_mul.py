# x = a + b; y = x * 2, 64 M float32 elements
import torch


@torch.compile
def f(a, b):
    x = a + b
    return x * 2


a, b = (torch.randn(8192, 8192, device="cuda") for _ in range(2))
f(a, b)
