"""AOTInductor packages: kept by content; the rest is in the conformance suite."""

from pathlib import Path

import pytest
import torch
from torch import nn

from nncfx.errors import RuntimeFailure
from nncfx.runtimes import BuildOptions, runtime_named


def test_an_option_that_inductor_has_not_is_told() -> None:
    options = BuildOptions(settings=(("no_such_option", "1"),))
    with (
        runtime_named("aot_inductor").build(nn.ReLU(), options) as session,
        pytest.raises(RuntimeFailure, match="no_such_option"),
    ):
        session.run(torch.ones(2))


@pytest.mark.slow
def test_equal_models_share_a_package_and_others_do_not(tmp_path: Path) -> None:
    def kept(value: float, *batches: int) -> int:
        model = nn.Linear(2, 1)
        nn.init.constant_(model.weight, value)
        nn.init.zeros_(model.bias)
        options = BuildOptions(cache=tmp_path, threads=1)
        with runtime_named("aot_inductor").build(model, options) as session:
            for batch in batches:
                assert session.run(torch.ones(batch, 2))[0].tolist() == [[2 * value]] * batch
        return len(list(tmp_path.iterdir()))

    # The same, another batch beside it in one session, another weight.
    assert [kept(1.0, 1), kept(1.0, 1, 2), kept(2.0, 1)] == [1, 2, 3]
