"""Rules for operations, attached by decorator: one registry for each column of the table."""

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from nncfx.errors import ArgumentError, did_you_mean
from nncfx.operators.kinds import operator_of
from nncfx.operators.operator import Operator

_Rule = TypeVar("_Rule")


def _in_table(function: str) -> bool:
    return function in operator_of(function).functions


class Rules(Generic[_Rule]):
    """A decorator that attaches rules, and keeps them: open to code outside of this library.

    A rule for a function goes before that for the word in the column of its operation, and a
    later one before an earlier one.

    Args:
        column: What is looked up in the row of a function.
        words: What may stand in that column.
        what: Such a word, for messages: "a kind of operation".
        is_function: Whether a name is that of a function that the table may not have.

    >>> describes = Rules[str](lambda one: one.kind, {"matmul", "view"}, "a kind of operation")
    >>> describes("matmul")("sums"), describes("bmm")("sums in each of a batch")
    ('sums', 'sums in each of a batch')
    >>> describes.find("mm"), describes.find("bmm"), describes.find("view")
    ('sums', 'sums in each of a batch', None)
    """

    def __init__(
        self,
        column: Callable[[Operator], str],
        words: Iterable[str],
        what: str,
        is_function: Callable[[str], bool] = _in_table,
    ) -> None:
        self._column, self._what, self._is_function = column, what, is_function
        self._words = frozenset(words)
        self._rules: dict[str, _Rule] = {}

    def __call__(self, *words: str) -> Callable[[_Rule], _Rule]:
        """Attach the decorated rule to words of the column, or to functions.

        Raises:
            ArgumentError: one is neither.
        """
        for word in words:
            if not (word in self._words or _in_table(word) or self._is_function(word)):
                raise ArgumentError(
                    f"'{word}' is neither {self._what} nor a function of torch, as addresses "
                    "spell it, so a rule for it would never be used."
                    f"{did_you_mean(word, self._words)}"
                )

        def attach(rule: _Rule) -> _Rule:
            self._rules.update(dict.fromkeys(words, rule))
            return rule

        return attach

    def find(self, function: str) -> _Rule | None:
        """Return the rule for a function, as addresses spell it; None if there is none."""
        return self._rules.get(function) or self._rules.get(self._column(operator_of(function)))
