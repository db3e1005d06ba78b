# Add and multiply: the article's first example
import torch


@torch.compile
def f(a, b):
    x = a + b
    y = x * 2
    return y


a = torch.randn(1024, 1024)
b = torch.randn(1024, 1024)
f(a, b)
