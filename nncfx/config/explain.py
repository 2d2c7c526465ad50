"""Converts errors of jsonschema to faults with a reason and a fix."""

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jsonschema
from jsonschema.exceptions import ValidationError

from nncfx._version import __version__
from nncfx.config.discovery import broken_algorithms
from nncfx.config.faults import Fault, join, json_path
from nncfx.config.schema import REFUSED, TAG
from nncfx.errors import did_you_mean

_KINDS = {
    "array": "a list",
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
    "object": "an object { }",
    "string": "a string",
}
_EXAMPLES = {
    "array": "[...]",
    "boolean": "true or false, without quotes",
    "integer": "a number without a point and without quotes",
    "number": "a number without quotes",
    "object": "{...}",
    "string": "text in quotes",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Violation:
    """A violation found by jsonschema: `value` breaks the keyword `word` with value `expected`."""

    path: str
    word: str
    value: Any
    expected: Any
    schema: Mapping[str, Any]

    @property
    def doc(self) -> str:
        """The description of the expected value, in brackets, or ""."""
        doc = self.schema.get("description", "").rstrip(".")
        return f" ({doc})" if doc else ""


def schema_faults(data: object, schema: Mapping[str, Any]) -> list[Fault]:
    """Return every fault of `data` against `schema`, in the order of their paths."""
    validator = jsonschema.Draft202012Validator(schema)
    violations = [_violation(error) for error in validator.iter_errors(data)]
    return sorted({fault for violation in violations for fault in _explain(violation, schema)})


def _violation(error: ValidationError) -> _Violation:
    assert isinstance(error.schema, Mapping)  # noqa: S101 (a bool schema has no keyword)
    return _Violation(
        path=json_path(error.absolute_path),
        word=str(error.validator),
        value=error.instance,
        expected=error.validator_value,
        schema=error.schema,
    )


def _explain(violation: _Violation, schema: Mapping[str, Any]) -> Iterator[Fault]:
    path, value = violation.path, violation.value
    known = violation.schema.get("properties", {})
    if violation.word == "additionalProperties":
        refused = violation.schema.get(REFUSED, {})
        for key in value:
            if key not in known:
                yield Fault(
                    path=join(path, key), problem=_unknown_key(key, known, refused, schema)
                )
    elif violation.word == "required":
        for key in violation.expected:
            if key not in value:
                strangers = [one for one in value if one not in known]
                problem = _missing_key(key, known.get(key, {}), strangers)
                yield Fault(path=path, problem=problem)
    else:
        explain = _EXPLANATIONS[violation.word]
        yield Fault(path=path, problem=explain(violation))


def _unknown_key(
    key: str, known: Mapping[str, Any], refused: Mapping[str, str], schema: Mapping[str, Any]
) -> str:
    if key in refused:
        return _refusal(refused[key])
    if place := _place_of(key, known, schema):
        return place
    guess = did_you_mean(key, known)
    return (
        f"unknown key; no key is silently ignored.{guess} Known here: {', '.join(sorted(known))}."
    )


def _refusal(reason: str) -> str:
    return f"known to NNCF, not supported yet by nncfx {__version__}: {reason}."


def _missing_key(key: str, schema: Mapping[str, Any], strangers: list[str]) -> str:
    missing = f"the key '{key}' is missing, and this object needs it."
    if did_you_mean(key, strangers):
        nearest = next(one for one in strangers if did_you_mean(key, [one]))
        missing += f" Here is '{nearest}', which is unknown: is it meant to be '{key}'?"
    if "enum" in schema:
        return f"{missing} Set it to one of: {_listed(schema['enum'])}."
    return f"{missing} Add it: {schema.get('description', key)}."


def _wrong_type(violation: _Violation) -> str:
    return (
        f"{_shown(violation.value)} is {_kind(violation.value)}; it must be "
        f"{_KINDS[violation.expected]}{violation.doc}. Write {_example(violation)}."
    )


def _example(violation: _Violation) -> str:
    needed = violation.schema.get("required", ())
    if violation.expected == "object" and isinstance(violation.value, str) and len(needed) == 1:
        return json.dumps({needed[0]: violation.value})
    return _EXAMPLES[violation.expected]


def _wrong_choice(violation: _Violation) -> str:
    value, choices = violation.value, violation.expected
    if not isinstance(value, str):
        return f"{_shown(value)} is {_kind(value)}; use one of: {_listed(choices)}."
    if violation.path.endswith(TAG) and value in broken_algorithms():
        return broken_algorithms()[value]
    reason = violation.schema.get(REFUSED, {}).get(value)
    if reason is not None:
        return f"{_shown(value)} is {_refusal(reason)}"
    guess = did_you_mean(value.lower(), [choice.lower() for choice in choices])
    nearest = next((f" Did you mean {c!r}?" for c in choices if repr(c.lower()) in guess), "")
    if violation.path.endswith(TAG) and not nearest:
        nearest = " If it is one of your own, import the module that registers it first."
    return f"{_shown(value)} is not known here; use one of: {_listed(choices)}.{nearest}"


def _out_of_range(violation: _Violation) -> str:
    value, interval = violation.value, _interval(violation.schema)
    per_cent = 100
    is_per_cent = violation.schema.get("exclusiveMaximum") == 1 and 1 < value <= per_cent
    fix = "Write 0.3 for 30 %" if is_per_cent else "Choose a value in that interval"
    return f"{_shown(value)} is out of range; it must lie in {interval}{violation.doc}. {fix}."


def _interval(schema: Mapping[str, Any]) -> str:
    low, high = "(-inf", "inf)"
    if "minimum" in schema:
        low = f"[{schema['minimum']:g}"
    elif "exclusiveMinimum" in schema:
        low = f"({schema['exclusiveMinimum']:g}"
    if "maximum" in schema:
        high = f"{schema['maximum']:g}]"
    elif "exclusiveMaximum" in schema:
        high = f"{schema['exclusiveMaximum']:g})"
    return f"{low}, {high}"


def _too_short(violation: _Violation) -> str:
    return (
        f"has {len(violation.value)} entries; at least {violation.expected} are needed"
        f"{violation.doc}. Add the missing ones, or leave the key out."
    )


def _twice(violation: _Violation) -> str:
    name = violation.schema["contains"]["properties"][TAG]["const"]
    return (
        f"'{name}' is listed more than once; a model takes each algorithm once. Merge the items "
        "into one."
    )


_EXPLANATIONS: Mapping[str, Callable[[_Violation], str]] = {
    "enum": _wrong_choice,
    "exclusiveMaximum": _out_of_range,
    "exclusiveMinimum": _out_of_range,
    "maxContains": _twice,
    "maximum": _out_of_range,
    "minItems": _too_short,
    "minimum": _out_of_range,
    "type": _wrong_type,
}


def _listed(values: list[Any]) -> str:
    return ", ".join(_shown(value) for value in values)


def _shown(value: object) -> str:
    text = repr(value)
    longest = 60
    return text if len(text) <= longest else text[: longest - 3] + "..."


def _kind(value: object) -> str:
    if value is None:
        return "null"
    for python, kind in (
        (bool, "boolean"),
        (int, "integer"),
        (float, "number"),
        (str, "string"),
        (list, "array"),
        (dict, "object"),
    ):
        if isinstance(value, python):
            return _KINDS[kind]
    return f"a {type(value).__name__}"


def _place_of(key: str, known: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """Return where the misplaced `key` belongs, as a sentence; or ""."""
    keys = {name: one["properties"] for name, one in schema.get("$defs", {}).items()}
    here = [name for name, properties in keys.items() if properties == known]
    below = [one for name in here for one in _parts(keys[name])]
    deeper = [(f"{part}.{one}", to) for part, name in below for one, to in _parts(keys[name])]
    for part, name in (*below, *deeper):
        if key in keys[name]:
            levels = "two levels" if "." in part else "one level"
            return f"'{key}' belongs {levels} deeper. Move it into '{part}'."
    above = [
        part
        for properties in keys.values()
        for part, name in _parts(properties)
        if name in here and key in properties
    ]
    return f"'{key}' belongs one level higher. Move it out of '{above[0]}'." if above else ""


def _parts(properties: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the keys that hold objects, each with the name of the object's definition."""
    return [(key, name) for key, prop in properties.items() for name in _references(prop)]


def _references(prop: Mapping[str, Any]) -> Iterator[str]:
    """Yield the definitions that a property, its list items or its alternatives refer to."""
    if "$ref" in prop:
        yield prop["$ref"].rpartition("/")[2]
    nested = (prop[word] for word in ("items", "then", "else") if word in prop)
    for one in (*nested, *prop.get("allOf", ())):
        yield from _references(one)
