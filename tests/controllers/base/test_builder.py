"""The registry of algorithms."""

import pkgutil

import pytest

import nncfx.algorithms
from nncfx.algorithms import FilterPruningBuilder, MagnitudeSparsityBuilder, channel_pruning
from nncfx.config import FilterPruningConfig, MagnitudeSparsityConfig
from nncfx.controllers import Builder, builder_for, register_algorithm, registered_algorithms
from nncfx.errors import ArgumentError


def test_importing_the_algorithms_registers_one_for_each_module() -> None:
    found = pkgutil.iter_modules([*nncfx.algorithms.__path__])
    in_folder = pkgutil.iter_modules([*channel_pruning.__path__])
    modules = {module.name for module in found if not module.ispkg}
    modules |= {module.name for module in in_folder if module.name.endswith("_pruning")}
    assert modules <= set(registered_algorithms())
    assert len(modules) > 5


def test_a_config_finds_its_builder() -> None:
    assert isinstance(builder_for(MagnitudeSparsityConfig()), MagnitudeSparsityBuilder)
    assert isinstance(builder_for(FilterPruningConfig()), FilterPruningBuilder)


def test_a_second_builder_of_one_name_is_refused() -> None:
    class Other(Builder[FilterPruningConfig]):
        pass

    with pytest.raises(ArgumentError, match="built by FilterPruningBuilder already"):
        register_algorithm(FilterPruningConfig)(Other)
