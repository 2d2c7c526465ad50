"""Layers that the traced forward does not call are told, and stand in the statistics."""

import logging
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import nncfx
from nncfx.controllers.base.unread_weights import unread_weights
from nncfx.errors import ArgumentError, CompressionError

ABOVE = torch.ones(4, 6)


class Branching(nn.Module):
    """Calls one of two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.above, self.below = nn.Linear(6, 3), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.above(x) if x.mean() > 0 else self.below(x)


def test_a_layer_in_the_other_branch_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        nncfx.quantize(Branching(), [ABOVE])
    assert "The traced forward did not read 'below.weight': no quantizer" in caplog.text


def test_tracing_both_branches_as_the_log_says_quantizes_both(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = nncfx.wrap(Branching(), ABOVE, further_inputs=[-ABOVE])
    with caplog.at_level(logging.WARNING):
        quantized = nncfx.quantize(model, [ABOVE, -ABOVE])
    assert "did not read" not in caplog.text
    assert {"above.weight", "below.weight"} <= {str(one.site) for one in quantized.nncf.hooks}


class Whole(nn.Module):
    """Reads each weight in a way of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.recurrent = nn.GRU(6, 6, num_layers=2, bidirectional=True, batch_first=True)
        self.cell = nn.LSTMCell(12, 6)
        self.attention = nn.MultiheadAttention(6, 2, batch_first=True)
        self.table = nn.Embedding(5, 6)
        self.norm = nn.utils.parametrizations.weight_norm(nn.Linear(6, 5))
        self.tied = nn.Linear(6, 5, bias=False)
        self.tied.weight = self.table.weight

    def forward(self, x: Tensor) -> Tensor:
        y = self.table(x)
        y = self.recurrent(y)[0]
        y = self.cell(y[:, 0])[0][:, None]
        y = self.attention(y, y, y)[0]
        return self.norm(y) + self.tied(y)


def test_a_weight_that_is_read_in_any_way_is_not() -> None:
    assert unread_weights(nncfx.wrap(Whole(), torch.zeros(2, 3, dtype=torch.int64))) == ()


class Auxiliary(nn.Module):
    """Two convolutions, a classifier, and as GoogLeNet one more in training."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.body = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 16, 3)
        self.aux, self.head = nn.Linear(8, 4), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        x = self.stem(x).relu()
        result: Tensor = self.head(self.body(x).relu().mean((2, 3)))
        return (result, self.aux(x.mean((2, 3)))) if self.training else result


IMAGE = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
ON_WEIGHTS = {
    "block_pruning": {},
    "const_sparsity": {},
    "filter_pruning": {"params": {"align": 1}},
    "magnitude_sparsity": {},
    "nm_sparsity": {"params": {"n": 2, "m": 4}},
    "quantization": {"initializer": {"range": {"num_init_samples": 0}}},
    "rb_sparsity": {},
    "weight_clustering": {},
}


@pytest.mark.parametrize("algorithm", ON_WEIGHTS)
def test_every_algorithm_tells_what_it_leaves_alone_at_creation_and_in_its_statistics(
    algorithm: str, caplog: pytest.LogCaptureFixture
) -> None:
    item = {"algorithm": algorithm} | ON_WEIGHTS[algorithm]
    controller, _ = nncfx.create_compressed_model(Auxiliary(), {"compression": item}, IMAGE)
    (told,) = [text for text in caplog.messages if "did not read" in text]
    assert told.startswith(f"The traced forward did not read 'aux.weight': {algorithm} will leave")
    assert "further_inputs=[...]" in told
    assert controller.statistics().unread == ("aux.weight",)
    assert controller.statistics().to_dict()["unread"] == ("aux.weight",)
    assert "does not read them: aux.weight" in str(controller.statistics())


def test_several_algorithms_tell_it_once_and_those_that_read_no_weights_do_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    items = [
        {"algorithm": "magnitude_sparsity"},
        {"algorithm": "weight_clustering"},
        {"algorithm": "knowledge_distillation", "type": "mse"},
    ]
    controller, _ = nncfx.create_compressed_model(Auxiliary(), {"compression": items}, IMAGE)
    (told,) = [text for text in caplog.messages if "did not read" in text]
    assert "'aux.weight': magnitude_sparsity, weight_clustering will" in told
    assert str(controller.statistics()).count("does not read them: aux.weight") == 2


def test_further_inputs_reach_the_other_branch_and_nothing_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    controller, _ = nncfx.create_compressed_model(
        Branching(),
        {"compression": {"algorithm": "magnitude_sparsity"}},
        ABOVE,
        further_inputs=[-ABOVE],
    )
    assert "did not read" not in caplog.text
    assert controller.statistics().unread == ()
    names = [one.name for one in controller.statistics().layers]
    assert names == ["above.weight", "below.weight"]


def test_further_inputs_of_a_wrapped_model_are_refused() -> None:
    model = nncfx.wrap(Branching(), ABOVE)
    config = {"compression": {"algorithm": "magnitude_sparsity"}}
    with pytest.raises(ArgumentError, match="come too late for a model that is wrapped"):
        nncfx.create_compressed_model(model, config, further_inputs=[-ABOVE])


def test_pruning_masks_what_reads_pruned_channels_in_training_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    item = {"algorithm": "structure_pruning", "params": {"align": 1}}
    controller, _ = nncfx.create_compressed_model(Auxiliary(), {"compression": item}, IMAGE)
    assert "aux.weight" in controller.masks.hooks
    assert "did not read" not in caplog.text
    assert controller.statistics().unread == ()


class SetUp(nn.Linear):
    """Sets its weight in the first forward of training, as ActNorm does."""

    def __init__(self, write: Callable[[Tensor], object]) -> None:
        super().__init__(4, 4)
        self.write = write
        self.register_buffer("is_set", torch.tensor(False))

    def forward(self, x: Tensor) -> Tensor:
        if self.training and not self.is_set:
            with torch.no_grad():
                self.write(self.weight)
            self.is_set.fill_(True)
        return super().forward(x)


@pytest.mark.parametrize("algorithm", ["magnitude_sparsity", "rb_sparsity", "structure_pruning"])
@pytest.mark.parametrize(
    "write",
    [lambda w: w.mul_(2), lambda w: w.data.mul_(2), lambda w: w.detach().clamp_(-0.1, 0.1)],
)
def test_a_hook_on_what_training_writes_to_is_refused_until_it_is_written(
    algorithm: str, write: Callable[[Tensor], object]
) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 4), SetUp(write), nn.Linear(4, 2))
    weight = model[2].weight.detach().clone()
    config = {"compression": {"algorithm": algorithm}}
    x = torch.ones(2, 4)
    with pytest.raises(CompressionError, match=r"writes to '2\.weight', and the hook of"):
        nncfx.create_compressed_model(model, config, x)
    assert torch.equal(model[2].weight, weight)
    model.train()(x)
    assert not torch.equal(model[2].weight, weight)
    nncfx.create_compressed_model(model, config, x)
