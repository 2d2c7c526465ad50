"""Whatever kills or starves a run, what it leaves in the end is as if nothing had.

`benchmarks/kills.py` does the same 200 times.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent.parent / "benchmarks" / "kills.py"

pytest.importorskip("onnxscript")


@pytest.mark.slow
@pytest.mark.parametrize("area", ["search", "compressor", "training", "hago", "export", "storage"])
def test_killed_and_starved_runs_leave_what_undisturbed_ones_do(area: str) -> None:
    seed = os.environ.get("NNCFX_KILLS_SEED", "0")
    command = ["--areas", area, "--kills", "3", "--errors", "4", "--seed", seed]
    # a process of its own: only one with a single thread can be forked
    done = subprocess.run(
        [sys.executable, SCRIPT, *command],
        timeout=900,
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr


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
def test_a_task_that_is_not_safe_is_seen() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SPOILT, SCRIPT.parent],
        timeout=300,
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert any("result.json" in fault for fault in json.loads(done.stdout.splitlines()[-1]))
