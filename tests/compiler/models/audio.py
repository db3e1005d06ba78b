"""Models of ``transformers`` that listen."""

from __future__ import annotations

import torch

from tests.compiler.models.language import made, tokens
from tests.compiler.models.model import Model
from tests.compiler.models.vision import LAYERS, Built


def whisper() -> Built:
    module = made(
        "WhisperForConditionalGeneration", "WhisperConfig", vocab_size=99, num_mel_bins=16, d_model=32, encoder_layers=2, decoder_layers=2,
        encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, max_source_positions=20,
        max_target_positions=20, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=3, use_cache=False, suppress_tokens=None,
        begin_suppress_tokens=None,
    )  # fmt: skip
    return module, {"input_features": torch.randn(2, 16, 40), "labels": tokens(2, 7)}


def wav2vec2() -> Built:
    module = made(
        "Wav2Vec2ForCTC", "Wav2Vec2Config", **LAYERS, vocab_size=20, conv_dim=[16, 16], conv_kernel=[10, 3], conv_stride=[5, 2], num_feat_extract_layers=2,
        num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4, mask_time_prob=0.0, pad_token_id=0,
    )  # fmt: skip
    return module, {"input_values": torch.randn(2, 400), "labels": torch.randint(1, 20, (2, 6))}


MODELS = tuple(Model(build.__name__, "transformers", build) for build in (whisper, wav2vec2))
