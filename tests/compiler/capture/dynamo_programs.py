"""Programs that Dynamo breaks, compiles again, leaves open or gives up; their line 1 is ``import torch``."""

PROGRAMS = {
    "whole": """
@torch.compile(backend="eager")
def f(x):
    return (x + 1).relu()
f(torch.ones(4))
""",
    "nested": """
def g(x):
    y = x.sin()
    print("in g")
    return y + 1
@torch.compile(backend="eager")
def f(x):
    a = g(x)
    return a * 2
f(torch.ones(3))
""",
    "print": """
@torch.compile(backend="eager")
def f(x):
    y = x + 1
    print("between")
    return y * 2
f(torch.ones(3))
""",
    "first": """
@torch.compile(backend="eager")
def f(x):
    print("first")
    return x * 2
f(torch.ones(3))
""",
    "loop": """
@torch.compile(backend="eager")
def f(x):
    for i in range(2):
        x = x + i
        print(i)
    return x
f(torch.ones(3))
""",
    "helper in a loop": """
def g(x):
    y = x.sin()
    print("g")
    return y + 1
@torch.compile(backend="eager")
def f(x):
    for i in range(2):
        x = g(x)
    return x
f(torch.ones(3))
""",
    "branch": """
@torch.compile(backend="eager")
def f(x):
    y = x * 2
    if y.sum() > 0:
        return y + 1
    return y - 1
f(torch.ones(3))
f(-torch.ones(3))
""",
    "item": """
@torch.compile(backend="eager")
def f(x):
    n = x.sum().item()
    return x * n
f(torch.ones(3))
""",
    "asked for": """
@torch.compile(backend="eager")
def f(x):
    x = x + 1
    torch._dynamo.graph_break()
    x = x * 2
    torch._dynamo.graph_break()
    return x.tanh()
f(torch.ones(3))
""",
    "sizes": """
@torch.compile(backend="eager")
def f(x):
    return x * x.shape[0]
for n in (3, 5, 7):
    f(torch.ones(n))
""",
    "integers": """
@torch.compile(backend="eager")
def f(x, n):
    return x * n
for n in (1, 2, 3):
    f(torch.ones(4), n)
""",
    "floats": """
@torch.compile(backend="eager")
def f(x, n):
    return x * n
for n in (0.5, 1.5, 2.5):
    f(torch.ones(4), n)
""",
    "flags": """
@torch.compile(backend="eager")
def f(x, flag):
    return x + 1 if flag else x - 1
f(torch.ones(4), True)
f(torch.ones(4), False)
""",
    "dtypes": """
@torch.compile(backend="eager")
def f(x):
    return x + 1
f(torch.ones(4))
f(torch.ones(4, dtype=torch.float64))
""",
    "gradients": """
@torch.compile(backend="eager")
def f(x):
    return x + 1
f(torch.ones(4))
with torch.no_grad():
    f(torch.ones(4))
f(torch.ones(4, requires_grad=True))
""",
    "attributes": """
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
        self.scale = 2
    def forward(self, x):
        return self.layer(x) * self.scale
model = Model()
compiled = torch.compile(model, backend="eager")
compiled(torch.ones(2, 4))
model.scale = 3
compiled(torch.ones(2, 4))
""",
    "dynamic": """
@torch.compile(backend="eager", dynamic=True)
def f(x, y):
    if x.shape[0] > 3:
        return x + y.sum(), x.view(2, -1)
    return x - 1, x
f(torch.ones(4), torch.ones(7))
""",
    "made constant": """
@torch.compile(backend="eager", dynamic=True)
def f(x):
    return x + torch.zeros(5)
f(torch.ones(5))
""",
    "equal sizes": """
@torch.compile(backend="eager", dynamic=True)
def f(x, y):
    return x + y
f(torch.ones(4), torch.ones(4))
""",
    "marked": """
x = torch.ones(9, 3)
torch._dynamo.mark_dynamic(x, 0)
@torch.compile(backend="eager")
def f(x):
    return x.relu() + x.shape[0]
f(x)
""",
    "static": """
@torch.compile(backend="eager", dynamic=False)
def f(x):
    return x + 1
for n in (2, 3, 4):
    f(torch.ones(n))
""",
    "limit": """
@torch.compile(backend="eager", dynamic=False)
def f(x):
    return x + 1
with torch._dynamo.config.patch(recompile_limit=2):
    for n in range(2, 7):
        f(torch.ones(n))
""",
}
