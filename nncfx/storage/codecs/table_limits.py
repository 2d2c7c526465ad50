"""The numbers that bound tables of code words and of frequencies; see docs/format.md."""

from typing import Final

LONGEST_CODE: Final = 16
"""The longest code word in bits; optimal codes longer than that are limited optimally."""

FIRST_LENGTH: Final = 5
"""The length that the first one of a table is told against."""

FINEST: Final = 14
"""Frequencies add up to at most two to this power."""

COARSEST: Final = 6
"""Frequencies that are written add up to at least two to this power."""
