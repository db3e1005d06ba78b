# A graph break, and its own torch.compile
import torch


def step(x):
    y = torch.sin(x) + 1
    print("sum", y.sum().item())  # the graph breaks here
    return torch.cos(y) * 2


compiled = torch.compile(step)
compiled(torch.linspace(0, 1, 1000))
