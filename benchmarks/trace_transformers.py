"""Small models of transformers for trace_coverage.py, and what they take."""

import importlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

import torch
from torch import nn

__all__ = ["TRANSFORMERS", "make_transformers"]

SMALL: Final[Mapping[str, Any]] = MappingProxyType(
    {
        **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim", "emb_dim", "embed_dim"), 32),
        **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers"), 2),
        **dict.fromkeys(("encoder_layers", "decoder_layers", "num_decoder_layers"), 2),
        **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads"), 4),
        **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4),
        **dict.fromkeys(("intermediate_size", "d_ff", "ffn_dim", "hidden_dim"), 64),
        **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim", "n_inner"), 64),
        **dict.fromkeys(("max_position_embeddings", "n_positions", "max_source_positions"), 64),
        **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"), 1),
        **dict.fromkeys(("head_dim", "d_kv"), 8),
        "vocab_size": 99,
        "num_key_value_heads": 2,
        "image_size": 32,
        "patch_size": 8,
        "decoder_start_token_id": 1,
    }
)
"""Sizes that are set wherever a config has them."""

IDS: Final = "ids"
PIXELS: Final = "pixels"
SPEECH: Final = "speech"
BOTH: Final = "encoder and decoder ids"

TRANSFORMERS: Final[Mapping[str, tuple[str, dict[str, Any]]]] = MappingProxyType(
    {
        "ASTModel": ("spectrogram", {"patch_size": 16}),
        "AlbertModel": (IDS, {"embedding_size": 16}),
        "BartModel": (BOTH, {}),
        "BeitModel": (PIXELS, {}),
        "BertModel": (IDS, {}),
        "BigBirdModel": (IDS, {"attention_type": "original_full"}),
        "BlenderbotModel": (BOTH, {}),
        "BloomForCausalLM": (IDS, {}),
        "CLIPModel": (
            "text and image",
            {
                "text_config": {
                    "hidden_size": 32,
                    "num_hidden_layers": 2,
                    "num_attention_heads": 4,
                    "intermediate_size": 64,
                    "vocab_size": 99,
                    "eos_token_id": 15,
                },
                "vision_config": {
                    "hidden_size": 32,
                    "num_hidden_layers": 2,
                    "num_attention_heads": 4,
                    "intermediate_size": 64,
                    "image_size": 32,
                    "patch_size": 8,
                },
                "projection_dim": 32,  # as wide as the text's stream, as in ViT-B/32
            },
        ),
        "CanineModel": (IDS, {}),
        "CodeGenForCausalLM": (IDS, {"rotary_dim": 4}),
        "CohereForCausalLM": (IDS, {}),
        "ConvBertModel": (IDS, {"embedding_size": 16}),
        "ConvNextModel": (
            PIXELS,
            {"hidden_sizes": [16, 32], "depths": [1, 1], "num_stages": 2, "patch_size": 4},
        ),
        "DPTModel": (PIXELS, {"backbone_out_indices": [0, 1, 1, 1]}),
        "DebertaModel": (IDS, {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]}),
        "DebertaV2Model": (IDS, {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]}),
        "DeiTModel": (PIXELS, {}),
        "Dinov2Model": (PIXELS, {}),
        "DetrModel": (
            PIXELS,
            {
                "num_queries": 5,
                "backbone": None,
                "use_timm_backbone": False,
                "use_pretrained_backbone": False,
                "backbone_config": {
                    "model_type": "resnet",
                    "embedding_size": 16,
                    "hidden_sizes": [16, 32],
                    "depths": [1, 1],
                    "out_features": ["stage2"],
                },
            },
        ),
        "DistilBertModel": (IDS, {}),
        "ElectraModel": (IDS, {"embedding_size": 16}),
        "FNetModel": ("ids only", {}),
        "FalconForCausalLM": (IDS, {}),
        "FunnelModel": (IDS, {"block_sizes": [1, 1, 1], "n_head": 4}),
        "GPT2LMHeadModel": (IDS, {}),
        "GPTJForCausalLM": (IDS, {"rotary_dim": 4}),
        "GPTNeoModel": (IDS, {"attention_types": [[["global", "local"], 1]], "num_layers": 2}),
        "GPTNeoXForCausalLM": (IDS, {}),
        "Gemma2ForCausalLM": (IDS, {}),
        "GemmaForCausalLM": (IDS, {}),
        "GptOssForCausalLM": (
            IDS,
            {
                "num_local_experts": 4,
                "num_experts_per_tok": 2,
                "layer_types": ["sliding_attention", "full_attention"],
            },
        ),
        "GraniteForCausalLM": (IDS, {}),
        "HubertModel": (SPEECH, {}),
        "LEDModel": (
            BOTH,
            {
                "attention_window": 8,
                "max_encoder_position_embeddings": 64,
                "max_decoder_position_embeddings": 64,
            },
        ),
        "LevitModel": (
            PIXELS,
            {
                "hidden_sizes": [16, 32, 32],
                "num_attention_heads": [2, 4, 4],
                "key_dim": [8, 8, 8],
                "depths": [1, 1, 1],
                "image_size": 64,
                "patch_size": 16,
            },
        ),
        "LlamaForCausalLM": (IDS, {}),
        "LongformerModel": (IDS, {"attention_window": 8}),
        "M2M100Model": (BOTH, {}),
        "MBartModel": (BOTH, {}),
        "MPNetModel": (IDS, {}),
        "MT5Model": (BOTH, {}),
        "Mamba2ForCausalLM": (
            "ids only",
            {"num_heads": 8, "head_dim": 8, "state_size": 8, "n_groups": 2, "chunk_size": 4},
        ),
        "MambaForCausalLM": ("ids only", {"state_size": 4}),
        "MarianModel": (BOTH, {}),
        "MistralForCausalLM": (IDS, {}),
        "MixtralForCausalLM": (IDS, {"num_local_experts": 4}),
        "MobileBertModel": (
            IDS,
            {"embedding_size": 32, "intra_bottleneck_size": 32, "true_hidden_size": 32},
        ),
        "MobileNetV2Model": (PIXELS, {}),
        "MobileViTModel": (PIXELS, {"image_size": 64, "patch_size": 2}),
        "ModernBertModel": (
            IDS,
            {"global_attn_every_n_layers": 2, "cls_token_id": 1, "sep_token_id": 1},
        ),
        "MptForCausalLM": (IDS, {}),
        "NystromformerModel": (IDS, {}),
        "OPTForCausalLM": (IDS, {"word_embed_proj_dim": 32}),
        "Olmo2ForCausalLM": (IDS, {}),
        "OlmoeForCausalLM": (IDS, {"num_experts": 4, "num_experts_per_tok": 2}),
        "PegasusModel": (BOTH, {}),
        "Phi3ForCausalLM": (IDS, {}),
        "PhiForCausalLM": (IDS, {}),
        "PoolFormerModel": (PIXELS, {}),
        "Qwen2ForCausalLM": (IDS, {}),
        "Qwen2MoeForCausalLM": (
            IDS,
            {"num_experts": 4, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32},
        ),
        "Qwen3ForCausalLM": (IDS, {}),
        "Qwen3MoeForCausalLM": (
            IDS,
            {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32},
        ),
        "ResNetModel": (
            PIXELS,
            {"embedding_size": 16, "hidden_sizes": [16, 32], "depths": [1, 1]},
        ),
        "RoFormerModel": (IDS, {"embedding_size": 32}),
        "RobertaModel": (IDS, {}),
        "RwkvForCausalLM": ("ids only", {"attention_hidden_size": 32}),
        "SegformerModel": (
            PIXELS,
            {
                "num_attention_heads": [1, 2, 2, 4],
                "depths": [1, 1, 1, 1],
                "hidden_sizes": [16, 16, 32, 32],
            },
        ),
        "SiglipVisionModel": (PIXELS, {}),
        "SqueezeBertModel": (IDS, {"embedding_size": 32}),
        "StableLmForCausalLM": (IDS, {}),
        "SwinModel": (
            PIXELS,
            {
                "patch_size": 2,
                "depths": [1, 1],
                "embed_dim": 16,
                "window_size": 4,
                "num_heads": [2, 2],
                "num_attention_heads": [2, 2],
            },
        ),
        "SwitchTransformersModel": (
            BOTH,
            {"num_experts": 4, "num_sparse_encoder_layers": 1, "num_sparse_decoder_layers": 1},
        ),
        "T5Model": (BOTH, {}),
        "ViTMAEModel": (PIXELS, {}),
        "ViTModel": (PIXELS, {}),
        "Wav2Vec2Model": (SPEECH, {}),
        "WavLMModel": (SPEECH, {}),
        "WhisperModel": ("mel", {"max_source_positions": 64, "max_target_positions": 64}),
        "XLMRobertaModel": (IDS, {}),
        "XLNetModel": (IDS, {}),
        "YolosModel": (PIXELS, {"image_size": [32, 32], "num_detection_tokens": 5}),
    }
)
"""Name of the model class to the kind of its inputs and what else its config needs."""


