"""Run a model for information only: leave its flags, buffers and the random state as they were."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain

import torch
from torch import nn

__all__ = ["preserved"]


@contextmanager
def preserved(model: nn.Module, *, train: bool = False) -> Iterator[None]:
    """Put `model` in evaluation (or training) mode and, at the end, all as it was.

    Training flags are restored module by module, buffers by value and by identity, and the
    random state of the CPU and of the model's CUDA devices.
    """
    modules = list(model.modules())
    flags = [module.training for module in modules]
    buffers = [dict(module._buffers) for module in modules]  # noqa: SLF001 (rebinding must be seen)
    held = [
        one for one in chain.from_iterable(each.values() for each in buffers) if one is not None
    ]
    values = [(one, one.detach().clone()) for one in held if not one.is_meta]
    tensors = chain(model.parameters(), held)
    devices = sorted({one.device.index or 0 for one in tensors if one.device.type == "cuda"})
    with torch.random.fork_rng(devices=devices):
        try:
            for module in modules:
                module.training = train
            yield
        finally:
            for module, flag, own in zip(modules, flags, buffers, strict=True):
                module.training = flag
                module._buffers.clear()  # noqa: SLF001 (as above)
                module._buffers.update(own)  # noqa: SLF001 (as above)
            with torch.no_grad():
                for buffer, value in values:
                    # versions do not tell (batch norm leaves them alone), and writing to a buffer
                    # that did not change could break a backward pass that is still to come
                    if not torch.equal(buffer, value):
                        buffer.copy_(value)
