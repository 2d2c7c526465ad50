"""Converts frozen dataclasses to JSON and back, checked against their annotations."""

import dataclasses
import functools
import math
import operator
import types
import typing
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, TypeVar

from nncfx.errors import StorageError, did_you_mean
from nncfx.untrusted import read_json

__all__ = ["Limits", "decode", "encode", "load_object"]

T = TypeVar("T")
_NOT_FINITE: Final = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
"""Strings for floats that strict JSON lacks, since a report must be able to show them."""

_WORDS: Final = {str: "a string", bool: "true or false", int: "a whole number", float: "a number"}
_MOST_FAULTS: Final = 5
_LARGEST: Final = 2**1023
"""The largest integer that is read as a float."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds of a number, or of each number of a list; None means no bound.

    In an annotation, `Annotated[float, Limits(minimum=0, below=1)]`, they are checked on decoding.
    """

    minimum: float | None = None
    maximum: float | None = None
    above: float | None = None
    below: float | None = None
    min_items: int | None = None

    def as_schema(self) -> dict[str, float]:
        """Return the bounds of the number as keywords of JSON Schema."""
        words = {
            "minimum": self.minimum,
            "maximum": self.maximum,
            "exclusiveMinimum": self.above,
            "exclusiveMaximum": self.below,
        }
        return {word: bound for word, bound in words.items() if bound is not None}

    def unkept(self, value: Any) -> str | None:  # noqa: ANN401 (a number, or a tuple)
        """Return the bound that a number, or the length of a tuple, violates; else None."""
        if isinstance(value, tuple):
            is_short = self.min_items is not None and len(value) < self.min_items
            return f"an array of at least {self.min_items}" if is_short else None
        rules = (
            ("at least", self.minimum, operator.ge),
            ("at most", self.maximum, operator.le),
            ("above", self.above, operator.gt),
            ("below", self.below, operator.lt),
        )
        broken = (
            f"a number {word} {bound:g}"
            for word, bound, is_kept in rules
            if bound is not None and not is_kept(value, bound)
        )
        return next(broken, None)


