"""The models of trace_coverage.py: names, how to make them, and what they take."""

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import torch
from deformable import provide
from torch import nn
from trace_transformers import TRANSFORMERS, make_transformers

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
NO_ENDS: Final = ("_block", "_batch_norm", "_sequential")
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
    if family in {"propainter", "propainter_rfc"}:
        provide()
    module = importlib.import_module(f"pytorchcv.models.{family}")
    prefixes = ("get_", "calc_")
    # features of audio come from librosa, which a model's graph does not hold
    options = {"from_audio": False} if family in SPEECH_FAMILIES else {}
    names = [one for one in module.__all__ if one.islower() and not one.startswith(prefixes)]
    sizes = {
        one: size_of(partial(getattr(module, one), **options))
        for one in names
        if not one.endswith(NO_ENDS)
    }
    best = min(sizes, key=lambda name: (sizes[name], name))
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
            SPEECH_FAMILIES, lambda: (torch.randn(2, 64, 152), torch.tensor([150, 120]))
        ),
        "voca": lambda: (torch.randn(3, 1, 16, 29), torch.full((3,), 3)),
        "visemenet": lambda: (torch.randn(34, 8, 195), torch.full((34, 76), 3)),
        "nvpattexp": lambda: (torch.randn(2, 8, 16, 29), torch.full((2,), 3)),
        "raft": lambda: (torch.randn(1, 3, 128, 128), torch.randn(1, 3, 128, 128)),
        "propainter": lambda: (
            *(torch.randn(1, 5, 3, 60, 108), torch.rand(1, 5, 1, 60, 108).round()),
            *(torch.rand(1, 5, 1, 60, 108).round(), torch.randn(1, 2, 4, 60, 108), 3),
        ),
        "propainter_rfc": lambda: (
            *(torch.randn(1, 5, 2, 64, 64), torch.rand(1, 5, 1, 64, 64).round()),
        ),
        "propainter_ip": lambda: (
            *(torch.randn(5, 3, 240, 432), torch.randn(5, 1, 240, 432)),
            *(torch.randn(4, 4, 240, 432), "nearest"),
        ),
        "prnet": lambda: torch.randn(1, 3, 256, 256),
        # some operations for each interest point, of which there are as many as pixels
        "superpointnet": lambda: torch.randn(1, 1, 48, 64),
        # made for 1024 x 2048, of which a hundred forwards take minutes
        **dict.fromkeys(("segnet", "sqnet", "unet"), lambda: torch.randn(1, 3, 256, 512)),
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


TASKS: Final = MappingProxyType(
    {
        "segmentation.fcn_resnet50": (1, 3, 128, 128),
        "segmentation.deeplabv3_mobilenet_v3_large": (1, 3, 128, 128),
        "segmentation.lraspp_mobilenet_v3_large": (1, 3, 128, 128),
        "video.r3d_18": (1, 3, 8, 64, 64),
        "video.mc3_18": (1, 3, 8, 64, 64),
        "video.r2plus1d_18": (1, 3, 8, 64, 64),
        "video.s3d": (1, 3, 16, 224, 224),
        "video.mvit_v2_s": (1, 3, 16, 224, 224),
        "video.swin3d_t": (1, 3, 8, 64, 64),
        "optical_flow.raft_small": (1, 3, 128, 128),
        "detection.retinanet_resnet50_fpn": (1, 3, 128, 128),
        "detection.ssdlite320_mobilenet_v3_large": (1, 3, 320, 320),
    }
)
"""Models of torchvision for other tasks than classification, and sizes of images."""


def torchvision_tasks() -> list[Subject]:
    """Return models for other tasks, of detectors the backbones (outputs of fixed sizes)."""
    return [Subject(name, partial(make_task, name)) for name in TASKS]


def make_task(name: str) -> Made:
    """Return a model, and images of the size for it."""
    task, _, function = name.partition(".")
    build = getattr(importlib.import_module(f"torchvision.models.{task}"), function)
    options = {"weights_backbone": None} if task in {"segmentation", "detection"} else {}
    model = build(weights=None, **options)
    images = torch.rand(TASKS[name])
    if task == "optical_flow":
        return model, (images, torch.rand(TASKS[name]))
    return (model.backbone if task == "detection" else model), images


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


def transformers() -> list[Subject]:
    """Return one small model of each architecture."""
    return [Subject(name, partial(make_transformers, name)) for name in TRANSFORMERS]


ZOOS: Final[Mapping[str, Callable[[], list[Subject]]]] = MappingProxyType(
    {
        "pytorchcv": pytorchcv,
        "torchvision": torchvision,
        "torchvision_tasks": torchvision_tasks,
        "timm": timm,
        "transformers": transformers,
    }
)
