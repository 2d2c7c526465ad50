"""Frozen descriptions as JSON: the schema follows from the types of their fields."""

import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, Final, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

import jsonschema

from nncfx.errors import ArgumentError
from nncfx.untrusted import read_json

__all__ = ["from_data", "read_description", "schema_of", "to_data"]

Description = TypeVar("Description")
Kind: TypeAlias = Any
"""A dataclass, or the type of one of its fields."""
Data: TypeAlias = Any
"""What JSON holds."""

_TYPES: Final = {str: "string", int: "integer", float: "number", bool: "boolean"}
_SHOWN: Final = 5


def to_data(value: object) -> Data:
    """Return dataclasses as dicts and tuples as lists; fields that are None are left out."""
    if is_dataclass(value):
        pairs = ((one.name, getattr(value, one.name)) for one in fields(value))
        return {name: to_data(one) for name, one in pairs if one is not None}
    if isinstance(value, Mapping):
        return {name: to_data(one) for name, one in value.items()}
    return [to_data(one) for one in value] if isinstance(value, tuple) else value


def schema_of(kind: Kind) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of what `to_data` makes of a value of type `kind`."""
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        required = [
            one.name
            for one in fields(kind)
            if one.default is MISSING and one.default_factory is MISSING
        ]
        return {
            "type": "object",
            "required": required,
            "additionalProperties": False,
            "properties": {name: schema_of(one) for name, one in hints.items()},
        }
    origin: object = get_origin(kind)
    inner = get_args(kind)
    if origin in (Union, types.UnionType):
        return schema_of(inner[0])
    if origin is tuple:
        return {"type": "array", "items": schema_of(inner[0])}
    if origin is Mapping:
        return {"type": "object", "additionalProperties": schema_of(inner[1])}
    return {"type": _TYPES[kind]}


def from_data(kind: Kind, data: Data) -> Data:
    """Return the value of type `kind` of which `to_data` makes `data`."""
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        assert isinstance(kind, type)  # noqa: S101 (no instance)
        return kind(**{name: from_data(hints[name], one) for name, one in data.items()})
    origin: object = get_origin(kind)
    inner = get_args(kind)
    if origin in (Union, types.UnionType):
        return from_data(inner[0], data)
    if origin is tuple:
        return tuple(from_data(inner[0], one) for one in data)
    if origin is Mapping:
        return {name: from_data(inner[1], one) for name, one in data.items()}
    return data


def read_description(kind: type[Description], text: str) -> Description:
    """Return the `kind` that `text` describes.

    Raises:
        ArgumentError: it is no JSON, does not follow `schema_of(kind)`, or names what is not
            known.
    """
    what = f"The {kind.__name__.lower()} description"
    try:
        data: Data = read_json(text)
    except ValueError as error:
        raise ArgumentError(
            f"{what} is no JSON: {error}. Write it by {kind.__name__}.to_json()."
        ) from error
    faults = sorted(
        jsonschema.Draft202012Validator(schema_of(kind)).iter_errors(data),
        key=lambda one: one.json_path,
    )
    if faults:
        listed = "; ".join(f"{one.json_path}: {one.message}" for one in faults[:_SHOWN])
        raise ArgumentError(
            f"{what} has faults: {listed}. {kind.__name__}.to_json() shows how one is written.",
        )
    described: Description = from_data(kind, data)
    return described
