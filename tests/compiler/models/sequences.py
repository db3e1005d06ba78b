"""Models of our own that read sequences: recurrent ones, an encoder with a decoder, a decoder as they are built today, a mixture of experts,
dilated convolutions.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.compiler.models.model import Model, tokens
from tests.compiler.models.vision import Built


class Recurrent(nn.Module):
    """A language model on a recurrent network of two layers."""

    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(50, 16), nn.Linear(24, 50)
        self.network = kind(16, 24, num_layers=2, batch_first=True)

    def forward(self, ids: Tensor) -> Tensor:
        hidden, _ = self.network(self.embedding(ids))
        return F.cross_entropy(self.head(hidden[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())


class Translator(nn.Module):
    """``nn.Transformer`` with learned positions and a causal mask."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.positions, self.head = nn.Embedding(50, 32), nn.Parameter(torch.randn(16, 32) / 8), nn.Linear(32, 50)
        self.transformer = nn.Transformer(32, 4, 2, 2, 64, dropout=0.0, batch_first=True)

    def embedded(self, ids: Tensor) -> Tensor:
        return self.embedding(ids) + self.positions[: ids.shape[1]]

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        before, after = target[:, :-1], target[:, 1:]
        mask = nn.Transformer.generate_square_subsequent_mask(before.shape[1], dtype=self.positions.dtype)
        padding = source == 0
        hidden = self.transformer(
            self.embedded(source),
            self.embedded(before),
            tgt_mask=mask,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
            tgt_is_causal=True,
        )
        return F.cross_entropy(self.head(hidden).transpose(1, 2), after, label_smoothing=0.1)


class Block(nn.Module):
    """RMSNorm, attention with rotary positions and grouped keys, SwiGLU."""

    def __init__(self, width: int = 32, heads: int = 4, groups: int = 2) -> None:
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.before, self.between = nn.RMSNorm(width), nn.RMSNorm(width)
        self.queries, self.keys, self.values = (nn.Linear(width, self.size * count, bias=False) for count in (heads, groups, groups))
        self.out, self.gate, self.up, self.down = (
            nn.Linear(a, b, bias=False) for a, b in ((width, width), (width, 64), (width, 64), (64, width))
        )

    def rotated(self, x: Tensor) -> Tensor:
        frequencies = 10_000.0 ** -(torch.arange(0, self.size, 2, dtype=x.dtype) / self.size)
        angles = torch.outer(torch.arange(x.shape[2], dtype=x.dtype), frequencies)
        even, odd = x[..., 0::2], x[..., 1::2]
        return torch.stack((even * angles.cos() - odd * angles.sin(), even * angles.sin() + odd * angles.cos()), -1).flatten(-2)

    def forward(self, x: Tensor) -> Tensor:
        normal = self.before(x)
        queries, keys, values = (
            part(normal).unflatten(-1, (-1, self.size)).transpose(1, 2) for part in (self.queries, self.keys, self.values)
        )
        keys, values = (part.repeat_interleave(self.heads // self.groups, 1) for part in (self.rotated(keys), values))
        x = x + self.out(F.scaled_dot_product_attention(self.rotated(queries), keys, values, is_causal=True).transpose(1, 2).flatten(2))
        normal = self.between(x)
        return x + self.down(F.silu(self.gate(normal)) * self.up(normal))


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.blocks, self.norm = nn.Embedding(50, 32), nn.Sequential(Block(), Block()), nn.RMSNorm(32)

    def forward(self, ids: Tensor) -> Tensor:
        logits = self.norm(self.blocks(self.embedding(ids))) @ self.embedding.weight.T
        return F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


class Experts(nn.Module):
    """Each token goes to two of four networks, weighted by a router; a second loss keeps the shares even."""

    def __init__(self, width: int = 16, count: int = 4) -> None:
        super().__init__()
        self.router = nn.Linear(width, count)
        self.first, self.second = nn.Parameter(torch.randn(count, width, 32) / 4), nn.Parameter(torch.randn(count, 32, width) / 4)

    def forward(self, x: Tensor) -> Tensor:
        flat = x.flatten(0, 1)
        shares = self.router(flat).softmax(-1)
        weights, chosen = shares.topk(2, -1)
        weights = weights / weights.sum(-1, keepdim=True)
        gates = torch.zeros_like(shares).scatter(1, chosen, weights)
        hidden = F.gelu(torch.einsum("td,edh->teh", flat, self.first))
        mixed = torch.einsum("teh,ehd,te->td", hidden, self.second, gates)
        share = F.one_hot(chosen, shares.shape[1]).sum(1).to(x.dtype).mean(0)
        return mixed.square().mean() + (share * shares.mean(0)).sum()


class WaveNet(nn.Module):
    """Gated dilated causal convolutions with residual and skip sums, one class for each sample."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.first = nn.Conv1d(1, width, 1)
        self.gated = nn.ModuleList(nn.Conv1d(width, 2 * width, 2, dilation=2**k) for k in range(4))
        self.mixed = nn.ModuleList(nn.Conv1d(width, 2 * width, 1) for _ in range(4))
        self.last = nn.Conv1d(width, 32, 1)

    def forward(self, wave: Tensor) -> Tensor:
        x, skipped = self.first(wave), torch.zeros(())
        for gated, mixed in zip(self.gated, self.mixed, strict=True):
            signal, gate = gated(F.pad(x, (gated.dilation[0], 0))).chunk(2, 1)
            change, skip = mixed(signal.tanh() * gate.sigmoid()).chunk(2, 1)
            x, skipped = x + change, skipped + skip
        classes = ((wave[:, 0].clamp(-1, 1) + 1) * 15.5).long()
        return F.cross_entropy(self.last(F.relu(skipped))[:, :, :-1], classes[:, 1:])


def lstm() -> Built:
    return Recurrent(nn.LSTM), {"ids": tokens(2, 8, below=50)}


def gru() -> Built:
    return Recurrent(nn.GRU), {"ids": tokens(2, 8, below=50)}


def transformer() -> Built:
    source = tokens(2, 10, below=50)
    source[0, -3:] = 0
    return Translator(), {"source": source, "target": tokens(2, 8, below=50)}


def decoder() -> Built:
    return Decoder(), {"ids": tokens(2, 12, below=50)}


def experts() -> Built:
    return Experts(), {"x": torch.randn(2, 8, 16)}


def wavenet() -> Built:
    return WaveNet(), {"wave": torch.randn(2, 1, 40)}


MODELS = tuple(Model(build.__name__, "own", build) for build in (lstm, gru, transformer, decoder, experts, wavenet))
