"""Energy from counters: read, averaged, and allowed to start again from zero."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from nncfx.errors import ArgumentError, MissingExtraError, RuntimeFailure
from nncfx.runtimes import energy_per_call
from nncfx.runtimes.inspect.energy import nvml_counters, rapl_counters


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
    counter(tmp_path, "intel-rapl:0", 2_500_000)
    counter(tmp_path, "intel-rapl:0:0", 0)
    (tmp_path / "dtpm").mkdir()
    (found,) = rapl_counters(tmp_path)
    assert (found.name, found.joules(), found.range_joules) == ("intel-rapl:0", 2.5, 1.0)


def test_the_energy_of_a_call_is_the_sum_over_the_packages(tmp_path: Path) -> None:
    counters = counter(tmp_path, "intel-rapl:0", 0), counter(tmp_path, "intel-rapl:1", 100)
    heater = Heater(*counters)
    found = rapl_counters(tmp_path)
    energy = energy_per_call(heater, counters=found, seconds=1.0, clock=lambda: heater.now)
    assert energy.calls == 2
    assert energy.joules == pytest.approx(0.4)
    assert energy.watts == pytest.approx(0.8)


def test_a_counter_may_start_again_from_zero(tmp_path: Path) -> None:
    one = counter(tmp_path, "intel-rapl:0", 900_000)
    heater = Heater(one)
    found = rapl_counters(tmp_path)
    energy = energy_per_call(heater, counters=found, seconds=0.0, clock=lambda: heater.now)
    assert energy.joules == pytest.approx(0.2)


def test_a_platform_without_counters_is_told() -> None:
    with pytest.raises(RuntimeFailure, match="no energy counters"):
        energy_per_call(lambda: None, counters=())


def test_negative_seconds_are_refused() -> None:
    with pytest.raises(ArgumentError, match="seconds is -1"):
        energy_per_call(lambda: None, seconds=-1)


class FakeNvmlError(Exception):
    """Stands for pynvml.NVMLError."""


class FakeNotSupportedError(FakeNvmlError):
    """Stands for pynvml.NVMLError_NotSupported."""


class Nvml(SimpleNamespace):
    """The part of pynvml that is used: one GPU that counts, and an old one that does not."""

    NVMLError = FakeNvmlError
    NVMLError_NotSupported = FakeNotSupportedError

    def __init__(self, *, driver: bool = True) -> None:
        super().__init__(millijoules=1000, driver=driver)

    def nvmlInit(self) -> None:  # noqa: N802 (pynvml's name)
        if not self.driver:
            raise FakeNvmlError("Driver Not Loaded")

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802 (pynvml's name)
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802 (pynvml's name)
        return index

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: int) -> int:  # noqa: N802 (pynvml's)
        if handle == 1:
            raise FakeNotSupportedError("Not Supported")
        return int(self.millijoules)


def test_gpus_that_count_their_energy_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = Nvml()
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    (counter,) = nvml_counters()

    def call() -> None:
        nvml.millijoules += 250

    assert counter.name == "GPU 0"
    energy = energy_per_call(call, counters=(counter,), seconds=0.0)
    assert energy.joules == pytest.approx(0.25)


def test_a_machine_without_driver_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", Nvml(driver=False))
    with pytest.raises(RuntimeFailure, match=r"Driver Not Loaded.*nvidia-smi must work"):
        nvml_counters()


def test_without_its_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(MissingExtraError, match=r"nncfx\[nvml\]"):
        nvml_counters()
