"""What `save_pretrained` writes of a wrapped model."""

import copy
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import nncfx
from nncfx.network import NNCFNetwork, wrap
from nncfx.tracing import Insertion, PostSite, WeightSite

transformers = pytest.importorskip("transformers")

IDS = {"input_ids": torch.randint(0, 50, (2, 8), generator=torch.Generator().manual_seed(0))}
SPARSE = {"algorithm": "magnitude_sparsity"}
ROUNDED = {"algorithm": "quantization", "initializer": {"range": {"num_init_samples": 0}}}
SIZES = {"vocab_size": 50, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32}


def dense(kind: str) -> Any:  # noqa: ANN401 (of transformers)
    torch.manual_seed(0)
    match kind:
        case "bert":
            config = transformers.BertConfig(**SIZES, num_hidden_layers=2)
            return transformers.BertModel(config).eval()
        case "llama, tied":
            more = {"num_key_value_heads": 1, "tie_word_embeddings": True}
            config = transformers.LlamaConfig(**SIZES, **more, num_hidden_layers=2)
            return transformers.LlamaForCausalLM(config).eval()
        case _:
            config = transformers.GPT2Config(
                vocab_size=50, n_embd=16, n_layer=2, n_head=2, n_positions=16,
                bos_token_id=1, eos_token_id=1,
            )  # fmt: skip
            return transformers.GPT2LMHeadModel(config).eval()


def pruned(kind: str, *more: dict[str, Any]) -> tuple[Any, Any]:
    config = {"compression": [SPARSE, *more]}
    controller, model = nncfx.create_compressed_model(dense(kind), config, IDS)
    if more:
        controller["magnitude_sparsity"].level = 0.7
    else:
        controller.level = 0.7
    return controller, model


@pytest.mark.parametrize("shards", ["5GB", "10KB"])
@pytest.mark.parametrize("kind", ["bert", "llama, tied", "gpt2"])
def test_a_pruned_model_is_read_back_pruned(kind: str, shards: str, tmp_path: Path) -> None:
    _, model = pruned(kind)
    model.save_pretrained(tmp_path, max_shard_size=shards)
    again = type(dense(kind)).from_pretrained(tmp_path).eval()
    assert not isinstance(again, NNCFNetwork)
    assert torch.equal(again(**IDS)[0], model(**IDS)[0])
    assert not torch.allclose(again(**IDS)[0], dense(kind)(**IDS)[0], atol=1e-4)


@pytest.mark.parametrize("more", [(), (ROUNDED,)], ids=["pruned", "quantized"])
@pytest.mark.parametrize("kind", ["bert", "llama, tied"])
def test_the_same_file_brings_training_back(
    kind: str, more: tuple[dict[str, Any], ...], tmp_path: Path
) -> None:
    """As the Trainer of transformers does; weights below masks may come back later."""
    controller, model = pruned(kind, *more)
    model.save_pretrained(tmp_path)
    again, resumed = nncfx.create_compressed_model(
        dense(kind), {"compression": [SPARSE, *more]}, IDS
    )
    found = resumed.load_state_dict(load_file(tmp_path / "model.safetensors"), strict=False)
    assert not found.unexpected_keys
    assert again.state_dict() == controller.state_dict()
    for name, value in model.state_dict().items():
        assert torch.equal(resumed.state_dict()[name], value), name


def test_saving_changes_nothing_in_the_model(tmp_path: Path) -> None:
    _, model = pruned("bert")
    model.train()
    before = copy.deepcopy(model.state_dict())
    model.save_pretrained(tmp_path)
    assert all(one.training for one in model.modules())
    assert model.state_dict().keys() == before.keys()
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_a_state_that_is_passed_is_written_compressed_too(tmp_path: Path) -> None:
    _, model = pruned("bert")
    model.save_pretrained(tmp_path, state_dict=model.state_dict())
    again = transformers.BertModel.from_pretrained(tmp_path).eval()
    assert torch.equal(again(**IDS)[0], model(**IDS)[0])


def test_hooks_that_a_plain_model_has_no_place_for_are_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _, model = pruned("bert", ROUNDED)
    with caplog.at_level(logging.WARNING, "nncfx.tracing"):
        for _ in range(2):
            model.save_pretrained(tmp_path)
    assert caplog.text.count("hooks on activations (of 'quantization')") == 1


class Halve(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x / 2


class Hub(nn.Module):
    """Has a save_pretrained that asks for the state itself, as huggingface_hub's."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4, bias=False)
        self.second = nn.Linear(4, 4, bias=False)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x))

    def save_pretrained(self, path: Path) -> None:
        kept = {name: one for name, one in self.state_dict().items() if name != "second.weight"}
        save_file(kept, path)


@pytest.mark.parametrize("readers", [("first",), ("first", "second")])
def test_what_is_written_is_what_the_forward_reads(
    readers: tuple[str, ...], tmp_path: Path
) -> None:
    model = wrap(Hub(), torch.ones(1, 4))
    hook = Halve()
    model.nncf.register([Insertion(WeightSite(one, "weight"), hook, 0, "a") for one in readers])
    model.nncf.commit()
    weight = model.get_parameter("first.weight").detach()
    model.save_pretrained(tmp_path / "x")
    written = load_file(tmp_path / "x")
    assert written.keys() == {"first.weight", "_nncf._dense.first.weight"}
    assert torch.equal(written["first.weight"], weight / 2)
    assert torch.equal(written["_nncf._dense.first.weight"], weight)
    other = wrap(Hub(), torch.ones(1, 4))
    other.load_state_dict(written, strict=False)
    assert torch.equal(other.second.weight, weight)


def test_a_class_without_save_pretrained_gets_none() -> None:
    assert not hasattr(wrap(nn.Linear(2, 2), torch.ones(1, 2)), "save_pretrained")


def test_weights_of_no_model_are_unexpected(tmp_path: Path) -> None:
    model = wrap(Hub(), torch.ones(1, 4))
    model.nncf.register(Insertion(PostSite(model.nncf.graph.addresses[0]), Halve(), 0, "a"))
    model.nncf.commit()
    state = dict(model.state_dict()) | {"_nncf._dense.gone": torch.ones(2)}
    found = model.load_state_dict(state, strict=False)
    assert found.unexpected_keys == ["_nncf._dense.gone"]
    model.save_pretrained(tmp_path / "x")
    assert load_file(tmp_path / "x").keys() == {"first.weight"}
