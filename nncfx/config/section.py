"""Sections: config dataclasses that are valid by construction and convert to and from JSON."""

import copy
import dataclasses
import math
import re
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, Final, Protocol, Self, TypeAlias, TypeVar

from nncfx.config.explain import schema_faults
from nncfx.config.faults import Fault, config_error, join
from nncfx.config.option import options_of, spec_of
from nncfx.config.schema import TAG, is_list, item_type, schema_of

ScopeResolver: TypeAlias = Callable[[str, str], str | None]
"""Maps the path of a scope in the config and the scope to its spelling in the model; None if the
scope is left out."""

_REPLACED: Final = re.compile(r"NNCF(?=Conv|Linear|BatchNorm|GroupNorm|LayerNorm|Embedding)")


class _Scoped(Protocol):
    """A dataclass with the two common keys for scopes."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def ignored_scopes(self) -> tuple[str, ...]: ...

    @property
    def target_scopes(self) -> tuple[str, ...] | None: ...


S = TypeVar("S", bound="Section")
R = TypeVar("R", bound=_Scoped)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Section:
    """One object of a config.

    A subclass declares its keys with `option` and `required`; it may override `rules`.
    Constructing it, from Python or from JSON, checks the schema and the rules and raises
    `ConfigError` with all faults together.

    Attributes:
        refused: Keys that NNCF supports and nncfx does not, with the reason.
    """

    refused: ClassVar[Mapping[str, str]] = {}

    def __post_init__(self) -> None:
        """Convert lists to tuples, then check.

        Raises:
            ConfigError: a value has the wrong type or range, or breaks a rule.
        """
        for field in options_of(type(self)):
            value = getattr(self, field.name)
            if isinstance(value, list) and spec_of(field).schema is None:
                object.__setattr__(self, field.name, tuple(value))
        faults = schema_faults(self._options(), schema_of(type(self))) or list(self.rules())
        if faults:
            raise config_error(faults, f"The {type(self).__name__}")

    def rules(self) -> Iterator[Fault]:
        """Yield the faults that a schema cannot express: those between keys of this object."""
        yield from ()

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """Return the JSON Schema (draft 2020-12) of this object, generated from the class."""
        return copy.deepcopy(dict(schema_of(cls)))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the object that `data` describes; absent keys take their defaults.

        Raises:
            ConfigError: `data` has faults; the message lists every one with its JSON path.
        """
        return read_section(cls, data, "The config")

    def to_dict(self) -> dict[str, Any]:
        """Return all keys with their values as JSON values; unset ones (None) are left out."""
        return self._options()

    def _options(self) -> dict[str, Any]:
        tag = vars(type(self)).get(TAG)
        tagged = {TAG: tag} if isinstance(tag, str) else {}
        values = {f.name: getattr(self, f.name) for f in options_of(type(self))}
        return tagged | {k: _as_json(v) for k, v in values.items() if v is not None}


def read_section(cls: type[S], data: object, source: str) -> S:
    """Return an object of `cls` from `data`.

    Raises:
        ConfigError: `data` has faults; the message names `source` and lists every one with its
            JSON path.
    """
    section, faults = _read(cls, data)
    if faults or section is None:
        raise config_error(faults, source)
    return section


def section_faults(cls: type[Section], data: object) -> list[Fault]:
    """Return the faults of `data` as a `cls`; empty if `read_section` accepts it."""
    return _read(cls, data)[1]


def as_in_torch(name: str) -> str:
    """Return `name` with NNCF's replacements of torch classes renamed to torch's classes.

    NNCF's configs contain names like `NNCFConv2d[0]`, because it replaces modules; nncfx does not.

    >>> as_in_torch("Net/NNCFConv2d[0]/conv2d_0")
    'Net/Conv2d[0]/conv2d_0'
    """
    return _REPLACED.sub("", name)


def with_scopes(section: R, path: str, resolve: ScopeResolver) -> R:
    """Return `section`, which is at `path`, with its two kinds of scopes resolved."""
    targets = section.target_scopes
    if targets is not None:
        targets = resolved_scopes(join(path, "target_scopes"), targets, resolve)
    ignored = resolved_scopes(join(path, "ignored_scopes"), section.ignored_scopes, resolve)
    return dataclasses.replace(section, ignored_scopes=ignored, target_scopes=targets)


def resolved_scopes(path: str, scopes: Iterable[str], resolve: ScopeResolver) -> tuple[str, ...]:
    """Return the `scopes` of the key at `path`, resolved, without those that are left out."""
    found = (resolve(f"{path}[{index}]", scope) for index, scope in enumerate(scopes))
    return tuple(scope for scope in found if scope is not None)


