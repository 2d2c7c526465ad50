"""The models of trace_coverage.py: names, how to make them, and what they take."""

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import torch
from torch import nn

__all__ = ["ZOOS", "Subject"]

Made: TypeAlias = tuple[nn.Module, Any]


@dataclass(frozen=True)
class Subject:
    """A model of a zoo.

    Attributes:
        name: As the zoo calls it.
        make: Returns the model, weights at random, and example inputs.
    """

    name: str
    make: Callable[[], Made]


STREAMS: Final = ("propainter_ip", "propainter_rfc", "propainter", "raft")
NO_MODELS: Final = frozenset({"common", *(f"{name}_stream" for name in STREAMS)})
"""Modules of pytorchcv that hold no nn.Module with a forward of its own."""


SPEECH_FAMILIES: Final = ("jasper", "jasperdr", "quartznet")
NO_ENDS: Final = ("_block", "_batch_norm")
"""Functions of pytorchcv's modules that make a part of a model."""


def pytorchcv() -> list[Subject]:
    """Return the smallest variant of each family."""
    package = importlib.import_module("pytorchcv.models")
    names = sorted(one.name for one in pkgutil.iter_modules(package.__path__))
    return [
        Subject(name, partial(make_pytorchcv, name)) for name in names if name not in NO_MODELS
    ]


def make_pytorchcv(family: str) -> Made:
    """Return the variant with the fewest parameters, and its inputs."""
    module = importlib.import_module(f"pytorchcv.models.{family}")
    prefixes = ("get_", "calc_")
    names = [one for one in module.__all__ if one.islower() and not one.startswith(prefixes)]
    sizes = {one: size_of(getattr(module, one)) for one in names if not one.endswith(NO_ENDS)}
    best = min(sizes, key=lambda name: (sizes[name], name))
    # features of audio come from librosa, which a model's graph does not hold
    options = {"from_audio": False} if family in SPEECH_FAMILIES else {}
    model = getattr(module, best)(**options)
    return model, inputs_of(family, model)


def size_of(build: Callable[[], nn.Module]) -> int:
    """Return the parameters of a model, or a great number where its constructor needs values."""
    try:
        with torch.device("meta"):
            return sum(one.numel() for one in build().parameters())
    except RuntimeError:
        return 10**12


def inputs_of(family: str, model: Any) -> Any:  # noqa: ANN401 (as pytorchcv takes it)
    """Return what a model of a family of pytorchcv takes."""
    special: Mapping[str, Callable[[], Any]] = {
        **dict.fromkeys(
            SPEECH_FAMILIES,
            lambda: (torch.randn(2, model.in_channels, 152), torch.tensor([150, 120])),
        ),
        "voca": lambda: (torch.randn(3, 1, 16, 29), torch.full((3,), 3)),
        "visemenet": lambda: (torch.randn(4, 8, 195), torch.full((4, 76), 3)),
        "nvpattexp": lambda: (torch.randn(2, 8, 16, 29), torch.full((2,), 3)),
        "raft": lambda: (torch.randn(1, 3, 128, 128), torch.randn(1, 3, 128, 128)),
        **dict.fromkeys(
            ("propainter", "propainter_rfc"),
            lambda: (torch.randn(1, 5, 2, 240, 432), torch.randn(1, 5, 1, 240, 432)),
        ),
        "propainter_ip": lambda: (
            *(torch.randn(5, 3, 240, 432), torch.randn(5, 1, 240, 432)),
            *(torch.randn(4, 4, 240, 432), "nearest"),
        ),
        "prnet": lambda: torch.randn(1, 3, 256, 256),
        "superpointnet": lambda: torch.randn(1, 1, 240, 320),
        "pfpcnet": lambda: torch.randn(1, 1, 320, 240),
        "lffd": lambda: torch.randn(1, 3, 320, 320),
        "ntsnet_cub": lambda: torch.randn(1, 3, 448, 448),
    }
    if family in special:
        return special[family]()
    height, width = model.in_size
    return torch.randn(1, 3, height, width)


