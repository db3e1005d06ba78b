"""Models of our own that make or change signals: U-Net, VAE, both parts of a GAN, a step of a diffusion, an ODE, waves on a grid."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.compiler.models.model import Model
from tests.compiler.models.vision import Built


def double(inputs: int, outputs: int) -> nn.Sequential:
    layers = (nn.Conv2d(a, outputs, 3, padding=1, bias=False) for a in (inputs, outputs))
    return nn.Sequential(*(part for layer in layers for part in (layer, nn.BatchNorm2d(outputs), nn.ReLU())))


class UNet(nn.Module):
    """Three levels; up by bilinear interpolation at one, by a transposed convolution at the other."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList((double(1, 8), double(8, 16), double(16, 32)))
        self.up = nn.ConvTranspose2d(32, 16, 2, 2)
        self.right = nn.ModuleList((double(32, 16), double(24, 8)))
        self.last = nn.Conv2d(8, 2, 1)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        first = self.down[0](x)
        second = self.down[1](F.max_pool2d(first, 2))
        third = self.down[2](F.max_pool2d(second, 2))
        second = self.right[0](torch.cat((second, self.up(third)), 1))
        first = self.right[1](torch.cat((first, F.interpolate(second, scale_factor=2, mode="bilinear", align_corners=True)), 1))
        logits = self.last(first)
        share = logits.softmax(1)[:, 1]
        dice = 1 - (2 * (share * labels).sum((1, 2)) + 1) / (share.sum((1, 2)) + labels.sum((1, 2)) + 1)
        return F.cross_entropy(logits, labels) + dice.mean()


