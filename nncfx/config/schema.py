"""The JSON Schema (draft 2020-12) of a config dataclass, generated from it.

One keyword is our own, and other readers ignore it: `x-nncfx-refused` lists features of NNCF that
nncfx does not support, with the reason.
"""

import dataclasses
import functools
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

from nncfx.config.option import OptionSpec, options_of, spec_of

REFUSED = "x-nncfx-refused"
TAG = "algorithm"

_SCALARS: Mapping[type, str] = {bool: "boolean", int: "integer", float: "number", str: "string"}


def schema_of(cls: type) -> Mapping[str, Any]:
    """Return the schema of the config dataclass `cls`, nested ones under `$defs`.

    Parts of it are cached: do not change it.
    """
    definitions: dict[str, Mapping[str, Any]] = {}
    missing = [cls]
    while missing:
        one = missing.pop()
        if one.__name__ not in definitions:
            own = _Own.kept(one) if _is_fixed(one) else _Own.of(one)
            definitions[one.__name__] = own.schema
            missing += own.nested
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **_reference(cls),
        "$defs": definitions,
    }


def item_type(hint: Any) -> Any:  # noqa: ANN401 (a type hint)
    """Return `hint` without None, or the item type of a tuple of any length.

    >>> item_type(tuple[str, ...] | None), item_type(int)
    (<class 'str'>, <class 'int'>)
    """
    if _is_union(hint):
        (hint,) = (part for part in typing.get_args(hint) if part is not types.NoneType)
    return typing.get_args(hint)[0] if typing.get_origin(hint) is tuple else hint


def _is_union(hint: Any) -> bool:  # noqa: ANN401 (a type hint)
    # a union with a Literal has the older type
    return isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union


def is_list(hint: Any) -> bool:  # noqa: ANN401 (a type hint)
    """Return whether `hint`, without None, is a tuple of any length."""
    parts = typing.get_args(hint) if _is_union(hint) else (hint,)
    return any(typing.get_origin(part) is tuple for part in parts)


def _reference(cls: type) -> dict[str, Any]:
    return {"$ref": f"#/$defs/{cls.__name__}"}


@functools.cache
def _is_fixed(cls: type) -> bool:
    """Return whether its schema is constant: the set of algorithms can change."""
    return all(spec_of(one).tagged is None for one in options_of(cls))


class _Own(NamedTuple):
    """The schema of a class, and the classes that it refers to."""

    schema: Mapping[str, Any]
    nested: Sequence[type]

    @classmethod
    def of(cls, section: type) -> Self:
        """Build it for the config dataclass `section`."""
        nested: list[type] = []
        return cls(_object_schema(section, nested), nested)

    @classmethod
    @functools.cache
    def kept(cls, section: type) -> Self:
        """Return the same from a cache."""
        return cls.of(section)


def _object_schema(cls: type, nested: list[type]) -> dict[str, Any]:
    hints = typing.get_type_hints(cls)
    fields = options_of(cls)
    properties = {f.name: _property(f, hints[f.name], nested) for f in fields}
    needed = [f.name for f in fields if f.default is dataclasses.MISSING]
    tag = vars(cls).get(TAG)
    if isinstance(tag, str):
        properties = {TAG: {"const": tag}, **properties}
        needed.insert(0, TAG)
    return {
        "type": "object",
        "description": (cls.__doc__ or "").partition("\n")[0],
        "properties": properties,
        "required": needed,
        "additionalProperties": False,
        REFUSED: dict(getattr(cls, "refused", {})),
    }


def _property(
    field: "dataclasses.Field[Any]",
    hint: Any,  # noqa: ANN401 (a type hint)
    nested: list[type],
) -> dict[str, Any]:
    spec = spec_of(field)
    if spec.schema is not None:
        return {"description": spec.doc, **spec.schema}
    item = _item_schema(item_type(hint), spec, nested)
    schema = item
    if is_list(hint):
        array: dict[str, Any] = {"type": "array", "items": item}
        if spec.limits.min_items is not None:
            array["minItems"] = spec.limits.min_items
        if spec.tagged is not None:
            array["allOf"] = [_at_most_one(name) for name in sorted(spec.tagged())]
        single = {"if": {"type": "array"}, "then": array, "else": item}
        schema = single if spec.single else array
    described = {"description": spec.doc, **schema}
    if isinstance(field.default, bool | int | float | str):
        described["default"] = field.default
    return described


def _item_schema(
    item: Any,  # noqa: ANN401 (a type hint)
    spec: OptionSpec,
    nested: list[type],
) -> dict[str, Any]:
    if spec.tagged is not None:
        return _tagged_schema(spec.tagged(), spec.refused_tags, nested)
    if dataclasses.is_dataclass(item):
        assert isinstance(item, type)  # noqa: S101 (a hint is a class, not an instance)
        nested.append(item)
        return _reference(item)
    if typing.get_origin(item) is typing.Literal:
        choices = list(typing.get_args(item))
        return {"enum": choices, "description": spec.doc, REFUSED: dict(spec.refused)}
    return {"type": _SCALARS[item], "description": spec.doc, **spec.limits.as_schema()}


def _tagged_schema(
    classes: Mapping[str, type], refused: Mapping[str, str], nested: list[type]
) -> dict[str, Any]:
    """Return a schema that selects the class by the value of `algorithm`.

    With if/then, an error of an item is reported at its own place, while anyOf would only report
    that no alternative fits.
    """
    nested += classes.values()
    cases = [
        {
            "if": {"type": "object", "required": [TAG], "properties": {TAG: {"const": name}}},
            "then": _reference(cls),
        }
        for name, cls in sorted(classes.items())
    ]
    return {
        "type": "object",
        "required": [TAG],
        "properties": {TAG: {"enum": sorted(classes), REFUSED: dict(refused)}},
        "allOf": cases,
    }


def _at_most_one(tag: str) -> dict[str, Any]:
    """Return the schema of a list that contains the algorithm `tag` at most once."""
    item = {"type": "object", "required": [TAG], "properties": {TAG: {"const": tag}}}
    return {"contains": item, "minContains": 0, "maxContains": 1}
