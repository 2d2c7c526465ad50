"""Thinning removes exactly the dead channels, and nothing else changes."""

import copy
import importlib
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional as F

from nncfx.channels import analyze_channels
from nncfx.errors import ArgumentError, GraphError, ThinningError, TracingError
from nncfx.network import NNCFNetwork, wrap
from nncfx.thinning import thin
from nncfx.tracing import WeightSite
from nncfx.tracing.hooks.sites import Insertion
from small_models import Applied, Function, randomized, unread

IMAGE = torch.linspace(-1, 1, 2 * 3 * 8 * 8, dtype=torch.float64).reshape(2, 3, 8, 8)


def conv(inputs: int, outputs: int, **kwargs: int) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, padding=1, **kwargs)


def residual() -> nn.Module:
    return Function(
        lambda m, x: m.head((stem := m.stem(x)) + m.second(F.relu(m.norm(m.first(stem))))),
        stem=conv(3, 6),
        first=conv(6, 4),
        norm=nn.BatchNorm2d(4),
        second=conv(4, 6),
        head=conv(6, 2),
    )


def concatenation() -> nn.Module:
    return Function(
        lambda m, x: m.head(m.norm(torch.cat([torch.cat([m.a(x), m.b(x)], 1), m.a(x)], 1))),
        a=conv(3, 4),
        b=conv(3, 2),
        norm=nn.BatchNorm2d(10),
        head=conv(10, 2),
    )


def flatten() -> nn.Module:
    return nn.Sequential(conv(3, 4), nn.Tanh(), nn.Flatten(), nn.Linear(256, 6), nn.Linear(6, 2))


def depthwise() -> nn.Module:
    return nn.Sequential(
        *(conv(3, 4), nn.PReLU(4), conv(4, 8, groups=4), nn.BatchNorm2d(8)),
        *(nn.ReLU6(), conv(8, 6), conv(6, 6, groups=3), conv(6, 2)),
    )


def squeeze_excite() -> nn.Module:
    return Function(
        lambda m, x: m.head(
            (y := m.stem(x)) * torch.sigmoid(m.up(F.relu(m.down(y.mean((2, 3), keepdim=True)))))
        ),
        stem=conv(3, 6),
        down=nn.Conv2d(6, 4, 1),
        up=nn.Conv2d(4, 6, 1),
        head=conv(6, 2),
    )


def padded_shortcut() -> nn.Module:
    return Function(
        lambda m, x: m.head(
            F.relu(
                F.pad((y := m.stem(x))[:, :, ::2, ::2], (0, 0, 0, 0, 1, 1)) + m.second(m.first(y))
            )
        ),
        stem=conv(3, 4),
        first=conv(4, 6, stride=2),
        second=conv(6, 6),
        head=conv(6, 2),
    )


def shared() -> nn.Module:
    return Function(
        lambda m, x: m.head(m.block(F.relu(m.block(m.stem(x))))),
        stem=conv(3, 4),
        block=conv(4, 4),
        head=conv(4, 2),
    )


def transposed() -> nn.Module:
    return nn.Sequential(
        *(nn.ConvTranspose2d(3, 4, 2), nn.InstanceNorm2d(4), nn.ELU()),
        *(nn.ConvTranspose2d(4, 4, 2, groups=2), nn.InstanceNorm2d(4, affine=True)),
        nn.ConvTranspose2d(4, 2, 2),
    )


def shuffled_pixels() -> nn.Module:
    return nn.Sequential(conv(3, 16), nn.PixelShuffle(2), conv(4, 8), nn.GLU(1), conv(4, 2))


MODELS = [
    *(residual, concatenation, flatten, depthwise, squeeze_excite, padded_shortcut, shared),
    *(transposed, shuffled_pixels),
]


@pytest.mark.parametrize("build", MODELS)
def test_half_of_every_group_set_goes_and_the_output_stays(build: Callable[[], nn.Module]) -> None:
    model = randomized(build()).double().eval()
    expected = unread(model, IMAGE)
    result = thin(model, IMAGE)
    assert result.removed == expected
    # float64 rounds at 1.1e-16; some hundred terms per sum stay far below 1e-12
    torch.testing.assert_close(result.model(IMAGE), model(IMAGE), rtol=0, atol=1e-12)
    assert result.max_error <= 1e-12


