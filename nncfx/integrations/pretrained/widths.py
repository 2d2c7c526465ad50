"""Finds the transformers config with the widths of a thinned model."""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, TypeAlias

import torch
from torch import nn

from nncfx.integrations.mixed_precision import remove_autocast
from nncfx.network import NNCFNetwork, unwrap
from nncfx.tracing import ExampleInputs, run
from nncfx.tracing.calls.devices import device_of
from nncfx.tracing.calls.model_copy import copy_of
from nncfx.tracing.calls.tensors import tensors_in
from nncfx.tracing.hooks.dynamic_class import original_class

__all__ = ["with_widths"]

Config: TypeAlias = Any
"""A transformers config."""

Facts: TypeAlias = Mapping[tuple[str, str], object]
"""What makes two models of a class equal except for weights: by module and name."""

_SHAPE: Final = "its shape"
_ATTEMPTS: Final = 3
"""If two fields give the same shapes, such as heads and their width, the next one is tried."""


@dataclass(frozen=True)
class _Change:
    """One field of a config, or of a nested config, and its new value."""

    path: tuple[str, ...]
    value: int


def with_widths(model: nn.Module, example_inputs: ExampleInputs | None) -> Any:  # noqa: ANN401 (of transformers)
    """Return a plain model of the same class that computes as `model` does, from a config.

    Fields of the config are narrowed one after the other, each time the field that leaves the
    fewest shapes and sizes different; the models are built without memory. Finally both are run.

    Args:
        model: A transformers model without hooks.
        example_inputs: Inputs on which they must agree bit for bit; by default
            `model.dummy_inputs`.

    Returns:
        None if no config has these widths, or the models differ.
    """
    if isinstance(model, NNCFNetwork):
        example_inputs = model.nncf.example_inputs if example_inputs is None else example_inputs
        model = unwrap(copy_of(model))
    model = copy.copy(model)
    remove_autocast(model)
    kind = original_class(model)
    wanted = _facts(model)
    banned = set[tuple[str, ...]]()
    for _ in range(_ATTEMPTS):
        changes = _narrowing(kind, model.config, wanted, banned)
        if changes is None:
            return None
        config = _with(model.config, *changes)
        if (agreeing := _agreeing(kind, config, model, example_inputs)) is not None:
            return agreeing
        banned |= {one.path for one in changes}
    return None


def _narrowing(
    kind: type[nn.Module], config: Config, wanted: Facts, banned: set[tuple[str, ...]]
) -> list[_Change] | None:
    """Return changes of `config` that lead to all shapes; None if there are none."""
    changes: list[_Change] = []
    found = _found(kind, config, wanted)
    while found is not None:
        options = [
            (_difference(_found(kind, _with(config, *changes, one), wanted), wanted), one)
            for one in _changes(_with(config, *changes), _ratios(found, wanted))
            if one.path not in banned
        ]
        best = min(options, key=lambda pair: pair[0], default=None)
        if best is None or best[0] >= _difference(found, wanted):
            break
        changes.append(best[1])
        found = _found(kind, _with(config, *changes), wanted)
    shapes = [key for key in wanted if key[1] == _SHAPE]
    fits = found is not None and all(found[key] == wanted[key] for key in shapes)
    return changes if fits else None


def _agreeing(
    kind: type[nn.Module],
    config: Config,
    model: Any,  # noqa: ANN401 (of transformers)
    example_inputs: ExampleInputs | None,
) -> nn.Module | None:
    fresh = kind(config).eval()
    dtype = next((one.dtype for one in model.parameters()), torch.float32)
    device = device_of(model)
    fresh.to(device, dtype).load_state_dict(model.state_dict())
    modes = {one: one.training for one in model.modules()}
    try:
        inputs = model.dummy_inputs if example_inputs is None else example_inputs
        with torch.no_grad():
            expected, got = (tensors_in(run(one.eval(), inputs)) for one in (model, fresh))
    except Exception:  # noqa: BLE001 (a model that rejects these inputs proves nothing)
        return None
    finally:
        for one, mode in modes.items():
            one.training = mode
    agree = len(got) == len(expected) and all(map(torch.equal, got, expected))
    return fresh if agree else None


def _facts(model: nn.Module) -> dict[tuple[str, str], object]:
    facts: dict[tuple[str, str], object] = {
        (name, _SHAPE): tuple(one.shape) for name, one in model.state_dict(keep_vars=True).items()
    }
    for name, module in model.named_modules():
        for key, value in vars(module).items():
            private = key == "training" or key.startswith("_")
            if not private and isinstance(value, bool | int | float | str | tuple):
                facts[name, key] = value
        facts[name, "type"] = type(module).__name__ if name else ""
    return facts


def _found(kind: type[nn.Module], config: Config, wanted: Facts) -> Facts | None:
    """Return the facts of a model built from `config`; None if it cannot be built."""
    try:
        with torch.device("meta"):
            facts = _facts(kind(config))
    except Exception:  # noqa: BLE001 (the class of the config may reject it)
        return None
    return facts if facts.keys() == wanted.keys() else None


def _difference(found: Facts | None, wanted: Facts) -> float:
    return torch.inf if found is None else sum(found[key] != wanted[key] for key in wanted)


def _ratios(found: Facts, wanted: Facts) -> set[Fraction]:
    """Return the factors by which axes and sizes became shorter."""
    ratios = set[Fraction]()
    for key, old in found.items():
        new = wanted[key]
        pairs: list[tuple[object, object]] = [(old, new)]
        if isinstance(old, tuple) and isinstance(new, tuple):
            pairs = list(zip(old, new, strict=False))
        ratios |= {
            Fraction(after, before)
            for before, after in pairs
            if type(before) is int and type(after) is int and 0 < after < before
        }
    return ratios


def _changes(
    config: Config, ratios: set[Fraction], path: tuple[str, ...] = ()
) -> Iterator[_Change]:
    for name, value in vars(config).items():
        if type(value) is int and value > 1:
            for ratio in sorted(ratios):
                if (value * ratio).denominator == 1:
                    yield _Change((*path, name), int(value * ratio))
        elif (
            not name.startswith("_") and hasattr(value, "to_dict") and hasattr(value, "model_type")
        ):
            yield from _changes(value, ratios, (*path, name))


def _with(config: Config, *changes: _Change) -> Config:
    made = copy.deepcopy(config)
    for change in changes:
        inner = made
        for name in change.path[:-1]:
            inner = getattr(inner, name)
        setattr(inner, change.path[-1], change.value)
    return made
