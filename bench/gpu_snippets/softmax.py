# softmax, bfloat16, 16384 rows of 4096
import torch


@torch.compile
def f(x):
    return torch.softmax(x, -1)


f(torch.randn(16384, 4096, device="cuda", dtype=torch.bfloat16))
