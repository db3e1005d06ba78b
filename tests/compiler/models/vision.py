"""Models of ``transformers`` that look at pictures."""

from __future__ import annotations

from typing import Any

import torch

from tests.compiler.models.language import made, tokens
from tests.compiler.models.model import Model

LAYERS = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
Built = tuple[torch.nn.Module, dict[str, Any]]


def pictures(size: int = 32) -> torch.Tensor:
    return torch.randn(2, 3, size, size)


def vit() -> Built:
    module = made("ViTForImageClassification", "ViTConfig", **LAYERS, image_size=32, patch_size=8, num_labels=5)
    return module, {"pixel_values": pictures(), "labels": torch.tensor([1, 3])}


def swin() -> Built:
    module = made(
        "SwinForImageClassification", "SwinConfig", image_size=32, patch_size=2, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4, num_labels=5,
        drop_path_rate=0.0,
    )  # fmt: skip
    return module, {"pixel_values": pictures(), "labels": torch.tensor([1, 3])}


def convnext() -> Built:
    module = made("ConvNextForImageClassification", "ConvNextConfig", hidden_sizes=[16, 32], depths=[2, 2], num_stages=2, num_labels=5)
    return module, {"pixel_values": pictures(), "labels": torch.tensor([1, 3])}


def segformer() -> Built:
    module = made(
        "SegformerForSemanticSegmentation", "SegformerConfig", num_encoder_blocks=2, depths=[1, 1], sr_ratios=[4, 2], hidden_sizes=[16, 32],
        patch_sizes=[7, 3], strides=[4, 2], num_attention_heads=[1, 2], mlp_ratios=[2, 2], decoder_hidden_size=32, num_labels=5, drop_path_rate=0.0,
    )  # fmt: skip
    return module, {"pixel_values": pictures(), "labels": torch.randint(0, 5, (2, 32, 32))}


def clip() -> Built:
    text = {**LAYERS, "vocab_size": 99, "max_position_embeddings": 32, "eos_token_id": 98, "bos_token_id": 1, "pad_token_id": 0}
    module = made(
        "CLIPModel", "CLIPConfig", text_config=text, vision_config={**LAYERS, "image_size": 32, "patch_size": 8}, projection_dim=24
    )
    return module, {"input_ids": tokens(2, 9), "pixel_values": pictures(), "return_loss": True}


MODELS = tuple(Model(build.__name__, "transformers", build) for build in (vit, swin, convnext, segformer, clip))
