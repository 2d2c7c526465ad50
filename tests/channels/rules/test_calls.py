"""Which rule follows which function, in the table and in code of users."""

import pytest
import torch
from torch import nn

from nncfx.channels import analyze_channels, channel_rule
from nncfx.channels.rules.elementwise import pointwise
from nncfx.errors import ArgumentError
from nncfx.operators import FIXES, ROWS, Operator


@pytest.mark.parametrize("one", ROWS, ids=lambda one: one.name)
def test_a_row_has_a_channel_rule_or_says_that_it_fixes(one: Operator) -> None:
    found = [channel_rule.find(function) for function in one.functions]
    assert all(found) if one.channels != FIXES else found == [None] * len(found)


class Entropy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.special.entr(self.stem(x)))


def test_code_of_a_user_attaches_a_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel_rule, "_rules", dict(channel_rule._rules))
    before = analyze_channels(Entropy(), torch.zeros(1, 3))
    assert before.fixed["stem"] == "'Entropy/special_entr_0' is not followed"
    channel_rule("special_entr")(pointwise)
    after = analyze_channels(Entropy(), torch.zeros(1, 3)).find("stem")
    assert after.fixed is None
    assert {m.parameter for m in after.members} == {"stem.weight", "stem.bias", "head.weight"}


def test_a_rule_for_what_torch_does_not_have_is_refused() -> None:
    with pytest.raises(
        ArgumentError, match="'pontwise' is neither a channel rule of the operator"
    ):
        channel_rule("pontwise")
