"""Numbers in base 62 come back, and are as short as they can be."""

import pytest

from nncfx.export.ir.base62 import from_base62, to_base62


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0"), (9, "9"), (10, "a"), (61, "Z"), (62, "10"), (3843, "ZZ")]
)
def test_digits_are_followed_by_letters(number: int, text: str) -> None:
    assert (to_base62(number), from_base62(text)) == (text, number)
