"""Programs of realistic sizes that are compiled for a GPU with and without it, beside those of the tests; each runs as ``__main__``."""

from __future__ import annotations

HEAD = """
import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
"""

BODIES: dict[str, str] = {
    "large add_mul": "torch.compile(lambda a, b: (a + b) * 2)(torch.randn(1024), torch.randn(1024))",
    "large softmax": "torch.compile(lambda a: a.softmax(-1))(torch.randn(1024, 1024))",
    "large layer norm": "torch.compile(lambda a: F.layer_norm(a, (8192,)))(torch.randn(512, 8192))",
    "large sum": "torch.compile(lambda a: a.sum())(torch.randn(4096, 4096))",
    "large mlp": """
model = torch.compile(nn.Sequential(nn.Linear(512, 512), nn.GELU(), nn.LayerNorm(512), nn.Linear(512, 64)))
model(torch.randn(64, 512)).sum().backward()""",
    "large convolution": """
model = torch.compile(nn.Sequential(nn.Conv2d(3, 64, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2)))
model(torch.randn(8, 3, 64, 64)).sum().backward()""",
    "large encoder": "torch.compile(nn.TransformerEncoderLayer(256, 8, batch_first=True))(torch.randn(4, 128, 256)).sum().backward()",
    "large dropout": "torch.compile(lambda a: F.dropout(a, 0.3) * 2)(torch.randn(1024, 1024))",
    "large cross entropy": """
torch.compile(F.cross_entropy)(torch.randn(64, 1000).requires_grad_(), torch.randint(0, 1000, (64,))).backward()""",
    "large sort": "torch.compile(lambda a: a.topk(5)[0] + a.sort()[0][:, :5])(torch.randn(64, 128))",
    "large cat": """
torch.compile(lambda a, i: torch.cat([a, a * 2], 1)[i].relu())(torch.randn(256, 64), torch.randint(0, 256, (100,)))""",
    "large attention": """
torch.compile(lambda q, k, v: ((q @ k.transpose(-1, -2)) * 0.1).softmax(-1) @ v)(*(torch.randn(2, 8, 128, 64) for _ in range(3)))""",
    "flash attention": """
attend = torch.compile(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True) * 2)
attend(*(torch.randn(2, 8, 128, 64, dtype=torch.bfloat16, requires_grad=True) for _ in range(3))).sum().backward()""",
    "attention of odd heads": """
attend = torch.compile(lambda q, k, v: F.scaled_dot_product_attention(q, k, v).relu())
attend(*(torch.randn(2, 4, 64, 36, dtype=torch.float16, requires_grad=True) for _ in range(3))).sum().backward()""",
    "attention under a mask": """
attend = torch.compile(lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m))
attend(*(torch.randn(2, 8, 100, 64) for _ in range(3)), torch.ones(100, 100, dtype=torch.bool).tril())""",
    "grouped attention": """
attend = torch.compile(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True))
attend(torch.randn(2, 8, 64, 64, dtype=torch.bfloat16), *(torch.randn(2, 2, 64, 64, dtype=torch.bfloat16) for _ in range(2)))""",
    "unet block": """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.norm = nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.GroupNorm(8, 32)
        self.up = nn.ConvTranspose2d(32, 16, 2, stride=2)
    def forward(self, x):
        return x + self.up(F.silu(self.norm(self.down(x))))
torch.compile(Block())(torch.randn(2, 16, 32, 32)).square().mean().backward()""",
    "depthwise convolution": """
model = nn.Sequential(nn.Conv2d(32, 32, 3, padding=1, groups=32), nn.BatchNorm2d(32), nn.Hardswish(), nn.Conv2d(32, 64, 1))
torch.compile(model)(torch.randn(4, 32, 28, 28)).mean().backward()""",
    "conv1d conv3d": """
torch.compile(lambda x, w, y, v: (F.conv1d(x, w).relu(), F.conv3d(y, v).tanh()))(
    torch.randn(2, 4, 50), torch.randn(8, 4, 5), torch.randn(1, 2, 8, 8, 8), torch.randn(4, 2, 3, 3, 3))""",
    "half mlp": """
model = nn.Sequential(nn.Linear(1024, 4096), nn.SiLU(), nn.Linear(4096, 1024)).to(torch.bfloat16)
torch.compile(model)(torch.randn(128, 1024, dtype=torch.bfloat16)).float().sum().backward()""",
    "unaligned products": "torch.compile(lambda a, b: (a @ b).relu())(torch.randn(1023, 2047), torch.randn(2047, 1021))",
    "adamw training": """
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 8))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
@torch.compile
def step(x):
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
step(torch.randn(32, 64))""",
    "embedding bag": """
table = nn.Embedding(1000, 64)
torch.compile(lambda i: table(i).mean(1).tanh())(torch.randint(0, 1000, (32, 20))).sum().backward()""",
    "large constants": """
table = torch.tensor([[float(i * j % 7) for i in range(16)] for j in range(16)])
torch.compile(lambda x: x @ table + torch.tensor([[1.0, 2.0]] * 8).repeat(1, 8))(torch.randn(8, 16))""",
}
LARGE = {name: HEAD.lstrip() + body.lstrip("\n") + "\n" for name, body in BODIES.items()}
