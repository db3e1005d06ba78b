"""Models of ``timm``, most with their own widths and fewer blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tests.compiler.models.model import Model, without_dropout
from tests.compiler.models.vision import Built

SIZE = 64


def create(architecture: str, size: int = SIZE, **settings: Any) -> Callable[[], Built]:  # what the architecture takes
    def build() -> Built:
        _declare_torchvision()
        import timm

        module = timm.create_model(architecture, num_classes=10, **settings)
        return without_dropout(module), {"x": torch.randn(2, 3, size, size)}

    return build


def densenet() -> Built:
    _declare_torchvision()
    from timm.models.densenet import DenseNet

    return DenseNet(growth_rate=8, block_config=(2, 2, 2, 2), num_classes=10), {"x": torch.randn(2, 3, SIZE, SIZE)}


def mixer() -> Built:
    _declare_torchvision()
    from timm.models.mlp_mixer import MlpMixer

    return MlpMixer(img_size=SIZE, patch_size=16, num_blocks=2, embed_dim=64, num_classes=10), {"x": torch.randn(2, 3, SIZE, SIZE)}


def _declare_torchvision() -> None:
    """The names that torchvision's Python looks for at its import.

    Its wheels are built for CUDA; beside a PyTorch for the CPU its library of kernels, which no model here calls, is not loaded.
    """
    if hasattr(torch.ops.torchvision, "nms"):
        return
    library = torch.library.Library("torchvision", "DEF")
    library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _KEPT.append(library)


_KEPT: list[torch.library.Library] = []  # what a Library declares is gone with it

MODELS = tuple(
    Model(name, "timm", build)
    for name, build in {
        "resnet18": create("resnet18"),
        "seresnet50d": create("seresnext26d_32x4d", layers=(1, 1, 1, 1)),
        "efficientnet_b0": create("efficientnet_b0", drop_path_rate=0.0),
        "mobilenetv3_small": create("mobilenetv3_small_050"),
        "convnext_atto": create("convnext_atto", depths=(1, 1, 2, 1)),
        "vit_tiny": create("vit_tiny_patch16_224", img_size=SIZE, depth=2),
        "swin_tiny": create("swin_tiny_patch4_window7_224", img_size=SIZE, window_size=4, depths=(2, 2), num_heads=(2, 4), embed_dim=32, drop_path_rate=0.0),
        "mixer": mixer,
        "regnety": create("regnety_002"),
        "ghostnet": create("ghostnet_050"),
        "mobilevit": create("mobilevit_xxs"),
        "poolformer": create("poolformer_s12"),
        "vgg11": create("vgg11_bn", size=32),
        "densenet": densenet,
    }.items()
)  # fmt: skip
