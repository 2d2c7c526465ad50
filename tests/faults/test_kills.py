"""Whatever kills or starves a run, what it leaves in the end is as if nothing had.

`benchmarks/kills.py` does the same 200 times.
"""

import json
import os
from pathlib import Path

import pytest

from programs import run

SCRIPT = Path(__file__).parent.parent.parent / "benchmarks" / "kills.py"

pytest.importorskip("onnxscript")


@pytest.mark.slow
@pytest.mark.parametrize("area", ["search", "compressor", "training", "hago", "export", "storage"])
def test_killed_and_starved_runs_leave_what_undisturbed_ones_do(area: str, tmp_path: Path) -> None:
    seed = os.environ.get("NNCFX_KILLS_SEED", "0")
    # a process of its own: only one with a single thread can be forked
    run(tmp_path, SCRIPT, "--areas", area, "--kills", "3", "--errors", "4", "--seed", seed)


SPOILT = """
import json, sys
sys.path.insert(0, sys.argv[1])
import kills

def careless(folder):
    path = folder / "result.json"
    with path.open("a") as file:
        file.write("[1]")
    kills.OPERATIONS.step()

kills.AREAS = {"careless": careless}
kills.prepare()
print(json.dumps(kills.disturb("careless", kills=2, errors=0).faults))
"""


@pytest.mark.slow
def test_a_task_that_is_not_safe_is_seen(tmp_path: Path) -> None:
    (tmp_path / "spoilt.py").write_text(SPOILT)
    told = run(tmp_path, tmp_path / "spoilt.py", SCRIPT.parent).stdout
    assert any("result.json" in fault for fault in json.loads(told.splitlines()[-1]))
