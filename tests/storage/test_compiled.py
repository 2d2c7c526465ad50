"""Without numba, long work is told before it is done."""

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

import nncfx
from nncfx.storage import compiled


@pytest.mark.parametrize(
    ("is_compiled", "count", "told"),
    [(False, 1_000_000, ["1,000,000 numbers"]), (False, 1_000, []), (True, 1_000_000, [])],
)
def test_slow_decoding_is_told_with_its_fix(
    count: int,
    told: list[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    *,
    is_compiled: bool,
) -> None:
    monkeypatch.setattr(compiled, "IS_COMPILED", is_compiled)
    with caplog.at_level(logging.WARNING):
        compiled.warn_slow(count)
    assert [one[:17] for one in caplog.messages] == told
    assert all("some 100 s" in one and "nncfx[codec]" in one for one in caplog.messages)


SAVED_AND_READ = """
import sys
import torch, nncfx
net = torch.nn.Linear(64, 64)
nncfx.storage.save("net.nncfx", net, mode="fast")
nncfx.load("net.nncfx", torch.nn.Linear(64, 64))
print("nncfx.storage.codecs.tensor_kernel" in sys.modules)
"""


@pytest.mark.slow
@pytest.mark.skipif(not compiled.IS_COMPILED, reason="needs numba")
def test_a_small_file_has_nothing_compiled_but_takes_what_is(tmp_path: Path) -> None:
    environment = os.environ | {
        "NUMBA_CACHE_DIR": str(tmp_path / "cache"),
        "NUMBA_DISABLE_JIT": "1",  # what is taken is seen, and need not be compiled
        "PYTHONPATH": str(Path(nncfx.__file__).parents[1]),
    }

    def run() -> str:
        done = subprocess.run(
            [sys.executable, "-c", SAVED_AND_READ],
            cwd=tmp_path, env=environment, capture_output=True, text=True, check=True,
        )  # fmt: skip
        return done.stdout.strip()

    assert run() == "False"
    (tmp_path / "cache" / "codecs").mkdir(parents=True)
    (tmp_path / "cache" / "codecs" / "tensor_kernel.decode_tensor-1.py311.nbi").touch()
    assert run() == "True"
