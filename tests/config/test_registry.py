"""Algorithm names: one class each."""

import dataclasses
from typing import ClassVar

import pytest

from nncfx.config import (
    AlgorithmConfig,
    NNCFConfig,
    algorithm_configs,
    option,
    register_algorithm_config,
    unregister_algorithm_config,
)
from nncfx.errors import ArgumentError, ConfigError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mine(AlgorithmConfig):
    """Mine."""

    algorithm: ClassVar[str] = "mine"


def test_a_registered_class_is_what_its_name_means() -> None:
    register_algorithm_config(Mine)
    try:
        assert NNCFConfig.from_dict({"compression": {"algorithm": "mine"}}).compression == (
            Mine(),
        )
    finally:
        unregister_algorithm_config("mine")
    assert "mine" not in algorithm_configs()


def test_a_name_that_is_taken_is_refused() -> None:
    class Other(Mine):
        algorithm: ClassVar[str] = "magnitude_sparsity"

    with pytest.raises(ArgumentError, match="'magnitude_sparsity' is registered already"):
        register_algorithm_config(Other)


def test_a_class_without_a_name_is_refused() -> None:
    class Nameless(AlgorithmConfig):
        pass

    with pytest.raises(ArgumentError, match="Nameless has no name"):
        register_algorithm_config(Nameless)


def test_options_of_a_class_that_is_no_dataclass_are_refused() -> None:
    class Undecorated(AlgorithmConfig):
        algorithm: ClassVar[str] = "undecorated"
        seed: int = option(0, "draws")

    with pytest.raises(
        ArgumentError, match=r"Undecorated .* not a dataclass. Write '@dataclasses"
    ):
        register_algorithm_config(Undecorated)
    with pytest.raises(ConfigError, match="import the module that registers it first"):
        NNCFConfig.from_dict({"compression": {"algorithm": "undecorated"}})
