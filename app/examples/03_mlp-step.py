# An MLP trained one step
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


@torch.compile
def loss_of(x, target):
    return nn.functional.cross_entropy(model(x), target)


x = torch.randn(32, 64)
target = torch.randint(0, 10, (32,))
loss = loss_of(x, target)
loss.backward()
optimizer.step()
print(f"loss {loss.item():.4f}")
