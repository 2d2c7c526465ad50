"""What kind of work a function does."""

import pytest

from nncfx.operators import CONTRACTIONS, KINDS, MOVEMENTS, operation_kind


@pytest.mark.parametrize(
    ("function", "kind"),
    [("conv2d", "conv"), ("__iadd__", "add"), ("relu_", "relu"), ("hardtanh", "clip")],
)
def test_spellings_of_one_operation_are_one_kind(function: str, kind: str) -> None:
    assert operation_kind(function) == kind


def test_an_unknown_function_is_other() -> None:
    assert operation_kind("fft_fft") == "other"
    assert "other" not in KINDS


def test_contractions_and_movements_are_kinds_and_apart() -> None:
    assert CONTRACTIONS | MOVEMENTS <= KINDS
    assert not CONTRACTIONS & MOVEMENTS
