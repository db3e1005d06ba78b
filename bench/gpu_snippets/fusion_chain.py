# the fusion chain of the examples, 8192 x 8192
import torch


@torch.compile
def f(a, b):
    return ((a + b).relu() * 0.5).mean(-1)


a, b = (torch.randn(8192, 8192, device="cuda") for _ in range(2))
f(a, b)
