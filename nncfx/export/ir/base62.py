"""Convert numbers to and from base 62, the shortest names of digits and letters."""

import string
from typing import Final

_DIGITS: Final = string.digits + string.ascii_letters


def to_base62(number: int) -> str:
    """Return a non-negative number in the digits 0-9, a-z and A-Z."""
    text = _DIGITS[number % len(_DIGITS)]
    while number := number // len(_DIGITS):
        text = _DIGITS[number % len(_DIGITS)] + text
    return text


def from_base62(text: str) -> int:
    """Return the number that `to_base62` writes as `text`."""
    number = 0
    for digit in text:
        number = number * len(_DIGITS) + _DIGITS.index(digit)
    return number