@pytest.mark.parametrize("build", MODELS)
def test_the_thin_model_is_one_that_could_have_been_built(build: Callable[[], nn.Module]) -> None:
    model = randomized(build()).double()
    unread(model, IMAGE)
    for module in thin(model, IMAGE).model.modules():
        settings = {name: getattr(module, name, None) for name in _CONSTRUCTOR}
        given = {name: value for name, value in settings.items() if isinstance(value, int)}
        if isinstance(module, nn.modules.conv._ConvNd):
            fresh = type(module)(kernel_size=module.kernel_size, **given)
            assert fresh.weight.shape == module.weight.shape
            assert fresh.bias.shape == module.bias.shape
        elif isinstance(module, nn.modules.batchnorm._NormBase) and module.affine:
            assert module.weight.shape == (module.num_features,)


_CONSTRUCTOR = ("in_channels", "out_channels", "groups")


def chain() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 2))


VECTOR = torch.tensor([[0.3, -0.2, 0.9]])


def test_what_went_is_listed_and_the_rows_that_stay_are_the_original_ones() -> None:
    model = chain()
    gone = (1, 4)
    model[2].weight.data[:, gone] = 0
    result = thin(model, VECTOR)
    assert result.sizes == {"0": {"out_features": 4}, "2": {"in_features": 4}}
    tensors = [("0.weight", 0), ("0.bias", 0), ("2.weight", 1)]
    assert result.entries == dict.fromkeys(tensors, gone)
    assert torch.equal(result.model[0].weight, model[0].weight[[0, 2, 3, 5]])


def test_a_producer_that_is_zero_is_not_dead_while_it_is_read() -> None:
    model = chain()
    model[0].weight.data[:3] = 0
    assert thin(model, VECTOR).removed == {}


def test_with_nothing_dead_the_copy_is_equal_bit_by_bit() -> None:
    model = chain()
    result = thin(model, VECTOR)
    assert torch.equal(result.model(VECTOR), model(VECTOR))
    assert (result.max_error, result.sizes, result.channels) == (0.0, {}, (6, 6))


def test_the_model_itself_is_not_changed() -> None:
    model = chain().train()
    model[2].weight.data[:, :3] = 0
    model(VECTOR).sum().backward()
    before = copy.deepcopy(model.state_dict())
    parameters = list(model.parameters())
    result = thin(model, VECTOR)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(one is two for one, two in zip(parameters, model.parameters(), strict=True))
    assert model[0].out_features == 6
    assert all(module.training for module in (*model.modules(), *result.model.modules()))
    copied = {tensor.data_ptr() for tensor in result.model.state_dict().values()}
    assert copied.isdisjoint(one.data_ptr() for one in parameters)


def test_the_thin_model_trains_on() -> None:
    model = chain()
    model[2].weight.data[:, :3] = 0
    model[0].bias.requires_grad_(requires_grad=False)
    thinned = thin(model, VECTOR).model
    thinned(VECTOR).sum().backward()
    assert thinned[0].weight.grad.shape == (3, 3)
    assert not thinned[0].bias.requires_grad


def test_tied_parameters_stay_tied() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(5, 4)
            self.inner = nn.Linear(4, 4)
            self.head = nn.Linear(4, 5, bias=False)
            self.head.weight = self.table.weight

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.inner(self.table(x)))

    model = Tied()
    model.table.weight.data[:, 1] = 0
    model.inner.weight.data[:, 1] = 0
    model.inner.weight.data[:, 3] = 0
    result = thin(model, torch.tensor([[0, 4]]))
    assert result.model.head.weight is result.model.table.weight
    assert result.model.head.weight.shape == (5, 3)
    assert result.model.head.in_features == result.model.table.embedding_dim == 3


