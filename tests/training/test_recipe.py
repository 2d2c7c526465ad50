"""How a compressed network is trained."""

import math

import pytest
import torch

from nncfx.errors import ArgumentError
from nncfx.training import Recipe


def test_the_rate_warms_up_in_equal_parts_and_then_follows_half_a_cosine() -> None:
    recipe = Recipe(steps=110, lr=0.4, warmup=1 / 11)
    assert [recipe.learning_rate(step) for step in range(3)] == pytest.approx([0.04, 0.08, 0.12])
    assert recipe.learning_rate(9) == recipe.learning_rate(10) == 0.4
    # a quarter, a half and three quarters of the way down, by hand
    assert recipe.learning_rate(35) == pytest.approx(0.2 * (1 + math.sqrt(0.5)))
    assert recipe.learning_rate(60) == pytest.approx(0.2)
    assert recipe.learning_rate(85) == pytest.approx(0.2 * (1 - math.sqrt(0.5)))


def test_without_warmup_the_first_step_has_the_whole_rate() -> None:
    assert Recipe(steps=3, lr=0.5, warmup=0).learning_rate(0) == 0.5


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("steps", 0),
        ("lr", 0),
        ("lr", math.nan),
        ("lr", math.inf),
        ("warmup", 1),
        ("warmup", -0.1),
        ("momentum", 1),
        ("weight_decay", -1e-4),
        ("task_weight", -1),
        ("steps_per_epoch", 0),
        ("precision", "float16"),
    ],
)
def test_a_setting_out_of_range_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(ArgumentError, match=name):
        Recipe(**{"steps": 10, name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("capabilities", "dtype"),
    [
        ({"amx_bf16": True}, torch.bfloat16),
        ({"avx512_bf16": True}, torch.bfloat16),
        ({"avx2": True}, None),
    ],
)
def test_a_cpu_trains_in_bfloat16_only_if_it_multiplies_in_it(
    monkeypatch: pytest.MonkeyPatch, capabilities: dict[str, bool], dtype: torch.dtype | None
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    cpu = torch.device("cpu")
    assert Recipe(steps=1).dtype(cpu) is (dtype or torch.float32)
    assert Recipe(steps=1, precision="float32").dtype(cpu) is torch.float32
    assert Recipe(steps=1, precision="bfloat16").dtype(cpu) is torch.bfloat16
