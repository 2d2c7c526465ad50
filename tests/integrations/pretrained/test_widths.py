"""Which field of a config was narrowed, for models whose widths are made by hand."""

from functools import partial

import pytest
import torch
from torch import nn

from language_models import bert as encoder
from nncfx.integrations.pretrained.widths import with_widths

IDS = {"input_ids": torch.tensor([[5, 9, 11, 3]])}


bert = partial(encoder, hidden_size=32, intermediate_size=64, num_attention_heads=4)


@pytest.mark.parametrize("sizes", [{"intermediate_size": 24}, {}, {"type_vocab_size": 1}])
def test_a_narrow_model_that_claims_the_wide_config(sizes: dict[str, int]) -> None:
    model = bert(**sizes)
    expected = {"intermediate_size": 64, "type_vocab_size": 2} | sizes
    model.config = bert().config
    found = with_widths(model, IDS)
    assert {key: getattr(found.config, key) for key in expected} == expected
    assert model.config.intermediate_size == 64  # left as it was
    assert torch.equal(found(**IDS)[0], model(**IDS)[0])


def test_no_config_has_the_widths() -> None:
    model = bert()
    model.encoder.layer[0].intermediate.dense = nn.Linear(32, 24)
    model.encoder.layer[0].output.dense = nn.Linear(24, 32)
    assert with_widths(model, IDS) is None


def test_a_model_that_computes_something_else_is_not_the_config_s() -> None:
    model = bert()
    model.encoder.layer[0].register_forward_hook(lambda _, __, output: output)
    assert with_widths(model, IDS) is not None
    model.pooler.register_forward_hook(lambda _, __, output: output + 1)
    assert with_widths(model, IDS) is None