def _read(cls: type[S], data: object) -> tuple[S | None, list[Fault]]:
    faults: list[Fault] = []
    plain = _plain(data, "", faults)
    # zero replaces a value that is not a number, and can be out of range
    replaced = {one.path for one in faults}
    faults += [one for one in schema_faults(plain, schema_of(cls)) if one.path not in replaced]
    return _construct(cls, plain, "", faults), faults


def _construct(cls: type[S], data: object, path: str, faults: list[Fault]) -> S | None:
    """Return the `cls` of `data`, None if the schema rejects it; append faults of rules.

    Rules run on every object whose own keys are valid, so one mistake does not hide another.
    """
    if not isinstance(data, Mapping):
        return None
    hints = typing.get_type_hints(cls)
    section = object.__new__(cls)
    nested: list[str] = []
    for field in options_of(cls):
        value = field.default
        if field.name in data:
            place = join(path, field.name)
            value = _value(hints[field.name], field, data[field.name], (place, faults))
            nested += [place] * (_section_type(hints[field.name]) is not None)
        object.__setattr__(section, field.name, value)
    own = [f for f in faults if _is_at_or_below(f.path, path)]
    if all(any(_is_at_or_below(f.path, place) for place in nested) for f in own):
        faults += [fault.below(path) for fault in _rule_faults(section, is_sound=not own)]
    return section


def _rule_faults(section: Section, *, is_sound: bool) -> list[Fault]:
    try:
        return list(section.rules())
    except (AttributeError, TypeError):
        if is_sound:
            raise
        # a rule has read a nested value of wrong type, which is already reported
        return []


def _value(
    hint: Any,  # noqa: ANN401 (a type hint)
    field: "dataclasses.Field[Any]",
    value: object,
    at: tuple[str, list[Fault]],
) -> object:
    """Return the Python value of the JSON `value` of `field`, which is `at` (path, faults)."""
    path, faults = at
    if spec_of(field).schema is not None:
        return value
    if not is_list(hint):
        built = _item(hint, field, value, at)
        return field.default if built is None else built
    if isinstance(value, list):
        places = ((item, (f"{path}[{i}]", faults)) for i, item in enumerate(value))
        items = tuple(_item(hint, field, item, place) for item, place in places)
    else:
        items = (_item(hint, field, value, at),)
    return tuple(item for item in items if item is not None)


def _item(
    hint: Any,  # noqa: ANN401 (a type hint)
    field: "dataclasses.Field[Any]",
    value: object,
    at: tuple[str, list[Fault]],
) -> object:
    section_type = _section_type(hint)
    if section_type is None:
        is_whole = item_type(hint) is int and isinstance(value, float) and value.is_integer()
        return int(value) if is_whole and isinstance(value, float) else value
    tagged = spec_of(field).tagged
    if tagged is not None:
        tag = value.get(TAG) if isinstance(value, Mapping) else None
        found = tagged().get(tag) if isinstance(tag, str) else None
        return None if found is None else _construct(found, value, *at)
    return _construct(section_type, value, *at)


def _section_type(hint: Any) -> "type[Section] | None":  # noqa: ANN401 (a type hint)
    item = item_type(hint)
    return item if isinstance(item, type) and issubclass(item, Section) else None


def _is_at_or_below(path: str, place: str) -> bool:
    return not place or path == place or path.startswith((place + ".", place + "["))


def _plain(data: object, path: str, faults: list[Fault]) -> object:
    """Return `data` with tuples as lists; append faults for values that JSON cannot hold."""
    if isinstance(data, Mapping):
        odd = [key for key in data if not isinstance(key, str)]
        faults += [
            Fault(path=path, problem=f"the key {key!r} is not a string. Write it in quotes.")
            for key in odd
        ]
        return {
            key: _plain(value, join(path, key), faults)
            for key, value in data.items()
            if isinstance(key, str)
        }
    if isinstance(data, list | tuple):
        return [_plain(item, f"{path}[{i}]", faults) for i, item in enumerate(data)]
    if isinstance(data, float) and not math.isfinite(data):
        problem = f"{data} is not a finite number, which JSON cannot hold. Write a number."
        faults.append(Fault(path=path, problem=problem))
        return 0.0
    return data


def _as_json(value: object) -> object:
    if isinstance(value, Section):
        return value.to_dict()
    return [_as_json(item) for item in value] if isinstance(value, tuple) else value
