"""The programs that our trace of Inductor is held against torch's own logs with: small scripts, by name.

Each runs as ``__main__``, calls torch.compile itself and names no device: the default device decides.
"""

from __future__ import annotations

PROGRAMS: dict[str, str] = {
    # Training
    "mlp_trained": """
import torch
from torch import nn
torch.manual_seed(0)
model = torch.compile(nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4)))
loss = (model(torch.randn(8, 16)) - torch.randn(8, 4)).square().mean()
loss.backward()
""",
    "layer_norm_trained": """
import torch
from torch import nn
torch.manual_seed(0)
model = torch.compile(nn.LayerNorm(64))
model(torch.randn(32, 64, requires_grad=True)).square().sum().backward()
""",
    "cross_entropy_trained": """
import torch
import torch.nn.functional as F
torch.manual_seed(0)
@torch.compile
def loss(logits, target):
    return F.cross_entropy(logits, target, label_smoothing=0.1)
loss(torch.randn(32, 50, requires_grad=True), torch.randint(0, 50, (32,))).backward()
""",
    "conv_bn_trained": """
import torch
from torch import nn
torch.manual_seed(0)
model = torch.compile(nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()))
model(torch.randn(2, 3, 12, 12)).mean().backward()
""",
    "encoder_layer_trained": """
import torch
from torch import nn
torch.manual_seed(0)
model = torch.compile(nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True))
model(torch.randn(2, 10, 32)).square().mean().backward()
""",
    "embedding_trained": """
import torch
from torch import nn
torch.manual_seed(0)
model = torch.compile(nn.Sequential(nn.Embedding(40, 16, padding_idx=0), nn.Linear(16, 3)))
model(torch.randint(0, 40, (4, 7))).sum(1).square().mean().backward()
""",
    "conv_bn_evaluated": """
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.SiLU()).eval()
with torch.no_grad():
    torch.compile(model)(torch.randn(1, 3, 14, 14))
""",
    "backward_not_run": """
import torch
from torch import nn
torch.manual_seed(0)
torch.compile(nn.Sequential(nn.Linear(8, 8), nn.ReLU()))(torch.randn(4, 8))
""",
    # Graph breaks
    "break_at_print": """
import torch
torch.manual_seed(0)
@torch.compile
def f(x):
    y = x + 1
    print("between")
    return y.sin() * y
f(torch.randn(8, 8))
""",
    "break_at_item": """
import torch
torch.manual_seed(0)
@torch.compile
def f(x):
    scale = x.abs().max().item()
    return (x / scale).tanh()
f(torch.randn(8, 8))
""",
    "break_at_branch": """
import torch
torch.manual_seed(0)
@torch.compile
def f(x):
    y = x.cos()
    if y.sum() > 0:
        return y * 2
    return y - 1
f(torch.zeros(6, 6))
""",
    "break_in_try": """
import torch
@torch.compile
def f(x):
    y = x * 3
    try:
        torch._dynamo.graph_break()
        z = y.exp()
    except ValueError:
        z = y
    return z + 1
f(torch.ones(5, 9))
""",
    "break_in_loop": """
import torch
torch.manual_seed(0)
def show(x):
    print(x.shape)
@torch.compile
def f(x):
    for i in range(2):
        x = (x + i).relu()
        show(x)
    return x.sum()
f(torch.randn(4, 4))
""",
    # Dynamic shapes
    "dynamic": """
import torch
torch.manual_seed(0)
@torch.compile(dynamic=True)
def f(x, y):
    return torch.softmax(x + y, -1) * x.shape[0]
f(torch.randn(6, 10), torch.randn(6, 10))
""",
    "mark_dynamic": """
import torch
torch.manual_seed(0)
@torch.compile
def f(x, w):
    return (x @ w).relu().sum(-1)
x = torch.randn(7, 16)
torch._dynamo.mark_dynamic(x, 0)
f(x, torch.randn(16, 8))
""",
    "automatic_dynamic": """
import torch
torch.manual_seed(0)
@torch.compile
def f(x):
    return (x - x.mean(-1, keepdim=True)).square().mean(-1)
f(torch.randn(4, 8))
f(torch.randn(5, 8))
f(torch.randn(9, 8))
""",
    # Recompiles
    "recompiles_by_shape": """
import torch
@torch.compile(dynamic=False)
def f(x):
    return x.sigmoid() + 1
for size in (4, 6, 9):
    f(torch.ones(size, 3))
""",
    "recompiles_by_int": """
import torch
@torch.compile
def f(x, times):
    return (x * times).sin()
f(torch.ones(4, 4), 2)
f(torch.ones(4, 4), 3)
f(torch.ones(4, 4), 5)
""",
    "recompiles_by_dtype": """
import torch
@torch.compile
def f(x):
    return x * x + x
f(torch.ones(4, 4))
f(torch.ones(4, 4, dtype=torch.float64))
""",
    "recompiles_by_flag": """
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5))
compiled = torch.compile(model)
compiled(torch.randn(4, 8)).sum().backward()
model.eval()
compiled(torch.randn(4, 8)).sum().backward()
""",
    # Mutation
    "input_mutated": """
import torch
@torch.compile
def f(x, y):
    x.add_(y).mul_(2)
    return x.sum() + y
f(torch.ones(8, 4), torch.ones(8, 4))
""",
    "buffers_mutated": """
import torch
from torch import nn
class Running(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(6))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
    def forward(self, x):
        self.steps += 1
        self.mean.lerp_(x.mean(0), 0.1)
        return x - self.mean
torch.compile(Running())(torch.ones(4, 6))
""",
    "view_in_place": """
import torch
torch.manual_seed(0)
@torch.compile
def f(x):
    y = x.clone()
    y[1:3].mul_(2)
    y[:, 0] = 5
    y.t().add_(1)
    return y
f(torch.randn(6, 6))
""",
    # Reductions, norms
    "sum_split": """
import torch
torch.manual_seed(0)
@torch.compile
def f(x):
    return x.sum(), (x * x).amax()
f(torch.randn(512, 1024))
""",
    "softmax_variants": """
import torch
torch.manual_seed(0)
@torch.compile
def f(x):
    return torch.softmax(x, 0), torch.log_softmax(x * 2, -1), torch.logsumexp(x, 1), torch.nn.functional.softmin(x, 1)
f(torch.randn(16, 40))
""",
    "norms": """
import torch
import torch.nn.functional as F
torch.manual_seed(0)
@torch.compile
def f(x, w):
    a = F.rms_norm(x, (24,), w)
    b = F.group_norm(x.view(4, 8, 6), 2)
    return a, b, F.normalize(x, dim=-1)
f(torch.randn(8, 24), torch.randn(24))
""",
    "statistics": """
import torch
torch.manual_seed(0)
@torch.compile
def f(x):
    deviation, mean = torch.std_mean(x, -1)
    return (x - mean[:, None]) / deviation[:, None], x.argmax(-1), x.prod(0), (x > 0).any(0), x.min(1).values
f(torch.randn(12, 20))
""",
    "variance_two_reads": """
import torch
torch.manual_seed(0)
@torch.compile
def f(x, y):
    a = x.var(0)
    b = (x + y).sum(1)
    return a, b, (x * y).mean()
f(torch.randn(24, 36), torch.randn(24, 36))
""",
    # Indexing
    "cat": """
import torch
torch.manual_seed(0)
@torch.compile
def f(x, y):
    z = torch.cat([x.relu(), y * 2, x + 1], 1)
    return z.sum(-1), torch.stack([x, x.sin()]), z[:, ::2]
f(torch.randn(6, 5), torch.randn(6, 4))
""",
    "index": """
import torch
torch.manual_seed(0)
@torch.compile
def f(x, i, j):
    return x[i, j] + 1, x[i].sum(0), x.index_select(1, j) * 2
f(torch.randn(10, 12), torch.tensor([1, 3, 9]), torch.tensor([0, 11, 2]))
""",
    "gather_scatter": """
import torch
torch.manual_seed(0)
@torch.compile
def f(x, i, v):
    taken = x.gather(1, i).exp()
    return torch.zeros_like(x).scatter_add(1, i, v), x.scatter(1, i, taken), taken
f(torch.randn(6, 9), torch.randint(0, 9, (6, 4)), torch.randn(6, 4))
""",
    "index_put": """
import torch
torch.manual_seed(0)
@torch.compile
def f(x, i, v):
    y = x * 2
    y[i] = v
    return y.index_put((i,), v.sin(), accumulate=True), x.index_add(0, i, v)
f(torch.randn(10, 4), torch.tensor([1, 1, 7]), torch.randn(3, 4))
""",
    # Random numbers
    "dropout_trained": """
import torch
import torch.nn.functional as F
torch.manual_seed(0)
@torch.compile
def f(x):
    return F.dropout(x.relu(), 0.3)
f(torch.randn(16, 16, requires_grad=True)).sum().backward()
""",
    "random": """
import torch
torch.manual_seed(0)
@torch.compile
def f(x):
    noise = torch.rand_like(x) + torch.randn(8, 8)
    return x + noise, torch.randint(0, 10, (8,)), torch.rand(4).bernoulli()
f(torch.ones(8, 8))
""",
    # Optimisers
    "adam_step": """
import torch
torch.manual_seed(0)
weights = [torch.randn(6, 6, requires_grad=True), torch.randn(6, requires_grad=True)]
for weight in weights:
    weight.grad = torch.randn_like(weight)
optimizer = torch.optim.Adam(weights, lr=0.01, foreach=True)
@torch.compile
def step():
    optimizer.step()
step()
""",
    "sgd_step": """
import torch
torch.manual_seed(0)
weights = [torch.randn(8, 4, requires_grad=True), torch.randn(4, requires_grad=True)]
for weight in weights:
    weight.grad = torch.randn_like(weight)
optimizer = torch.optim.SGD(weights, lr=0.1, momentum=0.9, foreach=True)
@torch.compile
def step():
    optimizer.step()
step()
step()
""",
    "foreach": """
import torch
torch.manual_seed(0)
@torch.compile
def f(xs, ys):
    zs = torch._foreach_add(torch._foreach_mul(xs, ys), xs)
    return torch._foreach_sqrt(torch._foreach_abs(zs))
f([torch.randn(4, 4), torch.randn(7)], [torch.randn(4, 4), torch.randn(7)])
""",
    # Attention
    "attention_by_hand": """
import torch
torch.manual_seed(0)
@torch.compile
def attend(q, k, v):
    scores = q @ k.transpose(-2, -1) / 4.0
    return torch.softmax(scores, -1) @ v
attend(*(torch.randn(2, 2, 12, 16) for _ in range(3)))
""",
    "attention_by_hand_trained": """
import torch
torch.manual_seed(0)
@torch.compile
def attend(q, k, v):
    scores = (q @ k.transpose(-2, -1)).masked_fill(torch.ones(12, 12, dtype=torch.bool).triu(1), -1e4)
    return torch.softmax(scores * 0.3, -1) @ v
attend(*(torch.randn(2, 2, 12, 16, requires_grad=True) for _ in range(3))).sum().backward()
""",
    "sdpa": """
import torch
import torch.nn.functional as F
torch.manual_seed(0)
@torch.compile
def attend(q, k, v):
    return F.scaled_dot_product_attention(q * 2, k, v)
attend(*(torch.randn(2, 2, 16, 16) for _ in range(3)))
""",
    "sdpa_causal_trained": """
import torch
import torch.nn.functional as F
torch.manual_seed(0)
@torch.compile
def attend(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True).relu()
attend(*(torch.randn(2, 2, 16, 16, requires_grad=True) for _ in range(3))).sum().backward()
""",
    # Convolution, pooling, images
    "channels_last": """
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(4, 8, 3, stride=2), nn.ReLU(), nn.Conv2d(8, 4, 1)).to(memory_format=torch.channels_last)
torch.compile(model)(torch.randn(2, 4, 9, 9).to(memory_format=torch.channels_last)).sum().backward()
""",
    "pooling": """
import torch
import torch.nn.functional as F
torch.manual_seed(0)
@torch.compile
def f(x):
    return F.max_pool2d(x, 2) + F.avg_pool2d(x, 2), F.adaptive_avg_pool2d(x, 1), F.pad(x, (1, 1, 1, 1), mode="reflect")
f(torch.randn(1, 3, 8, 8, requires_grad=True))[0].sum().backward()
""",
    "upsample": """
import torch
import torch.nn.functional as F
torch.manual_seed(0)
@torch.compile
def f(x):
    big = F.interpolate(x, scale_factor=2, mode="bilinear")
    return big.relu(), F.interpolate(x, size=(9, 9), mode="nearest")
f(torch.randn(1, 2, 6, 6))
""",
    # Order, scans, selection, types
    "sort_topk": """
import torch
torch.manual_seed(0)
@torch.compile
def f(x):
    values, places = torch.sort(x + 1, -1)
    return values * 2, places, torch.topk(x, 3).values.exp()
f(torch.randn(6, 12))
""",
    "scans": """
import torch
torch.manual_seed(0)
@torch.compile
def f(x):
    return x.cumsum(-1) * 2, x.sigmoid().cumprod(0), x.logcumsumexp(1)
f(torch.randn(6, 12))
""",
    "selection": """
import torch
torch.manual_seed(0)
@torch.compile
def f(x, mask):
    y = torch.where(mask, x, -x).masked_fill(x > 1, 0.0)
    return y.clamp(-0.5, 0.5), y.tril(), torch.nan_to_num(y / x)
f(torch.randn(8, 8), torch.arange(64).view(8, 8) % 3 == 0)
""",
    "integers_bools": """
import torch
@torch.compile
def f(x, mask):
    y = (x * 3 + 1) // 2 % 7
    return y << 1, (y > 3) & mask, mask.sum(), y.to(torch.uint8) ^ 5
f(torch.arange(48).view(6, 8), torch.arange(48).view(6, 8) % 2 == 0)
""",
    "half_bfloat16": """
import torch
torch.manual_seed(0)
@torch.compile
def f(x, y):
    return torch.softmax(x, -1) + y.to(torch.float16), (y * y).sum(-1), (x @ x.t()).float()
f(torch.randn(8, 8, dtype=torch.float16), torch.randn(8, 8, dtype=torch.bfloat16))
""",
    "complex": """
import torch
torch.manual_seed(0)
@torch.compile
def f(x):
    return torch.view_as_real(torch.polar(x.abs(), x)).sum(-1) + 1
f(torch.randn(5, 6))
""",
    # Products
    "matmul_chain": """
import torch
torch.manual_seed(0)
@torch.compile
def f(a, b, c):
    return ((a @ b).relu() @ c + 1).sigmoid()
f(torch.randn(8, 16), torch.randn(16, 12), torch.randn(12, 4))
""",
    "addmm_epilogues": """
import torch
import torch.nn.functional as F
torch.manual_seed(0)
@torch.compile
def f(x, w, b, r):
    y = F.gelu(torch.addmm(b, x, w), approximate="tanh")
    return y + r, F.linear(x, w.t(), b).relu() * 2
f(torch.randn(8, 16), torch.randn(16, 12), torch.randn(12), torch.randn(8, 12))
""",
    "batched_einsum": """
import torch
torch.manual_seed(0)
@torch.compile
def f(a, b):
    return torch.bmm(a, b) * 0.5, torch.einsum("bij,bkj->bik", a, a).softmax(-1), torch.einsum("bij->ji", a)
f(torch.randn(3, 4, 5), torch.randn(3, 5, 6))
""",
    # What goes in and comes out
    "constants": """
import torch
table = torch.tensor([1.0, 2.0, 4.0, 8.0])
@torch.compile
def f(x):
    return x * table + torch.tensor([0.5, 0.25, 0.5, 0.25]) + torch.full((4,), 3.0) + torch.arange(4)
f(torch.ones(6, 4))
""",
    "views_returned": """
import torch
torch.manual_seed(0)
@torch.compile
def f(x):
    y = x + 1
    return y.t(), y.view(-1)[3:], x.unsqueeze(0), x, y.expand(2, 4, 6), x.unfold(0, 2, 1)
f(torch.randn(4, 6))
""",
    "several_outputs": """
import torch
torch.manual_seed(0)
@torch.compile
def f(state):
    mixed = state["a"] + state["b"].unsqueeze(0)
    return {"sum": mixed.sum(0), "parts": [mixed.sin(), None, 3], "size": mixed.shape[0]}
f({"a": torch.randn(5, 4), "b": torch.randn(4)})
""",
    "no_grad_within": """
import torch
from torch import nn
torch.manual_seed(0)
layer = nn.Linear(6, 6)
@torch.compile
def f(x):
    with torch.no_grad():
        scale = layer(x).abs().mean()
    return layer(x) * scale
f(torch.randn(4, 6)).sum().backward()
""",
    "inference_mode": """
import torch
from torch import nn
torch.manual_seed(0)
model = torch.compile(nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 2)).eval())
with torch.inference_mode():
    model(torch.randn(4, 6))
""",
    "autocast": """
import torch
from torch import nn
torch.manual_seed(0)
layer = nn.Linear(16, 16)
@torch.compile
def f(x):
    with torch.autocast(x.device.type, dtype=torch.bfloat16):
        return torch.softmax(layer(x), -1)
f(torch.randn(4, 16)).float().sum().backward()
""",
    # What torch.compile may be given
    "max_autotune": """
import torch
torch.manual_seed(0)
@torch.compile(mode="max-autotune")
def f(x, w):
    return (x @ w).relu()
with torch.no_grad():
    f(torch.randn(32, 64), torch.randn(64, 32))
""",
    "reduce_overhead": """
import torch
torch.manual_seed(0)
@torch.compile(mode="reduce-overhead")
def f(x):
    return x.sin().sum(-1) + 1
f(torch.randn(8, 8))
f(torch.randn(8, 8))
""",
    "options": """
import torch
torch.manual_seed(0)
@torch.compile(options={"max_fusion_size": 2, "realize_reads_threshold": 1})
def f(x, y, z):
    return (x + y).relu() * z + x.sum(0), (y - z).exp()
f(*(torch.randn(8, 8) for _ in range(3)))
""",
    "fullgraph": """
import torch
torch.manual_seed(0)
@torch.compile(fullgraph=True)
def f(x, depth=3):
    for _ in range(depth):
        x = torch.nn.functional.silu(x) + x.mean()
    return x
f(torch.randn(7, 7))
""",
    # Autograd
    "custom_function": """
import torch
torch.manual_seed(0)
class Clipped(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(-1, 1)
    @staticmethod
    def backward(ctx, grad):
        return grad * (ctx.saved_tensors[0].abs() < 2)
torch.compile(lambda x: Clipped.apply(x * 2).sum())(torch.randn(9, 9, requires_grad=True)).backward()
""",
    "checkpoint": """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
torch.manual_seed(0)
block = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))
@torch.compile
def f(x):
    return checkpoint(block, x, use_reentrant=False) + x
f(torch.randn(4, 8, requires_grad=True)).sum().backward()
""",
    "double_use_trained": """
import torch
torch.manual_seed(0)
@torch.compile
def f(x, w):
    h = torch.tanh(x @ w)
    return (h @ w.t()).sum(), h.mean(0)
loss, mean = f(torch.randn(6, 5), torch.randn(5, 5, requires_grad=True))
(loss + mean.sum()).backward()
""",
}
"""Source by name."""
PROGRAMS = {name: source.lstrip("\n") for name, source in PROGRAMS.items()}
