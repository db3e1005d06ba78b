# layer norm with residual, bfloat16, forward and backward
import torch
import torch.nn.functional as F


@torch.compile
def f(x, r, w, b):
    return F.layer_norm(x + r, (4096,), w, b)


x, r = (torch.randn(16384, 4096, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(2))
w, b = (torch.randn(4096, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(2))
y = f(x, r, w, b)
y.backward(torch.randn_like(y))
