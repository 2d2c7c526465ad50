"""Weights of several widths within a budget."""

import itertools
from typing import Any

import pytest
import torch
from torch import nn

from language_models import TOKENS, Language
from nncfx.errors import ArgumentError, CompressionError
from nncfx.quantization import QuantizeOptions, quantize, quantize_weights
from nncfx.quantization.analysis.mixed_precision import MixedPrecision, quantize_mixed
from nncfx.quantization.budgets import Bytes, Points
from nncfx.quantization.placement.placement_options import PlacementOptions, SpecRequest

DATA = torch.randn(32, 3, 8, 8, generator=torch.Generator().manual_seed(0))
WEIGHTS = ("0.weight", "3.weight", "6.weight")


def network() -> nn.Module:
    """Return two convolutions without bias and a head."""
    torch.manual_seed(0)
    layers = (nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU())
    layers += (nn.Conv2d(8, 8, 3, bias=False), nn.ReLU(), nn.Flatten())
    return nn.Sequential(*layers, nn.Linear(8 * 16, 5)).eval()


def bytes_by_hand(bits: tuple[int, ...]) -> float:
    """Return integers, a scale for each output channel, and the floats of norm and head."""
    sizes = [(8, 8 * 3 * 9), (8, 8 * 8 * 9), (5, 5 * 128)]
    packed = sum(n * few / 8 + 4 * rows for (rows, n), few in zip(sizes, bits, strict=True))
    return packed + 4 * (8 + 8 + 5)


def error(model: nn.Module) -> float:
    with torch.no_grad():
        return float((model(DATA) - network()(DATA)).square().sum())


def closeness(model: nn.Module) -> float:
    return -error(model)


def of_widths(bits: tuple[int, ...]) -> nn.Module:
    addresses = ("{re}Conv2d.0.", "{re}Conv2d.3.", "{re}Linear.6.")
    overrides = zip(addresses, (SpecRequest(bits=one) for one in bits), strict=True)
    placement = PlacementOptions(weight_overrides=tuple(overrides))
    return quantize(network(), [DATA], options=QuantizeOptions(placement=placement), preset="fast")


@pytest.mark.parametrize("limit", [1000, 1210, 1320])
def test_within_bytes_it_is_the_nearest_of_all_widths(limit: int) -> None:
    found = quantize_mixed(network(), [DATA], Bytes(limit), evaluate=closeness, preset="fast")
    bits = tuple(found.bits[one] for one in WEIGHTS)
    assert found.size_bytes == bytes_by_hand(bits) <= limit
    within = [one for one in itertools.product((4, 8), repeat=3) if bytes_by_hand(one) <= limit]
    assert len(within) > 1
    assert found.metric == closeness(found.model)
    assert error(found.model) == pytest.approx(min(error(of_widths(one)) for one in within))


def test_within_points_it_is_smaller_than_all_at_the_most_bits() -> None:
    allowed = 2 * error(of_widths((8, 4, 8)))
    most = error(of_widths((4, 4, 4)))
    assert most > allowed  # or nothing would be chosen
    found = quantize_mixed(
        network(), [DATA], Points(allowed), evaluate=closeness, trials=6, preset="fast"
    )
    assert -allowed <= closeness(found.model) == found.metric
    assert found.size_bytes < bytes_by_hand((8, 8, 8))
    assert set(found.bits.values()) == {4, 8}
    assert len(found.attempts) <= 6
    smaller = [metric for size, metric in found.attempts if size < found.size_bytes]
    assert smaller
    assert all(metric < -allowed for metric in smaller)


def test_the_smallest_is_taken_at_once_where_it_is_enough() -> None:
    found = quantize_mixed(network(), [DATA], Points(1e6), evaluate=closeness)
    assert set(found.bits.values()) == {4}
    assert len(found.attempts) == 1