class VAE(nn.Module):
    """The noise is an argument, so that two runs can be compared."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, 8, 3, 2, 1), nn.GELU(), nn.Conv2d(8, 16, 3, 2, 1), nn.GELU(), nn.Flatten(), nn.Linear(256, 16)
        )
        self.decoder = nn.Sequential(
            nn.Linear(8, 256), nn.Unflatten(1, (16, 4, 4)), nn.ConvTranspose2d(16, 8, 4, 2, 1), nn.GELU(), nn.ConvTranspose2d(8, 1, 4, 2, 1)
        )

    def forward(self, x: Tensor, noise: Tensor) -> Tensor:
        mean, log_variance = self.encoder(x).chunk(2, 1)
        made = self.decoder(mean + noise * (0.5 * log_variance).exp())
        divergence = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum(1).mean()
        return F.binary_cross_entropy_with_logits(made, x.sigmoid(), reduction="sum") / len(x) + divergence


class Generator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.ConvTranspose2d(8, 16, 4), nn.BatchNorm2d(16), nn.ReLU(), nn.Upsample(scale_factor=2), nn.Conv2d(16, 8, 3, padding=1), nn.BatchNorm2d(8),
            nn.ReLU(), nn.Conv2d(8, 4 * 3, 3, padding=1), nn.PixelShuffle(2), nn.Tanh(),
        )  # fmt: skip

    def forward(self, noise: Tensor) -> Tensor:
        return self.layers(noise)


class Discriminator(nn.Module):
    """With spectral and instance normalisation, and a hinge loss."""

    def __init__(self) -> None:
        super().__init__()
        first, second = (nn.utils.parametrizations.spectral_norm(nn.Conv2d(a, b, 4, 2, 1)) for a, b in ((3, 8), (8, 16)))
        layers = (
            first,
            nn.LeakyReLU(0.2),
            second,
            nn.InstanceNorm2d(16, affine=True),
            nn.LeakyReLU(0.2),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
        )
        self.layers = nn.Sequential(*layers, nn.Linear(64, 1))

    def forward(self, real: Tensor, fake: Tensor) -> Tensor:
        return F.relu(1 - self.layers(real)).mean() + F.relu(1 + self.layers(fake)).mean()


class Denoiser(nn.Module):
    """A step of a diffusion: noise is added by a cosine schedule and guessed from the noisy values and the time's sines and cosines."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.width = width
        self.time = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 2 * width))
        self.first, self.norm, self.last = nn.Linear(6, width), nn.GroupNorm(4, width), nn.Linear(width, 6)

    def forward(self, x: Tensor, noise: Tensor, step: Tensor) -> Tensor:
        share = torch.cos(step / 100 * math.pi / 2).square()[:, None]
        noisy = share.sqrt() * x + (1 - share).sqrt() * noise
        frequencies = torch.exp(-math.log(10_000) * torch.arange(self.width // 2, dtype=x.dtype) / (self.width // 2))
        angles = step[:, None] * frequencies
        scale, shift = self.time(torch.cat((angles.sin(), angles.cos()), -1)).chunk(2, -1)
        hidden = F.mish(self.norm(self.first(noisy)) * (1 + scale) + shift)
        return F.mse_loss(self.last(hidden), noise)


class Flow(nn.Module):
    """Runge-Kutta steps of order four through a small network."""

    def __init__(self) -> None:
        super().__init__()
        self.field = nn.Sequential(nn.Linear(3, 16), nn.Softplus(), nn.Linear(16, 2))

    def change(self, time: float, x: Tensor) -> Tensor:
        return self.field(torch.cat((x, torch.full_like(x[:, :1], time)), 1))

    def forward(self, x: Tensor) -> Tensor:
        for at in range(3):
            time, by = at / 3, 1 / 3
            one = self.change(time, x)
            two = self.change(time + by / 2, x + by / 2 * one)
            three = self.change(time + by / 2, x + by / 2 * two)
            four = self.change(time + by, x + by * three)
            x = x + by / 6 * (one + 2 * two + 2 * three + four)
        return x


class Waves(nn.Module):
    """Steps of a damped wave on a ring, by differences and by a learned filter on its spectrum."""

    def __init__(self, size: int = 16) -> None:
        super().__init__()
        self.speed, self.damping = nn.Parameter(torch.rand(size, size) + 0.5), nn.Parameter(torch.tensor(0.1))
        self.filter = nn.Parameter(torch.rand(size, size // 2 + 1))

    def forward(self, height: Tensor, velocity: Tensor) -> tuple[Tensor, Tensor]:
        for _ in range(3):
            neighbours = [torch.roll(height, shift, axis) for shift in (-1, 1) for axis in (-2, -1)]
            curvature = sum(neighbours) - 4 * height
            velocity = velocity * (1 - self.damping) + 0.1 * self.speed.square() * curvature
            height = height + 0.1 * velocity
        spectrum = torch.fft.rfft2(height) * self.filter
        return torch.fft.irfft2(spectrum, s=height.shape[-2:]), velocity


def unet() -> Built:
    return UNet(), {"x": torch.randn(2, 1, 16, 16), "labels": torch.randint(0, 2, (2, 16, 16))}


def vae() -> Built:
    return VAE(), {"x": torch.randn(2, 1, 16, 16), "noise": torch.randn(2, 8)}


def generator() -> Built:
    return Generator(), {"noise": torch.randn(4, 8, 1, 1)}


def discriminator() -> Built:
    return Discriminator(), {"real": torch.randn(2, 3, 16, 16), "fake": torch.randn(2, 3, 16, 16)}


def diffusion() -> Built:
    return Denoiser(), {"x": torch.randn(8, 6), "noise": torch.randn(8, 6), "step": torch.arange(1.0, 9.0)}


def neural_ode() -> Built:
    return Flow(), {"x": torch.randn(8, 2)}


def waves() -> Built:
    return Waves(), {"height": torch.randn(2, 16, 16), "velocity": torch.randn(2, 16, 16)}


MODELS = tuple(Model(build.__name__, "own", build) for build in (unet, vae, generator, discriminator, diffusion, neural_ode, waves))
