"""The registry of algorithms."""

import pytest

from nncfx.algorithms import FilterPruningBuilder, MagnitudeSparsityBuilder
from nncfx.config import FilterPruningConfig, MagnitudeSparsityConfig
from nncfx.controllers import Builder, builder_for, register_algorithm, registered_algorithms
from nncfx.errors import ArgumentError


def test_importing_the_algorithms_registers_them() -> None:
    assert registered_algorithms() == (
        "const_sparsity",
        "filter_pruning",
        "knowledge_distillation",
        "magnitude_sparsity",
        "nm_sparsity",
        "rb_sparsity",
    )


def test_a_config_finds_its_builder() -> None:
    assert isinstance(builder_for(MagnitudeSparsityConfig()), MagnitudeSparsityBuilder)
    assert isinstance(builder_for(FilterPruningConfig()), FilterPruningBuilder)


def test_a_second_builder_of_one_name_is_refused() -> None:
    class Other(Builder[FilterPruningConfig]):
        pass

    with pytest.raises(ArgumentError, match="built by FilterPruningBuilder already"):
        register_algorithm(FilterPruningConfig)(Other)