@pytest.mark.parametrize(
    ("dead", "align", "left"),
    [(5, 1, 1), (5, 2, 2), (3, 2, 4), (5, 4, 4), (1, 2, 6), (3, 5, 5), (5, 7, 6)],
)
def test_widths_that_change_stay_multiples(dead: int, align: int, left: int) -> None:
    model = chain()
    model[2].weight.data[:, :dead] = 0
    result = thin(model, VECTOR, align=align)
    assert result.model[0].out_features == left
    kept = dead - (6 - left)
    assert (f"{kept} dead kept" in result.fixed.get("0", "")) == (kept > 0)


def test_one_channel_stays_where_all_are_dead() -> None:
    model = chain()
    model[2].weight.data.zero_()
    result = thin(model, VECTOR)
    assert result.model[0].out_features == 1
    assert dict(result.fixed) == {"0": "1 dead kept: one channel must stay"}
    assert torch.equal(result.model(VECTOR), model(VECTOR))


def test_dead_channels_that_are_fixed_are_listed_with_the_reason() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Softmax(-1), nn.Linear(4, 2))
    model[2].weight.data[:, 0] = 0
    result = thin(model, VECTOR)
    assert result.removed == {}
    assert dict(result.fixed) == {
        "0": "'Sequential/Softmax[1]/softmax_0' computes across its channels"
    }


def test_masks_of_a_wrapped_model_are_baked_in() -> None:
    module = Applied(lambda weight: weight * torch.tensor([0.0, 1, 1, 0, 1, 1]))
    model = wrap(chain(), VECTOR)
    site = WeightSite(module="2", name="weight")
    model.nncf.register([Insertion(site=site, hook=module, priority=2, algorithm="mask")])
    model.nncf.commit()
    result = thin(model, VECTOR)
    assert dict(result.removed) == {"0": (0, 3)}
    assert not isinstance(result.model, NNCFNetwork)
    assert isinstance(model, NNCFNetwork)
    torch.testing.assert_close(result.model(VECTOR), model(VECTOR))


def test_a_width_in_the_code_is_named_with_the_first_operation_at_fault() -> None:
    model = Function(
        lambda m, x: m.second(m.first(x).reshape(-1, 6)),
        first=nn.Linear(3, 6),
        second=nn.Linear(6, 2),
    )
    model.second.weight.data[:, :3] = 0
    before = copy.deepcopy(model.state_dict())
    channels = analyze_channels(model, VECTOR)
    with pytest.raises(ThinningError, match="first operation at fault is 'Function/reshape_0'"):
        thin(model, VECTOR, channels=channels)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_channels_whose_width_the_code_holds_stay_with_the_reason() -> None:
    model = Function(
        lambda m, x: m.third(m.second(m.first(x).reshape(-1, 6))),
        first=nn.Linear(3, 6),
        second=nn.Linear(6, 4),
        third=nn.Linear(4, 2),
    )
    model.second.weight.data[:, :3] = 0
    model.third.weight.data[:, :1] = 0
    result = thin(model, VECTOR, form="class")
    assert result.removed == {"second": (0,)}
    assert "'Function/reshape_0' fails without some of them" in result.fixed["first"]


def test_a_difference_is_named_with_the_first_operation_that_differs() -> None:
    model = Function(  # the numbers before it are compared as well
        lambda m, x: m.second(m.first(x + x.mean() + m.second.bias[0]) * len(m.first.weight)),
        first=nn.Linear(3, 6),
        second=nn.Linear(6, 2),
    )
    model.second.weight.data[:, :3] = 0
    with pytest.raises(ThinningError, match=r"differs .* at fault is 'Function/__mul___0'"):
        thin(model, VECTOR)


def test_rounding_beyond_the_tolerance_asked_for_is_an_error() -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(64, 512), nn.Linear(512, 256))
    model[1].weight.data[:, ::3] = 0
    data = torch.randn(64, 64)
    error = thin(model, data).max_error
    assert 0 < error <= 1e-5
    with pytest.raises(ThinningError, match="is the tolerance"):
        thin(model, data, tolerance=0.0)