def test_what_the_user_asks_of_a_layer_goes_before() -> None:
    asked = ((("{re}Conv2d.3."), SpecRequest(bits=6)), ("{re}Conv2d.3.", SpecRequest(signed=True)))
    options = QuantizeOptions(placement=PlacementOptions(weight_overrides=asked))
    found = quantize_mixed(network(), [DATA], Bytes(1050), options=options)
    assert found.bits["3.weight"] == 6
    assert found.size_bytes <= 1050
    assert found.metric is None


def test_weights_alone_count_a_tied_one_once() -> None:
    model = Language(tied=True, bias=False)
    # groups of 32: a scale and half a byte of zero point each; rows of 8 bits: a scale
    narrow = {name: n / 2 + n / 32 * 4.5 for name, n in (("tied", 20 * 64), ("hidden", 64 * 64))}
    wide = {"tied": 20 * 64 + 20 * 4, "hidden": 64 * 64 + 64 * 4}
    floats = 4 * 64
    limit = int(wide["tied"] + narrow["hidden"] + floats)
    found = quantize_mixed(model, [TOKENS], Bytes(limit), weights_only=True)
    assert found.bits == {"embedding.weight": 8, "hidden.weight": 4}
    assert found.size_bytes == limit
    by_scope = quantize_weights(
        model, bits=4, int8_scopes=["{function}embedding", "{re}head"], example_inputs=TOKENS
    )
    with torch.no_grad():
        torch.testing.assert_close(found.model(TOKENS), by_scope(TOKENS), rtol=0, atol=0)


def test_the_text_names_every_weight_with_what_each_width_costs() -> None:
    found = quantize_mixed(network(), [DATA], Bytes(1050), evaluate=closeness)
    head, *rows = str(found).splitlines()
    assert head.startswith(f"{found.size_bytes:,} bytes, metric ")
    assert [row.split()[0] for row in rows] == list(WEIGHTS)
    assert all(" 8: " in row and " 4: " in row and row.endswith(" dB") for row in rows)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"budget": 1000}, r"budget is 1000; .*Bytes\(200_000\)"),
        ({"budget": Points(1.0)}, "needs the metric: pass evaluate="),
        ({"weight_bits": 8}, "weight_bits is given, and here each weight has its own bits"),
        ({"inplace": True}, "inplace is given"),
        ({"widths": (8,)}, "a choice needs at least 2 widths"),
        ({"widths": (8, 2), "weights_only": True}, r"widths is \(8, 2\) with weights_only=True"),
        ({"trials": 0}, "2 widths and 1 trial"),
    ],
)
def test_what_cannot_be_asked_is_refused_with_the_fix(changes: dict[str, Any], said: str) -> None:
    given = {"budget": Bytes(1000), **changes}
    with pytest.raises(ArgumentError, match=said):
        quantize_mixed(network(), [DATA], **given)


def test_a_budget_that_nothing_keeps_is_told_with_what_would_do() -> None:
    least = bytes_by_hand((4, 4, 4))
    with pytest.raises(CompressionError, match=rf"all weights at 4 bits .* take {least:.0f} byt"):
        quantize_mixed(network(), [DATA], Bytes(500))
    with pytest.raises(
        CompressionError, match=r"No model is within .*drop=0.0.* among those tried"
    ):
        quantize_mixed(network(), [DATA], Points(0.0), evaluate=closeness)


def test_mixed_bits_are_pointed_to_where_people_guess_them() -> None:
    with pytest.raises(ArgumentError, match="quantize_mixed"):
        quantize(network(), [DATA], weight_bits="mixed")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="quantize_mixed"):
        quantize_weights(Language(tied=True, bias=False), [TOKENS], bits="mixed")  # type: ignore[call-overload]


def test_the_result_is_a_value_of_its_own() -> None:
    model = network()
    before = {name: one.clone() for name, one in model.state_dict().items()}
    found = quantize_mixed(model, [DATA], Bytes(1050))
    assert isinstance(found, MixedPrecision)
    assert found.model is not model
    assert all(torch.equal(one, before[name]) for name, one in model.state_dict().items())
