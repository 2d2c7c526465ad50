"""Limits of tables of code words and of frequencies; see docs/format.md."""

from typing import Final

LONGEST_CODE: Final = 16
"""The longest code word in bits; codes are optimal under this limit."""

FIRST_LENGTH: Final = 5
"""The length against which the first length of a table is coded."""

FINEST: Final = 14
"""Frequencies add up to at most 2 to this power."""

COARSEST: Final = 6
"""Written frequencies add up to at least 2 to this power."""
