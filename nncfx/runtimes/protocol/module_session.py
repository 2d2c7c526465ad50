"""Sessions that run a module in this process, for eager and compiled PyTorch."""

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias, final

import torch
from torch import nn
from torch.utils import _pytree as pytree
from typing_extensions import override

from nncfx.errors import RuntimeFailure
from nncfx.runtimes.protocol.model_path import first_line
from nncfx.runtimes.protocol.runtime import BuildOptions, ModelSource, Outputs, Session
from nncfx.tracing import ExampleInputs, as_call

Arguments: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]
"""Positional and keyword arguments of one call."""

Forward: TypeAlias = Callable[..., object]
"""Computes the outputs from the arguments of a call."""

Prepare: TypeAlias = Callable[[nn.Module, Arguments], Forward]
"""Returns a function that runs a module on inputs of this kind; compiles if needed."""


@final
class ModuleSession(Session):
    """A module kept in eval mode until the session is closed, run without gradients.

    Nothing is copied. Each `bind` calls `prepare` once for the function of a bound call.
    """

    def __init__(self, model: nn.Module, options: BuildOptions, prepare: Prepare) -> None:
        """Switch `model` to eval mode; `close` restores its mode."""
        self._model: nn.Module | None = model
        self._threads = options.threads
        self._prepare = prepare
        self._trained = [module for module in model.modules() if module.training]
        self._on_cuda = any(tensor.is_cuda for tensor in model.parameters())
        self.threads = self._threads
        self.in_one_thread = self._threads == 1 and not self._on_cuda
        model.eval()

    @override
    def bind(self, inputs: ExampleInputs) -> Callable[[], object]:
        model, on_cuda, threads = self._model, self._on_cuda, self._threads
        if model is None:
            raise RuntimeFailure("The session is closed; build another one.")
        args, kwargs = as_call(inputs)
        told = _told(model, "does not compile for")
        # torch's compiler warns about its own code
        unwarned = warnings.catch_warnings(action="ignore")
        with told, unwarned, torch.inference_mode(), _threads(threads):
            forward = self._prepare(model, (args, dict(kwargs)))

        def call() -> object:
            with _told(model, "does not run on"), torch.inference_mode(), _threads(threads):
                output = forward(*args, **kwargs)
                if on_cuda:
                    torch.cuda.synchronize()
                return output

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


def module_of(source: ModelSource, runtime: str) -> nn.Module:
    """Return `source` as a module.

    Raises:
        RuntimeFailure: it is a path.
    """
    if not isinstance(source, nn.Module):
        raise RuntimeFailure(
            f"Runtime '{runtime}' takes an nn.Module, and '{source}' is a path. "
            "Give the module, or another runtime."
        )
    return source


@contextlib.contextmanager
def _told(model: nn.Module, fault: str) -> Iterator[None]:
    try:
        yield
    except RuntimeFailure:
        raise
    except Exception as error:
        raise RuntimeFailure(
            f"{type(model).__name__} {fault} these inputs: "
            f"{type(error).__name__}: {first_line(error) or 'no text'}"
        ) from error


@contextlib.contextmanager
def _threads(threads: int | None) -> Iterator[None]:
    """Set torch's threads during a call; torch has one setting per process."""
    before = torch.get_num_threads()
    if threads is None or threads == before:
        yield
        return
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
