"""The epochs of a user's own loop, which a kill cannot hurt."""

import os
from collections.abc import Iterator
from pathlib import Path

import torch

from nncfx.controllers import Controller
from nncfx.errors import ArgumentError
from nncfx.narration import narrated
from nncfx.training.loop_checkpoint import HasState, TrainingFile

__all__ = ["resumable_epochs"]


def resumable_epochs(
    path: str | os.PathLike[str], epochs: int, controller: Controller, **parts: HasState
) -> Iterator[int]:
    """Yield 0 to `epochs` - 1, without those that ended before this script was killed.

    ```python
    for epoch in resumable_epochs("run.ckpt", 30, controller, optimizer=optimizer):
        controller.scheduler.epoch_step()
        ...
    ```

    After each epoch the states of the controller, of its model, of `parts` and of the random
    generators (torch, numpy, Python) are written to `path`, whole or not at all. Started again,
    the script goes on behind the last epoch that was written, and ends with the bits that it would
    have ended with; once all epochs are done, it gets the trained model and no epoch. An epoch
    that ends by `break` or by an error is not written, and nothing in the file is executed.

    Args:
        path: The file; it stays until it is deleted.
        epochs: In all, 1 or more; with more than before, a training that ended goes on.
        controller: Of `nncfx.create_compressed_model`, from the same config each time.
        parts: Whatever else the next epoch depends on, by name, each with a `state_dict`: the
            optimizer, a schedule of the learning rate, a gradient scaler, an average of weights.

    Raises:
        ArgumentError: `epochs` is less than 1, a part has no `state_dict`, or several processes
            train together.
        StorageError: `path` cannot be written, is damaged, or is of another training.
    """
    if epochs < 1:
        raise ArgumentError(f"epochs is {epochs}. Give how many there are in all, 1 or more.")
    for name, part in parts.items():
        if not callable(getattr(part, "load_state_dict", None)):
            raise ArgumentError(
                f"'{name}' is a {type(part).__name__}, which has no load_state_dict and could not "
                "be restored. Pass the optimizer, or what else keeps a state.",
            )
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        raise ArgumentError(
            "Several processes train together, and each would write the one file. Save with "
            "nncfx.save(path, model, controller) in each epoch, and start with nncfx.load.",
        )
    known: dict[str, HasState] = {"model": controller.model, "controller": controller}
    return _epochs(Path(path), epochs, known | parts, repr(controller.configs))


def _epochs(path: Path, epochs: int, parts: dict[str, HasState], identity: str) -> Iterator[int]:
    file = TrainingFile(path, identity)
    done = file.restore(parts)
    if done:
        with narrated("training") as narrator:
            narrator.found(f"{done} of {epochs} epochs were done: the state is that of '{path}'")
    for epoch in range(done, epochs):
        yield epoch
        file.save(epoch + 1, parts)
