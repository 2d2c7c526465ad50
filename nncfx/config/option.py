"""Options: fields of config dataclasses, with their JSON Schema keywords."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from nncfx.json_codec import Limits as Limits  # noqa: PLC0414 (re-exported for configs)

_KEY = "nncfx.option"


LEVEL = Limits(minimum=0, below=1)
"""A level lies in [0, 1)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptionSpec:
    """The meaning of an option beyond its type.

    Attributes:
        doc: One sentence for the schema and for error messages.
        limits: Bounds of the number, or of each number of a list.
        single: A list with one item may be written as the item itself.
        refused: Values that NNCF supports and nncfx does not, with the reason.
        tagged: The allowed classes by the value of their key `algorithm`, looked up late.
        refused_tags: The values of `algorithm` that NNCF supports and nncfx does not.
        schema: The JSON Schema of a raw JSON value, instead of the schema of its type.
    """

    doc: str
    limits: Limits = dataclasses.field(default_factory=Limits)
    single: bool = False
    refused: Mapping[str, str] = dataclasses.field(default_factory=dict)
    tagged: Callable[[], Mapping[str, type]] | None = None
    refused_tags: Mapping[str, str] = dataclasses.field(default_factory=dict)
    schema: Mapping[str, Any] | None = None


def option(default: Any, doc: str, **spec: Any) -> Any:  # noqa: ANN401 (stands for any field)
    """Return a dataclass field with `default`; `doc` and `spec` are those of `OptionSpec`."""
    return dataclasses.field(default=default, metadata={_KEY: OptionSpec(doc=doc, **spec)})


def required(doc: str, **spec: Any) -> Any:  # noqa: ANN401 (stands for any field)
    """Return a dataclass field without a default; `doc` and `spec` are those of `OptionSpec`."""
    return dataclasses.field(metadata={_KEY: OptionSpec(doc=doc, **spec)})


def options_of(cls: type) -> "list[dataclasses.Field[Any]]":
    """Return the fields of the dataclass `cls` that are options, in their order."""
    return [field for field in dataclasses.fields(cls) if _KEY in field.metadata]


def spec_of(field: "dataclasses.Field[Any]") -> OptionSpec:
    """Return the spec that `option` or `required` gave `field`."""
    spec = field.metadata[_KEY]
    assert isinstance(spec, OptionSpec)  # noqa: S101 (set by option and required)
    return spec