def torchvision() -> list[Subject]:
    """Return all classification models."""
    package = importlib.import_module("torchvision.models")
    return [
        Subject(name, partial(make_torchvision, name)) for name in package.list_models(package)
    ]


def make_torchvision(name: str) -> Made:
    """Return a model at the size of its published weights' crops, 224 for most."""
    package = importlib.import_module("torchvision.models")
    options = {"init_weights": True} if name in {"googlenet", "inception_v3"} else {}
    size = 299 if name == "inception_v3" else 518 if name.endswith("h_14_swag") else 224
    return package.get_model(name, **options), torch.rand(1, 3, size, size)


TIMM: Final = (
    *("bat_resnext26ts", "beit_base_patch16_224", "botnet26t_256", "caformer_s18"),
    *("cait_xxs24_224", "coat_tiny", "coatnet_nano_rw_224", "convformer_s18"),
    *("convit_tiny", "convmixer_768_32", "convnext_atto", "convnextv2_atto"),
    *("crossvit_tiny_240", "cs3darknet_s", "cspresnet50", "davit_tiny"),
    *("deit_tiny_patch16_224", "densenet121", "dla34", "dm_nfnet_f0", "dpn48b"),
    *("eca_nfnet_l0", "edgenext_xx_small", "efficientformer_l1", "efficientnet_b0"),
    *("efficientvit_b0", "eva02_tiny_patch14_224", "fastvit_t8", "fbnetc_100"),
    *("focalnet_tiny_srf", "gcvit_xxtiny", "gernet_s", "ghostnet_100", "gmlp_s16_224"),
    *("halonet26t", "hardcorenas_a", "hgnet_tiny", "hrnet_w18_small"),
    *("inception_next_tiny", "lambda_resnet26t", "lcnet_050", "levit_128s"),
    *("maxvit_nano_rw_256", "mixer_s32_224", "mobilenetv4_conv_small", "mobileone_s0"),
    *("mobilevit_xxs", "mobilevitv2_050", "mvitv2_tiny", "nest_tiny", "nf_regnet_b0"),
    *("pit_ti_224", "poolformer_s12", "pvt_v2_b0", "regnety_002", "repvgg_a0"),
    *("repvit_m0_9", "res2net50d", "resmlp_12_224", "resnest14d", "rexnet_100"),
    *("seresnet18", "sequencer2d_s", "skresnet18", "starnet_s1"),
    *("swin_tiny_patch4_window7_224", "swinv2_tiny_window8_256", "tf_mixnet_s"),
    *("tiny_vit_5m_224", "tinynet_e", "tnt_s_legacy_patch16_224", "twins_pcpvt_small"),
    *("vgg11", "visformer_tiny", "vit_tiny_patch16_224", "volo_d1_224", "vovnet39a"),
    "xcit_nano_12_p16_224",
)
"""One of each kind that timm has."""


def timm() -> list[Subject]:
    """Return one model of each kind."""
    return [Subject(name, partial(make_timm, name)) for name in TIMM]


def make_timm(name: str) -> Made:
    """Return a model at its own default size."""
    model = importlib.import_module("timm").create_model(name)
    return model, torch.rand(1, *model.default_cfg["input_size"])


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
    },
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
    },
)
"""Name of the model class to the kind of its inputs and what else its config needs."""


def transformers() -> list[Subject]:
    """Return one small model of each architecture."""
    return [Subject(name, partial(make_transformers, name)) for name in TRANSFORMERS]


def make_transformers(name: str) -> Made:
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
    },
)

ZOOS: Final[Mapping[str, Callable[[], list[Subject]]]] = MappingProxyType(
    {
        "pytorchcv": pytorchcv,
        "torchvision": torchvision,
        "timm": timm,
        "transformers": transformers,
    },
)
