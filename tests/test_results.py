"""The result files are what their JSONs claim."""

import importlib
import json
import os
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import nncfx

ROOT = Path(__file__).parents[1]
DATA = Path(os.environ.get("NNCFX_DATA", ROOT.parent / "shared" / "data"))
CLAIMS = [json.loads(path.read_text()) for path in sorted((ROOT / "results").glob("*.json"))]
WHOLE = list({one["network"]: one for one in CLAIMS if one["macs"] < 100_000_000}.values())
"""One of each network of which all 10,000 images are looked at; `make verify-results` does all."""
MOST_BYTES = 2_000_000

needs_data = pytest.mark.skipif(
    not DATA.is_dir(), reason=f"no images and dense networks at {DATA}; set NNCFX_DATA"
)
each = pytest.mark.parametrize("claim", CLAIMS, ids=[one["name"] for one in CLAIMS])


@pytest.fixture
def campaign_results(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module("campaign_results")


def test_every_file_has_its_claim_and_none_is_large() -> None:
    files = sorted((ROOT / "results").glob("*.nncfx"))
    assert [path.stem for path in files] == [one["name"] for one in CLAIMS]
    assert all(path.stat().st_size < MOST_BYTES for path in files)


@pytest.mark.slow
@needs_data
@each
def test_a_file_has_the_sizes_and_names_the_first_images_as_it_claims(
    campaign_results: ModuleType, claim: dict[str, Any]
) -> None:
    assert campaign_results.faults(claim, DATA, few=True) == []


@pytest.mark.slow
@needs_data
@pytest.mark.parametrize("claim", WHOLE, ids=[one["name"] for one in WHOLE])
def test_a_file_has_the_accuracy_that_it_claims(
    campaign_results: ModuleType, claim: dict[str, Any]
) -> None:
    assert campaign_results.faults(claim, DATA) == []


@needs_data
def test_a_claim_that_is_too_good_is_found(campaign_results: ModuleType) -> None:
    if not CLAIMS:
        pytest.skip("there is no result yet")
    known = CLAIMS[0]["correct_of_first"]
    better = CLAIMS[0] | {"correct_of_first": known + 10, "file_bytes": 1}
    found = campaign_results.faults(better, DATA, few=True)
    assert [one.partition(" ")[0] for one in found] == ["file_bytes", str(known)]


def test_every_run_of_the_campaign_has_a_valid_config(campaign_results: ModuleType) -> None:
    assert campaign_results.RESULTS == ROOT / "results"
    runs = importlib.import_module("campaign_runs").read_runs()
    assert runs
    for run in runs:
        for config in (run.config(), *run.thin_configs()):
            nncfx.NNCFConfig.from_dict(config)
        assert run.mean_of or run.recipe().steps == run.steps
        assert all((ROOT / f"results/{one}.nncfx").exists() for one in run.mean_of)