def encode(value: object, *, omit: Literal["none", "defaults"] | None = None) -> Any:  # noqa: ANN401 (JSON is any of six types)
    """Return `value` as JSON types: a dataclass is an object, a tuple an array.

    A float that is not finite becomes the string "nan", "inf" or "-inf".

    Args:
        value: A dataclass, or what one holds.
        omit: Leave out dataclass fields that are None, or those with their default values.

    >>> encode((1, math.inf, {"a": None}))
    [1, 'inf', {'a': None}]
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        pairs = ((one, getattr(value, one.name)) for one in dataclasses.fields(value))
        return {
            field.name: encode(item, omit=omit)
            for field, item in pairs
            if not (omit == "none" and item is None)
            and not (omit == "defaults" and is_default(field, item))
        }
    if isinstance(value, Mapping):
        return {str(key): encode(item, omit=omit) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        if {int, str}.issuperset(map(type, value)):
            return list(value)  # there may be millions
        return [encode(item, omit=omit) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def decode(kind: type[T], value: object, path: str = "$", *, finite: bool = True) -> T:
    """Return a value of type `kind` from JSON: dataclasses, tuples, mappings, unions.

    A field with a default may be missing; an unknown field is a fault. An integer is read as a
    float where a float is expected; nothing else is converted.

    Args:
        kind: A dataclass, or any type that a dataclass field can have.
        value: As `json.loads` returns it.
        path: The JSON path of `value`, for messages.
        finite: False if "nan", "inf" and "-inf" are also read as floats.

    Raises:
        StorageError: Values are missing, unknown, of another type or beyond their `Limits`; the
            message names the JSON paths of the first five.
    """
    reader = _Reader(finite=finite)
    found = reader.read(kind, value, path)
    reader.raise_faults()
    return typing.cast("T", found)


def load_object(text: str | bytes, what: str) -> dict[str, object]:
    """Return the JSON object in `text`; `what` names it in messages.

    Raises:
        StorageError: The text is not JSON, or not an object.
    """
    try:
        value = read_json(text)
    except ValueError as error:
        raise StorageError(f"The {what} is not JSON: {error}. The file may be cut off.") from error
    if not isinstance(value, dict):
        raise StorageError(f"$ is {value!r:.60}; the object of {what} is expected here.")
    return value


class _Reader:
    """Decodes one value, and continues after faults, so one mistake does not hide another."""

    def __init__(self, *, finite: bool) -> None:
        self._finite = finite
        self._faults: list[str] = []

    def raise_faults(self) -> None:
        if self._faults:
            raise StorageError(" ".join(self._faults))

    def read(self, kind: Any, value: object, path: str) -> object:  # noqa: ANN401 (an annotation)
        """Return the decoded value, or any value after a fault."""
        if dataclasses.is_dataclass(kind):
            return self._dataclass(typing.cast("type", kind), value, path)
        if kind in _WORDS:
            return self._scalar(kind, value, path)
        origin, inner = typing.get_origin(kind), typing.get_args(kind)
        readers = {
            Annotated: self._limited,
            Literal: self._literal,
            Mapping: self._mapping,
            tuple: self._tuple,
            types.UnionType: self._union,
            typing.Union: self._union,
        }
        return value if kind is Any else readers[origin](inner, value, path)

    def _dataclass(self, kind: type, value: object, path: str) -> object:
        pairs = self._expect(value, dict, path, "an object")
        if pairs is None:
            return None
        known = len(self._faults)
        fields = _fields(kind)
        for key in pairs:
            if key not in fields:
                self._fault(
                    f"{path}.{key} is not a field of {kind.__name__}; this file is of another "
                    f"kind or version.{did_you_mean(str(key), fields)}"
                )
        arguments: dict[str, object] = {}
        for name, (hint, is_required) in fields.items():
            if name in pairs:
                arguments[name] = self.read(hint, pairs[name], f"{path}.{name}")
            elif is_required:
                self._fault(
                    f"{path}.{name} is missing; {kind.__name__} cannot be read without it. "
                    "Write the file again with nncfx."
                )
        return None if len(self._faults) > known else kind(**arguments)

    def _literal(self, known: tuple[object, ...], value: object, path: str) -> object:
        if not isinstance(value, str) or value not in known:
            words = ", ".join(map(repr, known))
            self._fault(f"{path} is {value!r:.60}; one of {words} is expected here.")
        return value

    def _mapping(self, kinds: tuple[Any, ...], value: object, path: str) -> dict[str, object]:
        pairs = self._expect(value, dict, path, "an object") or {}
        return {key: self.read(kinds[1], one, f"{path}.{key}") for key, one in pairs.items()}

    def _union(self, kinds: tuple[Any, ...], value: object, path: str) -> object:
        if type(value) in kinds:
            return value if value is None else self.read(type(value), value, path)
        members = [one for one in kinds if one is not types.NoneType]
        for kind in members[:-1]:
            attempt = _Reader(finite=self._finite)
            found = attempt.read(kind, value, path)
            if not attempt._faults:
                return found
        return self.read(members[-1], value, path)

    def _limited(self, inner: tuple[Any, ...], value: object, path: str) -> object:
        known = len(self._faults)
        found = self.read(inner[0], value, path)
        if len(self._faults) == known:
            wanted = next(filter(None, (one.unkept(found) for one in inner[1:])), None)
            if wanted is not None:
                self._fault(f"{path} is {value!r:.60}; {wanted} is expected here.")
        return found

    def _tuple(self, kinds: tuple[Any, ...], value: object, path: str) -> tuple[object, ...]:
        items = self._expect(value, list, path, "an array") or []
        if kinds[-1] is Ellipsis:
            if kinds[0] in (int, str) and {kinds[0]}.issuperset(map(type, items)):
                return tuple(items)
            kinds = (kinds[0],) * len(items)
        elif len(items) != len(kinds):
            self._fault(f"{path} has {len(items)} items; {len(kinds)} are expected.")
        pairs = enumerate(zip(kinds, items, strict=False))
        return tuple(self.read(kind, item, f"{path}[{i}]") for i, (kind, item) in pairs)

    def _scalar(self, kind: type, value: object, path: str) -> object:
        if kind is float:
            if not self._finite and isinstance(value, str) and value in _NOT_FINITE:
                return _NOT_FINITE[value]
            if isinstance(value, int) and not isinstance(value, bool) and abs(value) < _LARGEST:
                return float(value)
            if self._finite and isinstance(value, float) and not math.isfinite(value):
                self._fault(f"{path} is {value}; a finite number is expected here.")
        return self._expect(value, kind, path, _WORDS[kind])

    def _expect(self, value: object, kind: type, path: str, words: str) -> Any:  # noqa: ANN401 (JSON)
        # bool is an int in Python, but not in JSON
        if isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
            return value
        self._fault(f"{path} is {value!r:.60}; {words} is expected here.")
        return None

    def _fault(self, words: str) -> None:
        self._faults.append(words)
        if len(self._faults) == _MOST_FAULTS:
            self.raise_faults()


@functools.cache
def _fields(kind: type) -> dict[str, tuple[Any, bool]]:
    """Return the annotation of each field of a dataclass, and whether it has no default."""
    hints = typing.get_type_hints(kind, include_extras=True)
    return {
        one.name: (
            hints[one.name],
            one.default is dataclasses.MISSING and one.default_factory is dataclasses.MISSING,
        )
        for one in dataclasses.fields(kind)
        if one.init
    }


def is_default(field: "dataclasses.Field[Any]", value: object) -> bool:
    """Return whether `value` is the default of `field`."""
    if field.default_factory is not dataclasses.MISSING:
        return bool(field.default_factory() == value)
    return field.default is not dataclasses.MISSING and bool(field.default == value)
