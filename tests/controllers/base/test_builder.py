"""The registry of algorithms."""

import pkgutil

import pytest

import nncfx.algorithms
from nncfx.algorithms import FilterPruningBuilder, MagnitudeSparsityBuilder
from nncfx.algorithms.channel_pruning.config import FilterPruningConfig
from nncfx.algorithms.magnitude_sparsity.config import MagnitudeSparsityConfig
from nncfx.config import algorithm_configs
from nncfx.config.discovery import BUILT_IN
from nncfx.controllers import Builder, builder_for, register_algorithm
from nncfx.errors import ArgumentError


def test_every_folder_of_an_algorithm_is_listed() -> None:
    folders = {module.name for module in pkgutil.iter_modules([*nncfx.algorithms.__path__])}
    listed = {home.split(".")[2] for home in BUILT_IN.values() if "algorithms" in home}
    assert listed == folders


def test_every_listed_algorithm_is_built_by_the_module_that_is_listed() -> None:
    for name, config in algorithm_configs().items():
        builder = builder_for(object.__new__(config))
        assert (config.algorithm, type(builder).__module__) == (name, BUILT_IN[name])


def test_a_config_finds_its_builder() -> None:
    assert isinstance(builder_for(MagnitudeSparsityConfig()), MagnitudeSparsityBuilder)
    assert isinstance(builder_for(FilterPruningConfig()), FilterPruningBuilder)


def test_a_second_builder_of_one_name_is_refused() -> None:
    class Other(Builder[FilterPruningConfig]):
        pass

    with pytest.raises(ArgumentError, match="built by FilterPruningBuilder already"):
        register_algorithm(FilterPruningConfig)(Other)
