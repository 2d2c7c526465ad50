"""What kind of work a function does, and which functions an operation has."""

import pytest

from nncfx.errors import ArgumentError
from nncfx.operators import (
    CONTRACTIONS,
    KINDS,
    MOVEMENTS,
    Operator,
    functions_of,
    operation_kind,
    operator_of,
    register_operator,
)


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        *[("conv2d", "conv"), ("__iadd__", "add"), ("relu_", "relu"), ("hardtanh", "clip")],
        *[("clamp_max", "clip"), ("clamp_min_", "clip"), ("subtract", "sub"), ("divide", "div")],
        *[("rnn_tanh_cell", "recurrent"), ("mm", "matmul"), ("embedding_bag", "embedding")],
    ],
)
def test_spellings_of_one_operation_are_one_kind(function: str, kind: str) -> None:
    assert operation_kind(function) == kind


def test_an_unknown_function_is_other() -> None:
    assert operation_kind("fft_fft") == "other"
    assert "other" not in KINDS


def test_contractions_and_movements_are_kinds_and_apart() -> None:
    assert CONTRACTIONS | MOVEMENTS <= KINDS
    assert not CONTRACTIONS & MOVEMENTS


def test_kinds_of_contractions_and_movements_are_those_that_targets_were_written_for() -> None:
    assert {"conv", "conv_transpose", "linear", "matmul"} == CONTRACTIONS
    assert {"dropout", "max_pool", "pad", "slice", "transpose", "view"} == MOVEMENTS


def test_an_operation_of_the_user_takes_its_functions_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = dict.fromkeys(["erf"], operator_of("erf"))
    monkeypatch.setattr("nncfx.operators.kinds._BY_FUNCTION", table)
    register_operator(Operator(name="bell", functions=("erf", "my_bell"), kind="tanh"))
    assert operation_kind("my_bell") == operation_kind("erf") == "tanh"
    assert functions_of("bell") == {"erf", "my_bell"}


def test_a_kind_that_no_target_could_name_is_refused() -> None:
    with pytest.raises(ArgumentError, match="the kind of the operation 'fold', is not one"):
        register_operator(Operator(name="fold", functions=("fold",), kind="tanhh"))
