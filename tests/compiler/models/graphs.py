"""Models of our own on sets, tables and graphs: GCN, DLRM, PointNet, and a network whose AdamW step is compiled as well."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.compiler.models.model import Model
from tests.compiler.models.vision import Built


class Convolution(nn.Module):
    """The mean over neighbours, weighted by the roots of both degrees; messages are added at their targets."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        source, target = edges
        degree = torch.zeros(x.shape[0], dtype=x.dtype).scatter_add(0, target, torch.ones_like(target, dtype=x.dtype)) + 1
        x = self.linear(x)
        weight = (degree[source] * degree[target]).rsqrt()
        return (x / degree[:, None]).index_add(0, target, x[source] * weight[:, None])


class GCN(nn.Module):
    """Two convolutions; the largest value over each graph's nodes is classified."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = Convolution(8, 16), Convolution(16, 16), nn.Linear(32, 3)

    def forward(self, x: Tensor, edges: Tensor, graph: Tensor, labels: Tensor) -> Tensor:
        x = F.elu(self.second(F.relu(self.first(x, edges)), edges))
        place = graph[:, None].expand_as(x)
        largest = x.new_zeros(2, x.shape[1]).scatter_reduce(0, place, x, "amax", include_self=False)
        mean = x.new_zeros(2, x.shape[1]).scatter_reduce(0, place, x, "mean", include_self=False)
        return F.cross_entropy(self.head(torch.cat((largest, mean), 1)), labels)


class DLRM(nn.Module):
    """Sums of embeddings for each feature, products of all pairs, and two networks."""

    def __init__(self, features: int = 3, width: int = 8) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(30, width, mode=mode) for mode in ("sum", "mean", "sum"))
        self.bottom = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, width), nn.ReLU())
        pairs = (features + 1) * features // 2
        self.top = nn.Sequential(nn.Linear(pairs + width, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, dense: Tensor, ids: Tensor, offsets: Tensor, clicked: Tensor) -> Tensor:
        low = self.bottom(dense)
        rows = torch.stack([low, *(table(one, offsets) for table, one in zip(self.tables, ids, strict=True))], 1)
        left, right = torch.triu_indices(rows.shape[1], rows.shape[1], 1)
        products = (rows @ rows.transpose(1, 2))[:, left, right]
        return F.binary_cross_entropy_with_logits(self.top(torch.cat((products, low), 1)).squeeze(1), clicked)


class PointNet(nn.Module):
    """Points through shared layers and a learned rotation; the largest value over the points is classified."""

    def __init__(self) -> None:
        super().__init__()
        self.local = nn.Sequential(nn.Conv1d(3, 16, 1), nn.BatchNorm1d(16), nn.ReLU())
        self.turn = nn.Linear(16, 9)
        self.shared = nn.Sequential(nn.Conv1d(3, 16, 1), nn.BatchNorm1d(16), nn.ReLU(), nn.Conv1d(16, 32, 1), nn.BatchNorm1d(32))
        self.head = nn.Linear(32, 4)

    def forward(self, points: Tensor, labels: Tensor) -> Tensor:
        turn = self.turn(self.local(points).amax(2)).view(-1, 3, 3) + torch.eye(3, dtype=points.dtype)
        features, _ = self.shared(turn @ points).max(2)
        uneven = (turn @ turn.transpose(1, 2) - torch.eye(3, dtype=points.dtype)).norm(dim=(1, 2)).mean()
        return F.cross_entropy(self.head(features), labels) + 0.01 * uneven


class Tower(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 16), nn.SiLU(), nn.Linear(16, 1))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return F.smooth_l1_loss(self.layers(x).squeeze(-1), y)


def gcn() -> Built:
    edges = torch.randint(0, 12, (2, 40))
    return GCN(), {"x": torch.randn(12, 8), "edges": edges, "graph": torch.arange(12) // 6, "labels": torch.tensor([0, 2])}


def dlrm() -> Built:
    offsets = torch.tensor([0, 3, 4, 8])
    return DLRM(), {
        "dense": torch.randn(4, 5),
        "ids": torch.randint(0, 30, (3, 10)),
        "offsets": offsets,
        "clicked": torch.tensor([0.0, 1, 1, 0]),
    }


def pointnet() -> Built:
    return PointNet(), {"points": torch.randn(4, 3, 20), "labels": torch.tensor([0, 1, 2, 3])}


def adamw() -> Built:
    return Tower(), {"x": torch.randn(16, 8), "y": torch.randn(16)}


def adamw_of(parameters: object) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-2)  # type: ignore[arg-type]


MODELS = (
    Model("gcn", "own", gcn),
    Model("dlrm", "own", dlrm),
    Model("pointnet", "own", pointnet),
    Model("adamw", "own", adamw, adamw_of, compiled_step=True),
)
