"""PyTorch itself, eager, on the device where the model is."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree
from typing_extensions import override

from nncfx.errors import RuntimeFailure
from nncfx.runtimes.runtime import BuildOptions, ModelSource, Outputs, Runtime, Session
from nncfx.tracing import ExampleInputs, as_call

__all__ = ["TorchEager", "TorchEagerSession"]


class TorchEager(Runtime):
    """PyTorch in eager mode; takes modules."""

    name = "torch"
    reads_modules = True

    @override
    def build(self, source: ModelSource, options: BuildOptions) -> "TorchEagerSession":
        if not isinstance(source, nn.Module):
            raise RuntimeFailure(
                f"Runtime 'torch' takes an nn.Module, and '{source}' is a path. "
                "Give the module, or another runtime.",
            )
        if options.profile or options.settings:
            raise RuntimeFailure(
                "Runtime 'torch' has neither a profile nor settings of its own; leave them out.",
            )
        return TorchEagerSession(source, options)

    @override
    def version(self) -> str:
        return torch.__version__


class TorchEagerSession(Session):
    """A module held in eval mode until the session is closed, run without gradients."""

    def __init__(self, model: nn.Module, options: BuildOptions) -> None:
        """Put `model` into eval mode; nothing is copied, and `close` puts its mode back."""
        self._model: nn.Module | None = model
        self._threads = options.threads
        self._trained = [module for module in model.modules() if module.training]
        self._on_cuda = any(tensor.is_cuda for tensor in model.parameters())
        model.eval()

    @override
    def bind(self, inputs: ExampleInputs) -> Callable[[], object]:
        model, on_cuda, threads = self._model, self._on_cuda, self._threads
        if model is None:
            raise RuntimeFailure("The session is closed; build another one.")
        args, kwargs = as_call(inputs)

        def call() -> object:
            try:
                with torch.inference_mode(), _threads(threads):
                    output = model(*args, **kwargs)
                    if on_cuda:
                        torch.cuda.synchronize()
                    return output
            except Exception as error:
                raise RuntimeFailure(
                    f"{type(model).__name__} does not run on these inputs: "
                    f"{type(error).__name__}: {error}",
                ) from error

        return call

    @override
    def as_arrays(self, outputs: Any) -> Outputs:
        leaves = pytree.tree_leaves(outputs)
        return tuple(leaf.cpu().numpy() for leaf in leaves if isinstance(leaf, torch.Tensor))

    @override
    def close(self) -> None:
        for module in self._trained:
            module.training = True
        self._trained = []
        self._model = None


@contextlib.contextmanager
def _threads(threads: int | None) -> Iterator[None]:
    """Set torch's threads for the time of a call; torch keeps one number for the process."""
    before = torch.get_num_threads()
    if threads is None or threads == before:
        yield
        return
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
