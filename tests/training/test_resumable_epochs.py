"""The epochs of a user's own loop."""

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import nncfx
import programs
from nncfx.controllers import Controller
from nncfx.errors import ArgumentError, MachineError, StorageError
from nncfx.training import resumable_epochs

QUANTIZED_AND_SPARSE = {
    "compression": [
        {"algorithm": "quantization"},
        {
            "algorithm": "magnitude_sparsity",
            "params": {"sparsity_target": 0.6, "sparsity_target_epoch": 3, "schedule": "cubic"},
        },
    ]
}


def made(config: dict[str, Any] = QUANTIZED_AND_SPARSE) -> Controller:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.3), nn.Flatten(),
        nn.Linear(64, 3),
    )  # fmt: skip
    x = torch.randn(1, 1, 6, 6, generator=torch.Generator().manual_seed(1))
    batches = [torch.randn(8, 1, 6, 6, generator=torch.Generator().manual_seed(2))]
    return nncfx.create_compressed_model(model, config, x, calibration_batches=batches)[0]


class KilledError(Exception):
    """Stands for a kill: nothing is run behind it."""


def trained(
    path: Path, seed: int, killed_in: int | None = None
) -> tuple[list[int], dict[str, torch.Tensor]]:
    """Train for five epochs, drawing from all three generators; return epochs and the end."""
    controller = made()
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 (what augmentations use)
    optimizer = torch.optim.Adam(controller.parameter_groups(1e-2))
    rate = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 5)
    seen = []
    for epoch in resumable_epochs(path, 5, controller, optimizer=optimizer, rate=rate):
        seen.append(epoch)
        controller.scheduler.epoch_step()
        for step in range(3):
            if epoch == killed_in and step == 1:
                raise KilledError
            controller.scheduler.step()
            scale = random.random() + np.random.random()  # noqa: NPY002, S311 (as above)
            out = controller.model(torch.randn(8, 1, 6, 6) * scale)
            loss = nn.functional.cross_entropy(out, torch.arange(8) % 3) + controller.loss()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        rate.step()
    return seen, controller.model.state_dict()


@pytest.mark.parametrize("killed_in", [0, 1, 4])
def test_a_killed_loop_ends_with_the_bits_of_a_whole_one(tmp_path: Path, killed_in: int) -> None:
    epochs, wanted = trained(tmp_path / "whole", 7)
    assert epochs == [0, 1, 2, 3, 4]
    with pytest.raises(KilledError):
        trained(tmp_path / "killed", 7, killed_in)
    seed = 99 if killed_in else 7  # without a file the script's own seed decides
    epochs, found = trained(tmp_path / "killed", seed)
    assert epochs == list(range(killed_in, 5))
    assert all(torch.equal(one, found[name]) for name, one in wanted.items())
    epochs, found = trained(tmp_path / "killed", 99)
    assert epochs == []
    assert all(torch.equal(one, found[name]) for name, one in wanted.items())


def test_more_epochs_go_on_from_the_end(tmp_path: Path) -> None:
    controller = made()
    assert list(resumable_epochs(tmp_path / "run", 2, controller)) == [0, 1]
    assert list(resumable_epochs(tmp_path / "run", 3, controller)) == [2]


def test_an_epoch_that_breaks_off_is_not_written(tmp_path: Path) -> None:
    controller = made()
    for epoch in resumable_epochs(tmp_path / "run", 3, controller):
        if epoch == 1:
            break
    assert list(resumable_epochs(tmp_path / "run", 3, controller)) == [1, 2]


def test_another_config_is_refused(tmp_path: Path) -> None:
    list(resumable_epochs(tmp_path / "run", 1, made()))
    other = made({"compression": {"algorithm": "magnitude_sparsity"}})
    with pytest.raises(StorageError, match=r"it had .*\.schedule = 'cubic'.*, and now .*default"):
        list(resumable_epochs(tmp_path / "run", 1, other))
    with pytest.raises(StorageError, match="the state of a training"):
        nncfx.load(tmp_path / "run", nn.Linear(2, 2))


def test_forgotten_parts_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    controller = made()
    optimizer = torch.optim.SGD(controller.parameter_groups(0.1))
    assert list(resumable_epochs(tmp_path / "run", 1, controller, optimizer=optimizer)) == [0]
    assert "No optimizer" not in caplog.text
    with pytest.raises(StorageError, match=r"controller, model, optimizer, not of"):
        list(resumable_epochs(tmp_path / "run", 2, controller))
    assert "No optimizer is passed" in caplog.text


def test_a_generator_of_ones_own_goes_on(tmp_path: Path) -> None:
    controller, generator = made(), torch.Generator().manual_seed(3)
    drawn = [
        torch.rand(2, generator=generator)
        for _ in resumable_epochs(tmp_path / "run", 2, controller, generator=generator)
    ]
    other = torch.Generator().manual_seed(9)
    for _ in resumable_epochs(tmp_path / "run", 3, controller, generator=other):
        after = torch.rand(2, generator=other)
    wanted = torch.Generator().manual_seed(3)
    whole = [torch.rand(2, generator=wanted) for _ in range(3)]
    assert all(torch.equal(*pair) for pair in zip([*drawn, after], whole, strict=True))


def test_what_cannot_be_is_refused_before_the_first_epoch(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="epochs is 0"):
        resumable_epochs(tmp_path / "run", 0, made())
    with pytest.raises(ArgumentError, match="is a folder"):
        resumable_epochs(tmp_path, 1, made())
    with pytest.raises(ArgumentError, match="epochs is 'run'"):
        resumable_epochs(1, "run", made())  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="'rate' is a float"):
        resumable_epochs(tmp_path / "run", 1, made(), rate=0.1)  # type: ignore[arg-type]


def test_a_path_that_cannot_be_written_is_refused_before_the_first_epoch(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="cannot be written"):
        next(resumable_epochs(tmp_path / "file" / "run", 2, made()))


def test_several_processes_are_refused(tmp_path: Path) -> None:
    code = f"""
import torch, nncfx
torch.distributed.init_process_group(
    "gloo", init_method="file://{tmp_path}/group", rank=0, world_size=1
)
config = {{"compression": {{"algorithm": "magnitude_sparsity"}}}}
controller, _ = nncfx.create_compressed_model(torch.nn.Linear(2, 2), config, torch.ones(1, 2))
try:
    nncfx.training.resumable_epochs("run", 1, controller)
except nncfx.errors.ArgumentError as error:
    print(error)
torch.distributed.destroy_process_group()
"""
    (tmp_path / "script.py").write_text(code)
    done = programs.run(tmp_path, tmp_path / "script.py")
    assert "Several processes train together" in done.stdout


def test_a_file_on_which_another_process_trains_is_refused(tmp_path: Path) -> None:
    path, code = tmp_path / "run", "import fcntl, sys; f = open(sys.argv[1], 'wb'); "
    code += "fcntl.flock(f, fcntl.LOCK_EX); print('held', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", code, f"{path}.lock"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        with pytest.raises(MachineError, match=r"Another process trains on '.*run', and the two"):
            list(resumable_epochs(path, 1, made()))
        other.communicate()
    epochs = resumable_epochs(path, 2, made())
    assert next(epochs) == 0
    # in a notebook, the loop that an error ended is alive still
    assert list(resumable_epochs(path, 1, made())) == [0]
    epochs.close()
    assert [one.name for one in tmp_path.iterdir()] == ["run"]
