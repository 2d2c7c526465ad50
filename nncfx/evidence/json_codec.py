"""Frozen dataclasses to strict JSON and back, checked against their own annotations."""

import dataclasses
import math
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from nncfx.errors import StorageError, did_you_mean
from nncfx.storage.formats.whole_file import write_whole
from nncfx.untrusted import read_json

__all__ = ["decode", "encode", "load_object", "read_text", "write_text"]

T = TypeVar("T")
# Strict JSON has no spelling for these, and a report must be able to say that a number was lost.
_SPECIAL = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def encode(value: object) -> Any:  # noqa: ANN401 (JSON is any of six types)
    """Return `value` as JSON types: a dataclass is an object, a tuple an array.

    A float that is not finite becomes the string "nan", "inf" or "-inf".

    >>> encode((1, math.inf, {"a": None}))
    [1, 'inf', {'a': None}]
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: encode(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): encode(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [encode(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def decode(kind: type[T], value: object, path: str = "$") -> T:
    """Return the `kind` that the JSON `value` spells.

    A field with a default may be missing; an unknown one is a fault.
    `path` is the JSON path of `value`, for messages.

    Raises:
        StorageError: A value is missing, unknown or of another type; names its JSON path.
    """
    return typing.cast("T", _decode(kind, value, path))


def _decode(kind: Any, value: object, path: str) -> object:  # noqa: ANN401 (an annotation)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _decode_dataclass(kind, value, path)
    origin = typing.get_origin(kind)
    if origin in (types.UnionType, typing.Union):
        inner = next(a for a in typing.get_args(kind) if a is not types.NoneType)
        return None if value is None else _decode(inner, value, path)
    if origin is tuple:
        return _decode_tuple(typing.get_args(kind), value, path)
    if origin is Mapping:
        pairs = _expect(value, dict, path, "an object").items()
        return {key: _decode(str, item, f"{path}.{key}") for key, item in pairs}
    return _SCALARS[kind](value, path)


def _decode_dataclass(kind: type, value: object, path: str) -> object:
    pairs = _expect(value, dict, path, "an object")
    fields = {f.name: f for f in dataclasses.fields(kind)}
    for key in pairs:
        if key not in fields:
            raise StorageError(
                f"{path}.{key} is not a field of {kind.__name__}; this file is of another kind "
                f"or version.{did_you_mean(str(key), fields)}",
            )
    hints = typing.get_type_hints(kind)
    arguments: dict[str, object] = {}
    for name, field in fields.items():
        if name in pairs:
            arguments[name] = _decode(hints[name], pairs[name], f"{path}.{name}")
        elif field.default is dataclasses.MISSING:
            raise StorageError(
                f"{path}.{name} is missing; {kind.__name__} cannot be read without it. "
                "Write the file again with nncfx.",
            )
    return kind(**arguments)


def _decode_tuple(arguments: tuple[Any, ...], value: object, path: str) -> tuple[object, ...]:
    items = _expect(value, list, path, "an array")
    if arguments[-1] is Ellipsis:
        return tuple(_decode(arguments[0], x, f"{path}[{i}]") for i, x in enumerate(items))
    if len(items) != len(arguments):
        raise StorageError(f"{path} has {len(items)} items; {len(arguments)} are expected.")
    pairs = enumerate(zip(arguments, items, strict=True))
    return tuple(_decode(kind, item, f"{path}[{i}]") for i, (kind, item) in pairs)


def _expect(value: object, kind: type, path: str, words: str) -> Any:  # noqa: ANN401 (JSON)
    # bool is an int in Python and is not one in JSON
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise StorageError(f"{path} is {value!r:.60}; {words} is expected here.")
    return value


def _decode_float(value: object, path: str) -> float:
    if isinstance(value, str) and value in _SPECIAL:
        return _SPECIAL[value]
    if isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return float(_expect(value, float, path, "a number"))


_SCALARS: dict[type, Callable[[object, str], object]] = {
    str: lambda value, path: _expect(value, str, path, "a string"),
    bool: lambda value, path: _expect(value, bool, path, "true or false"),
    int: lambda value, path: _expect(value, int, path, "a whole number"),
    float: _decode_float,
}


def write_text(path: str | Path, text: str) -> Path:
    """Write `text` in UTF-8 to `path` by way of a temporary name and return the path.

    Missing folders are made. A reader sees the old file or the new one, never a part.

    Raises:
        StorageError: The folder cannot be made or written to.
    """
    return write_whole(Path(path), [text.encode()]).path


def read_text(path: str | Path) -> str:
    """Return the text of the UTF-8 file at `path`.

    Raises:
        StorageError: There is no such file, or it is not UTF-8 text.
    """
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise StorageError(
            f"'{path}' cannot be read: {error.strerror}. Check the path.",
        ) from error
    except UnicodeDecodeError as error:
        raise StorageError(
            f"'{path}' is not UTF-8 text at byte {error.start}; it is not a file of this kind.",
        ) from error


def load_object(text: str, kind: str) -> dict[str, object]:
    """Return the JSON object that `text` holds; `kind` names it in messages.

    Raises:
        StorageError: The text is not JSON, or not an object.
    """
    try:
        value = read_json(text)
    except ValueError as error:
        raise StorageError(f"The {kind} is not JSON: {error}. The file may be cut off.") from error
    return typing.cast("dict[str, object]", _expect(value, dict, "$", f"the object of {kind}"))
