"""The interface of a runtime: build a session, bind inputs, run, close."""

import abc
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from torch import nn
from typing_extensions import override

from nncfx.closing import Closing
from nncfx.errors import ArgumentError, require_truths
from nncfx.tracing import ExampleInputs

ModelSource: TypeAlias = nn.Module | str | os.PathLike[str]
"""A module, or the path of a file that a runtime reads."""

Outputs: TypeAlias = tuple[npt.NDArray[np.generic], ...]
"""The outputs of one call, in the model's order."""


@dataclass(frozen=True, kw_only=True)
class BuildOptions:
    """How a session is built.

    Attributes:
        threads: CPU threads that one call may use; None leaves the choice to the runtime.
        profile: record the time of every operation (slower; for `profile_layers`).
        settings: further settings, by the runtime's own names.
        cache: a folder for engines that are reused by later processes; ignored by runtimes without
            such engines.

    Raises:
        ArgumentError: `threads` is below 1.
    """

    threads: int | None = None
    profile: bool = False
    settings: tuple[tuple[str, str], ...] = ()
    cache: Path | None = None

    def __post_init__(self) -> None:
        """Check the number of threads; accept strings as paths."""
        require_truths(self)
        if self.cache is not None:
            object.__setattr__(self, "cache", Path(self.cache))
        if self.threads is not None and self.threads < 1:
            raise ArgumentError(
                f"threads is {self.threads}; a session needs at least 1. "
                "Leave it out to let the runtime choose."
            )


class Session(Closing):
    """A model that is ready to run; a context manager that closes itself.

    Attributes:
        in_one_thread: True if a call computes in one thread of this process, so that its CPU time
            is its time on an idle machine.
        byte_products: How bytes are multiplied, in words, if that depends on this CPU; else "".
        threads: CPU threads that a call may use; None if the runtime chooses.
    """

    in_one_thread: bool = False
    threads: int | None = None
    byte_products: str = ""

    @abc.abstractmethod
    def bind(self, inputs: ExampleInputs) -> Callable[[], object]:
        """Return a function that only runs the model on `inputs`.

        Inputs are checked and converted here, once, so that a timed call is only the model's. The
        result of the function is the runtime's own; `run` converts it.

        Raises:
            RuntimeFailure: names, number, shapes or types of `inputs` do not fit the model.
        """

    @abc.abstractmethod
    def as_arrays(self, outputs: Any) -> Outputs:  # noqa: ANN401 (each runtime has its own)
        """Return the result of a bound function as arrays, in the model's order of outputs."""

    @override
    @abc.abstractmethod
    def close(self) -> None:
        """Release all resources; the session cannot run afterwards. Closing twice is allowed."""

    def run(self, inputs: ExampleInputs) -> Outputs:
        """Return the outputs on `inputs`.

        Raises:
            RuntimeFailure: the inputs do not fit the model, or the runtime failed.
        """
        return self.as_arrays(self.bind(inputs)())


class Runtime(abc.ABC):
    """Base class of runtimes: one subclass, in one file, for each.

    Attributes:
        name: its name in the registry and in messages.
        reads_modules: True if `build` takes an `nn.Module`, False if it takes an ONNX file.
    """

    name: str
    reads_modules: bool

    @abc.abstractmethod
    def build(self, source: ModelSource, options: BuildOptions) -> Session:
        """Return a session for `source`.

        Raises:
            RuntimeFailure: the runtime rejects the model, or takes another kind of source.
            MissingExtraError: the runtime is not installed.
        """

    @abc.abstractmethod
    def version(self) -> str:
        """Return the installed version of the runtime.

        Raises:
            MissingExtraError: the runtime is not installed.
        """
