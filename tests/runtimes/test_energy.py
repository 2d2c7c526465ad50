"""Energy from counters: read, averaged, and allowed to start again from zero."""

from pathlib import Path

import pytest

from nncfx.errors import ArgumentError, RuntimeFailure
from nncfx.runtimes import energy_counters, energy_per_call


def counter(folder: Path, name: str, energy_uj: int) -> Path:
    package = folder / name
    package.mkdir()
    (package / "energy_uj").write_text(f"{energy_uj}\n", encoding="ascii")
    (package / "max_energy_range_uj").write_text("1000000\n", encoding="ascii")
    return package


class Heater:
    """Each call takes 0.5 s and 200,000 microjoules of every counter, which wraps at 1 J."""

    def __init__(self, *counters: Path) -> None:
        self.counters, self.now = counters, 0.0

    def __call__(self) -> None:
        self.now += 0.5
        for one in self.counters:
            file = one / "energy_uj"
            energy = int(file.read_text(encoding="ascii")) + 200_000
            file.write_text(str(energy % 1_000_000), encoding="ascii")


def test_the_packages_are_found_and_their_parts_are_not_counted_twice(tmp_path: Path) -> None:
    package = counter(tmp_path, "intel-rapl:0", 0)
    counter(tmp_path, "intel-rapl:0:0", 0)
    (tmp_path / "dtpm").mkdir()
    assert energy_counters(tmp_path) == (package,)


def test_the_energy_of_a_call_is_the_sum_over_the_packages(tmp_path: Path) -> None:
    counters = counter(tmp_path, "intel-rapl:0", 0), counter(tmp_path, "intel-rapl:1", 100)
    heater = Heater(*counters)
    energy = energy_per_call(heater, counters=counters, seconds=1.0, clock=lambda: heater.now)
    assert energy.calls == 2
    assert energy.joules == pytest.approx(0.4)
    assert energy.watts == pytest.approx(0.8)


def test_a_counter_may_start_again_from_zero(tmp_path: Path) -> None:
    one = counter(tmp_path, "intel-rapl:0", 900_000)
    heater = Heater(one)
    energy = energy_per_call(heater, counters=(one,), seconds=0.0, clock=lambda: heater.now)
    assert energy.joules == pytest.approx(0.2)


def test_a_platform_without_counters_is_told() -> None:
    with pytest.raises(RuntimeFailure, match="no energy counters"):
        energy_per_call(lambda: None, counters=())


def test_negative_seconds_are_refused(tmp_path: Path) -> None:
    one = counter(tmp_path, "intel-rapl:0", 0)
    with pytest.raises(ArgumentError, match="seconds is -1"):
        energy_per_call(lambda: None, counters=(one,), seconds=-1)
