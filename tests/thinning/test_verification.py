"""How different two outputs are."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional

import nncfx
from nncfx.errors import ThinningError
from nncfx.thinning import thin
from nncfx.thinning.verification import default_tolerance, relative_error, verify
from small_models import Applied

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("expected", "actual", "error"),
    [
        ([2.0, -4.0], [2.0, -4.0], 0.0),
        ([2.0, -4.0], [2.5, -4.0], 0.125),
        ([0.0, 0.0], [0.0, 0.0], 0.0),
        ([0.0, 0.0], [0.0, 1e-9], INF),
        ([NAN, 4.0], [NAN, 3.0], 0.25),
        ([1.0, 4.0], [NAN, 4.0], INF),
        ([INF, 4.0], [INF, 4.0], 0.0),
        ([INF, 4.0], [-INF, 4.0], INF),
        ([], [], 0.0),
        ([1.0], [1.0, 1.0], INF),
    ],
)
def test_errors_are_relative_to_the_largest_finite_output(
    expected: list[float], actual: list[float], error: float
) -> None:
    assert relative_error(torch.tensor(expected), torch.tensor(actual)) == error


def test_integers_that_differ_are_measured_like_numbers() -> None:
    assert relative_error(torch.tensor([4, 1]), torch.tensor([3, 1])) == 0.25


def test_the_coarsest_output_sets_the_tolerance() -> None:
    outputs = [torch.zeros(1, dtype=torch.float64), torch.zeros(1), torch.zeros(1).long()]
    assert default_tolerance(outputs) == 1e-5
    assert default_tolerance(outputs[::2]) == 1e-12


def test_all_outputs_are_compared() -> None:
    def two(offset: float) -> Applied:
        return Applied(lambda x: {"same": x, "other": x + offset})

    assert verify(two(0.0), two(0.0), torch.ones(2), None) == 0.0
    with pytest.raises(ThinningError, match=r"by 5\.0e-01"):
        verify(two(0.0), two(0.5), torch.ones(2), None)


def test_a_model_that_fails_is_said_to_fail() -> None:
    with pytest.raises(ThinningError, match="The thinned model fails: RuntimeError: mat1"):
        verify(nn.Linear(2, 3), nn.Linear(3, 3), torch.ones(1, 2), None)


def test_outputs_without_a_number_prove_nothing() -> None:
    """NaN where all is NaN; one number is enough to compare, and no entry is no fault."""
    model, image = nn.Linear(2, 2), torch.ones(1, 2)
    nn.init.constant_(model.bias, NAN)
    with pytest.raises(ThinningError, match=r"is NaN, so comparing .* would prove nothing"):
        verify(model, model, image, None)
    with torch.no_grad():
        model.bias[0] = 1.0
    assert verify(model, model, image, None) == 0.0
    assert verify(model, model, image[:0], None) == 0.0


class _Averaging(nn.Linear):
    """Divides by the number of its inputs, which thinning lowers."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.linear(x, self.weight.sign() * (2 / self.weight.numel()))


def test_a_weight_that_is_scaled_by_its_own_width_is_named_not_what_came_before() -> None:
    """The signs of what is left are the same; only their scale is another."""
    model = nn.Sequential(nn.Linear(3, 4), _Averaging(4, 2)).double()
    model[1].weight.data[:, 1] = 0
    with pytest.raises(ThinningError, match=r"at fault is 'Sequential/_Averaging\[1\]/__mul___0'"):
        thin(model, torch.ones(1, 3, dtype=torch.float64))


@pytest.mark.parametrize("share", [0.1, 0.01])
def test_rounding_that_a_network_enlarges_is_told_from_a_difference(share: float) -> None:
    torch.manual_seed(0)
    model, inputs = nn.Sequential(nn.Linear(8, 2048), nn.Linear(2048, 4)), torch.randn(4, 8)
    with torch.no_grad():  # sums of some hundreds that cancel
        model[1].weight.add_(0.1)[:, ::3] = 0
        model[0].bias += 1
        model[0].weight *= share
        model[1].bias -= model(torch.zeros(8))
    result = thin(model, inputs)
    assert result.model[0].out_features == 2048 * 2 // 3
    assert 1e-5 < result.max_error < 1e-2
    with pytest.raises(ThinningError, match=r"1\.0e-05 is the tolerance"):
        thin(model, inputs, tolerance=1e-5)
    with torch.no_grad():  # a difference that rounding could have made, but has not
        result.model[1].bias += 5e-3 * model(inputs).abs().max()
    with pytest.raises(ThinningError, match=r"1\.0e-05 is the tolerance"):
        verify(model, result.model, inputs, None)


class _Single(nn.Module):
    """Adds numbers in float32, whatever the type of its weights, as RAFT its coordinates."""

    def __init__(self, error: float) -> None:
        super().__init__()
        self.layer, self.error = nn.Linear(2, 2), error

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.layer.weight.dtype is not torch.float32:
            raise RuntimeError("expected scalar type Float")
        return self.layer(x) * (1 + self.error)


def test_a_small_difference_that_float64_cannot_tell_names_the_tolerance() -> None:
    model, other = _Single(0.0), _Single(2e-5)
    other.load_state_dict(model.state_dict())
    told = r"2\.0e-05, .* That may be rounding, .*scalar type Float.* a larger tolerance=\."
    with pytest.raises(ThinningError, match=told):
        verify(model, other, torch.ones(1, 2), None)
    assert verify(model, other, torch.ones(1, 2), 1e-4) < 1e-4


def test_padded_rows_of_a_transformer_are_compared_on_one_path_of_torch() -> None:
    """Its fused path, which layers with hooks do not take, writes zeros into them."""

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
            self.layers = nn.TransformerEncoder(layer, 2)

        def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            return self.layers(x, src_key_padding_mask=mask)

    torch.manual_seed(0)
    inputs = torch.randn(2, 6, 16), torch.arange(6)[None] >= torch.tensor([[6], [4]])
    item = {"algorithm": "neuron_pruning", "pruning_init": 0.5, "params": {"align": 1}}
    _, model = nncfx.create_compressed_model(Encoder().eval(), {"compression": item}, inputs)
    result = thin(model.eval(), inputs)
    assert result.model.layers.layers[0].linear1.out_features == 16
    assert result.max_error < 1e-5
    assert torch.backends.mha.get_fastpath_enabled()