def make_transformers(name: str) -> tuple[nn.Module, dict[str, torch.Tensor]]:
    """Return a model from a small config, and its inputs."""
    package = importlib.import_module("transformers")
    kind, more = TRANSFORMERS[name]
    build = getattr(package, name)
    default = build.config_class()
    known = set(default.to_dict()) | set(default.attribute_map)
    sizes = {key: value for key, value in SMALL.items() if key in known}
    config = build.config_class(**{**sizes, **more})
    model = build(config)
    return model, inputs_of_kind(kind, config)


def inputs_of_kind(kind: str, config: Any) -> dict[str, torch.Tensor]:  # noqa: ANN401 (as the zoo has it)
    """Return the keyword inputs of a transformer."""
    ids = torch.arange(2, 16).reshape(2, 7)
    mask = torch.ones_like(ids)
    mask[1, -2:] = 0  # padding: with none, many models take a branch without the mask
    if kind == IDS:
        return {"input_ids": ids, "attention_mask": mask}
    if kind == BOTH:
        return {"input_ids": ids, "attention_mask": mask, "decoder_input_ids": ids + 20}
    if kind == PIXELS:
        size = config.image_size if "image_size" in config.to_dict() else 64
        height, width = (size, size) if isinstance(size, int) else size
        return {"pixel_values": torch.rand(1, 3, height, width)}
    if kind == SPEECH:
        return {"input_values": torch.rand(1, 4000)}
    return KINDS[kind](ids)


KINDS: Final[Mapping[str, Callable[[torch.Tensor], dict[str, torch.Tensor]]]] = MappingProxyType(
    {
        "ids only": lambda ids: {"input_ids": ids},
        "text and image": lambda ids: {"input_ids": ids, "pixel_values": torch.rand(2, 3, 32, 32)},
        "mel": lambda ids: {
            "input_features": torch.rand(1, 80, 128),
            "decoder_input_ids": ids[:1],
        },
        "spectrogram": lambda _: {"input_values": torch.rand(1, 1024, 128)},
    }
)
