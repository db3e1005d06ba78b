# device="cuda": compiled for the chosen target where there is no GPU
import torch


def f(x, bias):
    return torch.dropout(torch.relu(x + bias), 0.1, True)


x = torch.randn(64, 1024, device="cuda", requires_grad=True)
bias = torch.randn(1024, device="cuda")
out = torch.compile(f)(x, bias)
out.sum().backward()
