"""Rules for operations, registered by decorator, with one registry per column of the table."""

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from nncfx.errors import ArgumentError, did_you_mean
from nncfx.operators.kinds import operator_of
from nncfx.operators.operator import Operator

_Rule = TypeVar("_Rule")


def _in_table(function: str) -> bool:
    return function in operator_of(function).functions


class Rules(Generic[_Rule]):
    """A registry of rules, used as a decorator, also by code outside this library.

    A rule for a function takes precedence over a rule for its operation's word in the column, and
    a later rule over an earlier rule.

    Args:
        column: Returns the column's word in a row.
        words: The words of that column.
        what: Description of such a word for messages, for instance "a kind of operation".
        is_function: Whether a name is that of a function, which need not be in the table.

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
        """Register the decorated rule for words of the column, or for functions.

        Raises:
            ArgumentError: a name is neither.
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
        """Return the rule for a function, named as in addresses; None if there is none."""
        return self._rules.get(function) or self._rules.get(self._column(operator_of(function)))
