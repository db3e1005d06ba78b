# an MLP trained one step
import torch
import torch.nn.functional as F
from torch import nn

model = nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1000)).cuda()
x, target = torch.randn(4096, 1024, device="cuda"), torch.randint(0, 1000, (4096,), device="cuda")


@torch.compile
def loss(x, target):
    return F.cross_entropy(model(x), target)


loss(x, target).backward()
