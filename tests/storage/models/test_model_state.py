"""A file holds the state of modules, whatever a class adds to its `state_dict`."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from typing_extensions import override

import nncfx
from nncfx.compressor.build_evidence import fingerprint
from nncfx.errors import StorageError
from nncfx.storage.models.model_state import model_state
from nncfx.tasks.weights import load_weights


class Noted(nn.Module):
    """Notes its settings in its state, as the networks of neuralop do."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    @override
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)

    @override
    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        state = super().state_dict(*args, **kwargs)
        state["_metadata"] = {"activation": nn.functional.gelu}
        return state

    @override
    def load_state_dict(self, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
        state_dict.pop("_metadata", None)
        return super().load_state_dict(state_dict, *args, **kwargs)


class Writing(nn.Linear):
    """Writes its weight to its state itself, as the layers of torch_geometric do."""

    @override
    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[f"{prefix}weight"] = self.weight.detach()


class Counting(nn.Module):
    """Has extra state, by the interface that torch has for it."""

    @override
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x

    def get_extra_state(self) -> dict[str, int]:
        return {"calls": 3}

    def set_extra_state(self, state: dict[str, int]) -> None: ...


@pytest.mark.parametrize("name", ["model.safetensors", "model.nncfx"])
def test_a_model_that_notes_its_settings_comes_back(tmp_path: Path, name: str) -> None:
    x = torch.randn(8, 4)
    model = Noted()
    quantized = nncfx.quantize(model, [x])
    save = nncfx.save if name.endswith("safetensors") else nncfx.storage.save
    save(tmp_path / name, quantized)
    _, again = nncfx.load(tmp_path / name, Noted())
    assert torch.equal(again(x), quantized(x))
    assert list(model_state(again)) == list(model_state(quantized))


@pytest.mark.parametrize("name", ["model.safetensors", "model.nncfx"])
def test_a_layer_that_writes_its_own_weight_comes_back_packed(tmp_path: Path, name: str) -> None:
    x = torch.randn(8, 128)
    model = nn.Sequential(Writing(128, 16), nn.ReLU(), Writing(16, 4))
    packed = nncfx.quantize_weights(model, bits=4, pack=True, example_inputs=x)
    assert "0.weight" not in model_state(packed)
    save = nncfx.save if name.endswith("safetensors") else nncfx.storage.save
    save(tmp_path / name, packed)
    fresh = nn.Sequential(Writing(128, 16), nn.ReLU(), Writing(16, 4))
    _, again = nncfx.load(tmp_path / name, fresh)
    assert torch.equal(again(x), packed(x))


def test_its_training_comes_back(tmp_path: Path) -> None:
    x = torch.randn(8, 4)
    config = {"compression": {"algorithm": "magnitude_sparsity", "sparsity_init": 0.5}}
    controller, model = nncfx.create_compressed_model(Noted(), config, x)
    nncfx.save(tmp_path / "training.safetensors", model, controller)
    _, again = nncfx.load(tmp_path / "training.safetensors", Noted())
    assert torch.equal(again(x), model(x))


def test_it_is_told_from_others_and_takes_weights(tmp_path: Path) -> None:
    model, other = Noted(), Noted()
    assert fingerprint(model) != fingerprint(other)
    torch.save({f"layer.{k}": v for k, v in model.layer.state_dict().items()}, tmp_path / "w.pt")
    assert fingerprint(load_weights(other, tmp_path / "w.pt")) == fingerprint(model)


def test_extra_state_of_a_module_is_refused_not_lost(tmp_path: Path) -> None:
    model = nn.Sequential(Counting(), nn.Linear(2, 2))
    assert model_state(model)["0._extra_state"] == {"calls": 3}
    with pytest.raises(StorageError, match="_extra_state"):
        nncfx.save(tmp_path / "model.safetensors", model)
