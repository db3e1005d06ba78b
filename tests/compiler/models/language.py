"""Language models of ``transformers``: encoders, decoders, and both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tests.compiler.models.model import Model, tokens, without_dropout

SMALL = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
}
NO_CACHE = {"use_cache": False, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
GROUPED = {**SMALL, **NO_CACHE, "num_key_value_heads": 2}


def padded(rows: int = 2, columns: int = 16) -> dict[str, torch.Tensor]:
    """Token numbers of which the last row has padding at its end."""
    ids, mask = tokens(rows, columns), torch.ones(rows, columns, dtype=torch.int64)
    ids[-1, -5:], mask[-1, -5:] = 0, 0
    return {"input_ids": ids, "attention_mask": mask}


def made(head: str, config: str, **settings: Any) -> torch.nn.Module:  # what the configuration takes
    import transformers

    chosen = getattr(transformers, config)(**settings)
    for name, value in vars(chosen).items():
        if ("drop" in name or "pdrop" in name) and isinstance(value, float):
            setattr(chosen, name, 0.0)
    return without_dropout(getattr(transformers, head)(chosen))


def tagged(head: str, config: str, **settings: Any) -> Callable[[], tuple[torch.nn.Module, dict[str, Any]]]:
    """An encoder with a label for each token."""

    def build() -> tuple[torch.nn.Module, dict[str, Any]]:
        inputs = padded()
        return made(head, config, **settings), {**inputs, "labels": inputs["input_ids"] % 2}

    return build


def filled(head: str, config: str, **settings: Any) -> Callable[[], tuple[torch.nn.Module, dict[str, Any]]]:
    """A model whose labels are tokens; those of padding do not count."""

    def build() -> tuple[torch.nn.Module, dict[str, Any]]:
        inputs = padded()
        labels = inputs["input_ids"].masked_fill(inputs["attention_mask"] == 0, -100)
        return made(head, config, **settings), {**inputs, "labels": labels}

    return build


def classified(head: str, config: str, **settings: Any) -> Callable[[], tuple[torch.nn.Module, dict[str, Any]]]:
    def build() -> tuple[torch.nn.Module, dict[str, Any]]:
        return made(head, config, **settings), {**padded(), "labels": torch.tensor([0, 1])}

    return build


def translated(head: str, config: str, **settings: Any) -> Callable[[], tuple[torch.nn.Module, dict[str, Any]]]:
    """An encoder and a decoder, whose labels are other tokens."""

    def build() -> tuple[torch.nn.Module, dict[str, Any]]:
        return made(head, config, **settings), {**padded(), "labels": tokens(2, 9)}

    return build


BART = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
        "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "vocab_size": 99, "max_position_embeddings": 64}  # fmt: skip
DEBERTA = {
    "relative_attention": True,
    "pos_att_type": ["p2c", "c2p"],
    "position_buckets": 8,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
}
WINDOWS = {"head_dim": 8, "sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"]}
T5 = {
    "vocab_size": 99,
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 64,
    "num_layers": 2,
    "num_heads": 4,
    "pad_token_id": 0,
    "decoder_start_token_id": 0,
}
GPT2 = {"vocab_size": 99, "n_positions": 64, "n_embd": 32, "n_layer": 2, "n_head": 4}

MODELS = tuple(
    Model(name, "transformers", build)
    for name, build in {
        "bert": filled("BertForMaskedLM", "BertConfig", **SMALL),
        "roberta": classified("RobertaForSequenceClassification", "RobertaConfig", **SMALL),
        "distilbert": tagged("DistilBertForTokenClassification", "DistilBertConfig", vocab_size=99, dim=32, n_layers=2, n_heads=4, hidden_dim=64),
        "albert": filled("AlbertForMaskedLM", "AlbertConfig", **SMALL, embedding_size=16),
        "electra": tagged("ElectraForPreTraining", "ElectraConfig", **SMALL, embedding_size=16),
        "deberta_v2": classified("DebertaV2ForSequenceClassification", "DebertaV2Config", **SMALL, **DEBERTA),
        "gpt2": filled("GPT2LMHeadModel", "GPT2Config", **GPT2, bos_token_id=1, eos_token_id=2),
        "gpt_neo": filled("GPTNeoForCausalLM", "GPTNeoConfig", vocab_size=99, hidden_size=32, num_layers=2, num_heads=4, window_size=8,
                          attention_types=[[["global", "local"], 1]], max_position_embeddings=64, **NO_CACHE),
        "opt": filled("OPTForCausalLM", "OPTConfig", vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, ffn_dim=64,
                      word_embed_proj_dim=32, max_position_embeddings=64, **NO_CACHE),
        "bloom": filled("BloomForCausalLM", "BloomConfig", vocab_size=99, hidden_size=32, n_layer=2, n_head=4, **NO_CACHE),
        "falcon": filled("FalconForCausalLM", "FalconConfig", vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, **NO_CACHE),
        "gpt_neox": filled("GPTNeoXForCausalLM", "GPTNeoXConfig", **SMALL, **NO_CACHE),
        "phi": filled("PhiForCausalLM", "PhiConfig", **SMALL, **NO_CACHE),
        "llama": filled("LlamaForCausalLM", "LlamaConfig", **GROUPED),
        "mistral": filled("MistralForCausalLM", "MistralConfig", **GROUPED, sliding_window=8),
        "mixtral": filled("MixtralForCausalLM", "MixtralConfig", **GROUPED, num_local_experts=4, num_experts_per_tok=2),
        "qwen2": filled("Qwen2ForCausalLM", "Qwen2Config", **GROUPED),
        "qwen3": filled("Qwen3ForCausalLM", "Qwen3Config", **GROUPED, head_dim=8),
        "gemma2": filled("Gemma2ForCausalLM", "Gemma2Config", **GROUPED, **WINDOWS),
        "gemma3": filled("Gemma3ForCausalLM", "Gemma3TextConfig", **GROUPED, **WINDOWS),
        "mamba": filled("MambaForCausalLM", "MambaConfig", vocab_size=99, hidden_size=32, num_hidden_layers=2, state_size=8, **NO_CACHE),
        "t5": translated("T5ForConditionalGeneration", "T5Config", **T5, use_cache=False),
        "bart": translated("BartForConditionalGeneration", "BartConfig", **BART, pad_token_id=0, bos_token_id=1, eos_token_id=2,
                           decoder_start_token_id=2, use_cache=False),
    }.items()
)  # fmt: skip
