"""Exported files of models that return more than tensors."""

import logging
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from transformers import BartConfig, BartModel, GPT2Config, GPT2LMHeadModel

import nncfx
from nncfx.errors import ExportError
from nncfx.export.pt2e.export_program import export_program
from onnx_files import run_file

X = torch.ones(2, 3)


class Cache:
    """An object that torch cannot take apart."""


@dataclass
class Found:
    """A result in fields, as torch does not know it."""

    logits: Tensor
    cache: Cache


class Sample(dict[str, Tensor]):
    """A mapping that is registered without names, as the outputs of diffusers are."""


pytree.register_pytree_node(
    Sample,
    lambda one: (list(one.values()), list(one)),
    lambda values, names: Sample(zip(names, values, strict=True)),
)


class Net(nn.Module):
    """A linear layer that returns its result in one of several ways."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.layer, self.way = nn.Linear(3, 2), way

    def forward(self, x: Tensor) -> object:
        y = self.layer(x)
        return {
            "mapping": {"cache": Cache(), "logits": y},
            "tuple": (y, Cache(), y + 1),
            "nested": (Found(y, Cache()), y + 1),
            "dataclass": Found(y, Cache()),
            "object": Cache(),
            "registered": Sample(sample=y, more=y + 1),
            "numbers": {"count": 3, "deep": [y, "text", None, y + 1]},
        }[self.way]


def executed(path: Path, inputs: object) -> tuple[Tensor, ...]:
    return tuple(torch.from_numpy(one) for one in run_file(path, inputs))


@pytest.mark.parametrize(
    ("way", "names", "left_out"),
    [
        ("mapping", ("logits",), "cache"),
        ("dataclass", ("logits",), "cache"),
        ("tuple", ("output_0", "output_1"), "1"),
        ("nested", ("output_0_logits", "output_1"), "0.cache"),
    ],
)
def test_what_no_file_can_hold_is_left_out_and_told_once(
    way: str,
    names: tuple[str, ...],
    left_out: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = Net(way)
    with caplog.at_level(logging.WARNING):
        result = nncfx.export_onnx(model, tmp_path / "x.onnx", X)
    assert result.outputs == names
    assert [f"Output '{left_out}' of Net is a Cache" in one for one in caplog.messages] == [True]
    torch.testing.assert_close(executed(result.path, X)[0], model.layer(X))


def test_a_class_that_was_registered_without_names_counts_as_a_mapping(tmp_path: Path) -> None:
    result = nncfx.export_onnx(Net("registered"), tmp_path / "x.onnx", X)
    assert result.outputs == ("sample", "more")


def test_numbers_and_texts_are_left_out_and_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = Net("numbers")
    with caplog.at_level(logging.WARNING):
        result = nncfx.export_onnx(model, tmp_path / "x.onnx", X)
    assert result.outputs == ("deep_0", "deep_3")
    assert caplog.messages == [
        "Output ['count'] of Net is 3, not a tensor, and is left out of the file.",
        "Output ['deep'][1] of Net is 'text', not a tensor, and is left out of the file.",
    ]
    y = model.layer(X)
    for found, expected in zip(executed(result.path, X), (y, y + 1), strict=True):
        torch.testing.assert_close(found, expected)


def test_a_model_whose_outputs_are_all_unknown_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="returns a Cache, in which torch sees no tensor"):
        nncfx.export_onnx(Net("object"), tmp_path / "x.onnx", X)


def test_the_model_is_left_as_it_was(tmp_path: Path) -> None:
    model = Net("mapping")
    nncfx.export_onnx(model, tmp_path / "x.onnx", X)
    assert not model._forward_hooks
    assert isinstance(model(X)["cache"], Cache)


SIZES = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 16}


@pytest.mark.slow
@pytest.mark.parametrize(
    "model",
    [
        GPT2LMHeadModel(GPT2Config(n_embd=16, n_layer=1, n_head=2, vocab_size=30, n_positions=8)),
        BartModel(BartConfig(**SIZES, decoder_ffn_dim=16, vocab_size=30)),
    ],
    ids=["GPT-2", "BART"],
)
def test_language_models_with_a_cache_export_and_agree(model: nn.Module, tmp_path: Path) -> None:
    inputs = {"input_ids": torch.arange(3, 9).view(1, -1)}
    result = nncfx.export_onnx(model.eval(), tmp_path / "x.onnx", inputs)
    assert not [one for one in result.outputs if "past" in one]
    expected = next(iter(model(**inputs).values()))
    torch.testing.assert_close(executed(result.path, inputs)[0], expected, rtol=1e-4, atol=1e-5)


def test_a_program_for_inductor_leaves_them_out_as_well() -> None:
    model = Net("mapping")
    program = export_program(model, X)
    torch.testing.assert_close(program.module()(X)["logits"], model.layer(X))
