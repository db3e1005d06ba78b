# causal attention written by hand, float16
import torch


@torch.compile
def attention(q, k, v):
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    mask = torch.ones(q.shape[-2], q.shape[-2], dtype=torch.bool, device=q.device).tril()
    return torch.softmax(scores.masked_fill(~mask, float("-inf")), -1) @ v


q, k, v = (torch.randn(8, 16, 1024, 64, device="cuda", dtype=torch.float16) for _ in range(3))
attention(q, k, v)
