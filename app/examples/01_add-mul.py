# Add and multiply: the article's first example
import torch


@torch.compile
def f(a, b):
    x = a + b
    y = x * 2
    return y


a = torch.randn(256, 1024)
b = torch.randn(256, 1024)
f(a, b)