def test_faulty_arguments_are_refused() -> None:
    with pytest.raises(ArgumentError, match="align is 0; widths are multiples of 1 or more"):
        thin(chain(), VECTOR, align=0)
    with pytest.raises(ArgumentError, match=r"tolerance is -1.0"):
        thin(chain(), VECTOR, tolerance=-1.0)
    with pytest.raises(TracingError, match="refuses the example inputs"):
        thin(chain(), torch.zeros(1, 5))
    with pytest.raises(ArgumentError, match=r"cannot be thinned: '0.weight' is on meta"):
        thin(chain().to("meta"), VECTOR)


def test_the_summary_tells_what_went_and_what_stayed() -> None:
    model = chain()
    model[2].weight.data.zero_()
    assert str(thin(model, VECTOR)).splitlines() == [
        "Channel groups: 6 -> 1, removed at 1 places.",
        "Parameters: 38 -> 8 (-78.9%).",
        "Relative error against the masked model: 0.0e+00.",
        "Dead but kept at '0': 1 dead kept: one channel must stay.",
    ]


def test_where_nothing_was_saved_it_is_said_with_the_fix() -> None:
    """Single zeros free no channel, and a summary of zeros alone would not say so."""
    model = chain()
    model[2].weight.data[0].zero_()
    result = thin(model, VECTOR)
    assert result.parameters == (38, 38)
    assert result.note.startswith("Nothing saved: no channel is dead, that is, read by zeros")
    assert str(result).endswith(result.note)


DATA = Path(os.environ.get("NNCFX_DATA", "../shared/data"))
ZEROED = DATA / "weights/resnet20_cifar10_optB_zeroed_channels.safetensors"


@pytest.fixture
def resnet20(monkeypatch: pytest.MonkeyPatch) -> nn.Module:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    model = importlib.import_module("pretrained").ResNet(3, projected=True, head="fc").eval()
    assert model.load_state_dict(load_file(ZEROED), strict=False).unexpected_keys == []
    return model


@pytest.mark.skipif(not ZEROED.exists(), reason=f"the data pack is not at {DATA}")
def test_the_69_channels_that_group_lasso_left_unread_are_found(resnet20: nn.Module) -> None:
    images = torch.randn(16, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    result = thin(resnet20, images)
    counts = {name: len(channels) for name, channels in result.removed.items()}
    assert counts == {
        "layer1.0.conv1": 5,
        "layer1.1.conv1": 8,
        "layer1.2.conv1": 8,
        "layer2.0.conv1": 9,
        "layer2.1.conv1": 14,
        "layer3.0.conv1": 13,
        "layer3.1.conv1": 12,
    }
    torch.testing.assert_close(result.model(images), resnet20(images), rtol=0, atol=1e-4)


@pytest.mark.slow
@pytest.mark.skipif(not ZEROED.exists(), reason=f"the data pack is not at {DATA}")
def test_without_them_the_logits_of_test_images_are_equal(resnet20: nn.Module) -> None:
    pixels = np.load(DATA / "data/cifar10_test.npz")["x"][:1000]
    images = torch.from_numpy(pixels).float().div(127.5).sub(1)
    thinned = thin(resnet20, images[:2]).model
    with torch.no_grad():
        torch.testing.assert_close(thinned(images), resnet20(images), rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (
            nn.Sequential(conv(3, 4), nn.ReLU(), conv(4, 2)),
            r"of '0' are not those of this model: .*'2.weight' with at least 4 entries .*has none",
        ),
        (
            nn.Sequential(conv(3, 8), conv(8, 2)),
            r"'0.weight' with at least 8 entries along axis 0.* has one of shape \[4, 3, 3, 3\]",
        ),
    ],
)
def test_channels_of_another_model_are_told_and_change_nothing(
    other: nn.Module, message: str
) -> None:
    model = nn.Sequential(conv(3, 4), conv(4, 2)).double()
    before = copy.deepcopy(model.state_dict())
    channels = analyze_channels(other.double(), IMAGE)
    with pytest.raises(GraphError, match=message):
        thin(model, IMAGE, channels=channels)
    assert all(torch.equal(one, before[name]) for name, one in model.state_dict().items())


