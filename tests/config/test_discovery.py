"""Algorithms of installed packages are known to configs; one that is broken says whose it is."""

import json
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nncfx.config import NNCFConfig, algorithm_configs, discovery
from nncfx.controllers import builder_for, registered_algorithms, unregister_algorithm
from nncfx.errors import ConfigError
from nncfx.training import create_compressed_model

SOUND = """
import dataclasses
from typing import ClassVar
from nncfx.algorithms.const_sparsity.builder import ConstSparsityBuilder
from nncfx.config import AlgorithmConfig, option
from nncfx.controllers import register_algorithm

@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(AlgorithmConfig):
    algorithm: ClassVar[str] = "guest"
    strength: int = option(1, "how much")

@register_algorithm(Config)
class Builder(ConstSparsityBuilder.__base__):
    def plan(self, model): return []
    def controller(self, model, insertions): raise NotImplementedError
"""
TAKEN = SOUND.replace('"guest"', '"lc"')


@pytest.fixture
def install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str, str], None]]:
    """Puts a distribution on the path whose module `guest_of_nncfx` has the given source."""

    def enter(source: str, name: str = "guest") -> None:
        (tmp_path / "guest_of_nncfx.py").write_text(source)
        info = tmp_path / "guest_of_nncfx-1.2.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: guest-of-nncfx\nVersion: 1.2")
        (info / "entry_points.txt").write_text(f"[nncfx.algorithms]\n{name} = guest_of_nncfx\n")
        monkeypatch.syspath_prepend(tmp_path)
        discovery.forget()

    yield enter
    unregister_algorithm("guest")
    sys.modules.pop("guest_of_nncfx", None)
    monkeypatch.undo()
    discovery.forget()


def test_an_installed_algorithm_is_known_to_configs(install: Callable[[str], None]) -> None:
    install(SOUND)
    (one,) = NNCFConfig.from_dict({"compression": {"algorithm": "guest"}}).compression
    assert one.to_dict()["strength"] == 1
    assert type(builder_for(one)).__module__ == "guest_of_nncfx"
    assert "guest" in registered_algorithms()
    assert "'guest'" in str(json.dumps(NNCFConfig.schema())).replace('"', "'")
    with pytest.raises(ConfigError, match=r"compression\.strength: 'x' is a string"):
        NNCFConfig.from_dict({"compression": {"algorithm": "guest", "strength": "x"}})


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import nothing_like_it", "importing 'guest_of_nncfx' raised ModuleNotFoundError: No"),
        ("1 +", "importing 'guest_of_nncfx' raised SyntaxError: invalid syntax"),
        (SOUND + "raise ValueError('late')", "importing 'guest_of_nncfx' raised ValueError: late"),
        ("", "'guest_of_nncfx' registers no config of that name"),
        (TAKEN, "raised ArgumentError: The algorithm 'lc' is registered already, by nncfx.lc"),
    ],
)
def test_a_broken_one_names_its_package_when_a_config_asks_for_it(
    install: Callable[[str], None], source: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    install(source)
    with caplog.at_level(logging.WARNING):
        assert NNCFConfig.from_dict({"compression": {"algorithm": "lc"}}).compression
    with pytest.raises(ConfigError) as caught:
        NNCFConfig.from_dict({"compression": {"algorithm": "guest"}})
    for told in (str(caught.value), caplog.text):
        assert "The algorithm 'guest' of the installed package guest-of-nncfx 1.2 cannot" in told
        assert reason in told
        assert "Fix, upgrade or uninstall guest-of-nncfx." in told


def test_a_broken_one_does_not_stop_training(install: Callable[[str], None]) -> None:
    torch = pytest.importorskip("torch")
    install("raise RuntimeError('no')")
    model = torch.nn.Sequential(torch.nn.Linear(4, 4))
    config = {"compression": {"algorithm": "magnitude_sparsity"}}
    controller, _ = create_compressed_model(model, config, torch.ones(1, 4))
    assert controller.level == 0


def test_configs_know_every_algorithm() -> None:
    assert set(algorithm_configs()) == set(discovery.BUILT_IN)
