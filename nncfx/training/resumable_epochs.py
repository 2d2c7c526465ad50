"""Epochs of a user's own training loop that can be resumed after a kill."""

import contextlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, final

import torch
from typing_extensions import override

from nncfx.controllers import Controller
from nncfx.errors import ArgumentError, MachineError
from nncfx.locks import lock
from nncfx.narration import narrated
from nncfx.training.loop_checkpoint import HasState, TrainingFile, settings_text

_LOGGER: Final = logging.getLogger(__name__)
_HELD: Final[set[Path]] = set()
"""The locks of this process."""


def resumable_epochs(
    path: str | os.PathLike[str],
    epochs: int,
    controller: Controller,
    **parts: HasState | torch.Generator,
) -> Iterator[int]:
    """Yield 0 to `epochs` - 1, without those that ended before this script was killed.

    ```python
    for epoch in resumable_epochs("run.ckpt", 30, controller, optimizer=optimizer):
        controller.scheduler.epoch_step()
        ...
    ```

    After each epoch the states of the controller, of its model, of `parts` and of the random
    generators (torch's, numpy's and Python's global ones) are written to `path`, atomically. When
    started again, the script continues after the last written epoch, and ends with the same bits
    as without interruption; once all epochs are done, it gets the trained model and no epoch. An
    epoch that ends by `break` or by an error is not written, and reading the file executes no
    code.

    Args:
        path: The file; it is kept until you delete it.
        epochs: In total, 1 or more; with more than before, a finished training continues.
        controller: From `nncfx.create_compressed_model`, with the same config each time.
        parts: Everything else that the next epoch depends on, by name, each with a `state_dict`:
            the optimizer, a learning rate schedule, a gradient scaler, an average of weights; or
            your own `torch.Generator`, such as that of a loader.

    Raises:
        ArgumentError: `epochs` is less than 1, a part has no state, or several processes train
            together.
        StorageError: `path` cannot be written, is damaged, or belongs to another training.
        MachineError: another process trains on `path`.
    """
    if not isinstance(epochs, int) or epochs < 1:  # type: ignore[redundant-expr]  # swapped
        raise ArgumentError(
            f"epochs is {epochs!r}. Give how many there are in all, 1 or more: "
            "resumable_epochs(path, 30, controller, optimizer=optimizer)."
        )
    if Path(path).is_dir():
        raise ArgumentError(f"'{path}' is a folder. Name a file in it, such as run.ckpt.")
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        raise ArgumentError(
            "Several processes train together, and each would write the one file. Save with "
            "nncfx.save(path, model, controller) in each epoch, and start with nncfx.load."
        )
    if not any(isinstance(one, torch.optim.Optimizer) for one in parts.values()):
        _LOGGER.warning(
            "No optimizer is passed to resumable_epochs: after a kill, training would go on "
            "without its momentum and its learning rate. Pass optimizer=optimizer."
        )
    known: dict[str, HasState] = {"model": controller.model, "controller": controller}
    known |= {name: _with_state(name, part) for name, part in parts.items()}
    return _epochs(Path(path), epochs, known, settings_text(controller.configs))


def _with_state(name: str, part: HasState | torch.Generator) -> HasState:
    if isinstance(part, torch.Generator):
        return _Generator(part)
    if not callable(getattr(part, "load_state_dict", None)):
        raise ArgumentError(
            f"'{name}' is a {type(part).__name__}, which has no load_state_dict and could not be "
            "restored. Pass the optimizer, or what else keeps a state."
        )
    return part


@final
class _Generator(HasState):
    """Gives a generator the `HasState` interface."""

    def __init__(self, generator: torch.Generator) -> None:
        self._generator = generator

    @override
    def state_dict(self) -> dict[str, Any]:
        return {"state": self._generator.get_state()}

    @override
    def load_state_dict(self, state_dict: Any) -> None:
        self._generator.set_state(state_dict["state"])


def _epochs(path: Path, epochs: int, parts: dict[str, HasState], identity: str) -> Iterator[int]:
    with _alone(path):
        file = TrainingFile(path, identity)
        done = file.restore(parts)
        if done:
            with narrated("training") as narrator:
                told = f"{done} of {epochs} epochs were done: the state is that of '{path}'"
                narrator.found(told)
        if done < epochs:
            file.check()
        for epoch in range(done, epochs):
            yield epoch
            file.save(epoch + 1, parts)


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Keep other processes from training on `path`; the lock ends with this process.

    In the same process an earlier loop may still be alive, held by the traceback of an error.

    Raises:
        MachineError: another process trains on it.
    """
    file = path.with_name(f"{path.name}.lock").absolute()
    if file in _HELD:
        yield
        return
    with contextlib.ExitStack() as stack:
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            handle = stack.enter_context(file.open("wb"))
        except OSError:
            yield  # no other process can write here either; existing files can be read
            return
        if not lock(handle.fileno()):
            raise MachineError(
                f"Another process trains on '{path}', and the two would overwrite each other. "
                "Wait for it to end or stop it, or name another file."
            )
        _HELD.add(file)
        try:
            yield
        finally:
            _HELD.discard(file)
            file.unlink(missing_ok=True)