class Scaled(nn.Module):
    """Scales by its width in a way that no analysis sees, and gives nothing for zeros."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 8, bias=False)
        self.last = nn.Linear(8, 2, bias=False)
        self.last.weight.data[:, ::2] = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        return self.last(x) * len(x[0]) ** 0.5


def test_an_example_of_zeros_does_not_hide_a_difference_on_data() -> None:
    torch.manual_seed(0)
    with pytest.raises(ThinningError, match=r"differs from the masked one by [1-9]\.\de-01"):
        thin(Scaled(), torch.zeros(1, 3), channels=analyze_channels(Scaled(), torch.zeros(1, 3)))


class Silent(nn.Module):
    """Computes something, and multiplies it by a number."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.layers, self.factor = nn.Sequential(nn.Linear(3, 8), nn.Linear(8, 2)), factor
        self.layers[1].weight.data[:, ::2] = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x) * self.factor


@pytest.mark.parametrize(
    ("model", "what"),
    [
        (Silent(0.0), "is 0 everywhere"),
        (nn.Sequential(Silent(1.0), nn.Softmax(0)), "is 1 everywhere"),
        (Silent(float("nan")), "NaN"),
    ],
)
def test_outputs_that_prove_nothing_are_refused(model: nn.Module, what: str) -> None:
    with pytest.raises(ThinningError, match=f"{what}, .* would prove nothing"):
        thin(model, VECTOR)


def test_nothing_that_goes_needs_no_proof() -> None:
    silent = Silent(0.0)
    silent.layers[1].weight.data.fill_(1)
    assert thin(silent, VECTOR).removed == {}


class Chooser(nn.Module):
    """Embeds words, with a head for training, one behind a flag, and a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.norm = nn.Embedding(7, 8), nn.BatchNorm1d(8)
        self.middle, self.last = nn.Linear(8, 8), nn.Linear(8, 2)
        self.aux, self.flagged = nn.Linear(8, 2), nn.Linear(8, 2)
        for one in (self.last, self.aux, self.flagged, self.middle):
            one.weight.data[:, ::2] = 0

    def forward(
        self, words: torch.Tensor, flag: bool = False
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        x = self.norm(self.table(words).mean(1))
        y: torch.Tensor = self.last(self.middle(x).relu())
        if self.training:
            return y, self.aux(x)
        return (y, self.flagged(x)) if flag else y


WORDS = torch.zeros(3, 5, dtype=torch.int64)


def test_a_head_for_training_is_thinned_along_and_trains() -> None:
    torch.manual_seed(0)
    model = Chooser()
    state = torch.get_rng_state()
    result = thin(model, WORDS, further_inputs=[(WORDS, True)])
    assert torch.equal(torch.get_rng_state(), state)
    assert (result.model.aux.in_features, result.model.flagged.in_features) == (4, 4)
    assert result.unreached == ()
    assert model.norm.num_batches_tracked == 0
    words = torch.randint(0, 7, (4, 5))
    for mode in (True, False):
        pairs = zip(model.train(mode)(words), result.model.train(mode)(words), strict=True)
        assert all(torch.allclose(one, other, atol=1e-5) for one, other in pairs)
    flagged = zip(model(words, True), result.model(words, True), strict=True)
    assert all(torch.allclose(one, other, atol=1e-5) for one, other in flagged)


def test_a_head_that_no_example_reaches_is_named_and_still_runs() -> None:
    result = thin(Chooser(), WORDS)
    assert result.unreached == ("flagged",)
    assert "Not reached by any example: 'flagged'." in str(result)
    assert "'flagged' could read them" in result.fixed["table"]
    result.model(WORDS, True)


def test_a_wrapped_model_is_thinned_with_all_inputs_that_it_was_traced_with() -> None:
    model = wrap(Chooser().eval(), WORDS, further_inputs=[(WORDS, True)])
    assert thin(model).unreached == ()
    assert thin(model).model.flagged.in_features == 4
