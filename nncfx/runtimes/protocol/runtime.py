"""The protocol of a runtime: build a session, bind inputs, run, close."""

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
from nncfx.errors import ArgumentError
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
        settings: further settings, by the runtime's own names for them.
        cache: a folder where engines are kept between processes; runtimes that build nothing
            which outlives the process have no use for it.

    Raises:
        ArgumentError: `threads` is below 1.
    """

    threads: int | None = None
    profile: bool = False
    settings: tuple[tuple[str, str], ...] = ()
    cache: Path | None = None

    def __post_init__(self) -> None:
        """Refuse a number of threads that no runtime has; take texts for paths."""
        if self.cache is not None:
            object.__setattr__(self, "cache", Path(self.cache))
        if self.threads is not None and self.threads < 1:
            raise ArgumentError(
                f"threads is {self.threads}; a session needs at least 1. "
                "Leave it out to let the runtime choose."
            )


class Session(Closing):
    """A model made ready to run; a context manager that closes itself.

    Attributes:
        in_one_thread: True where a call computes in one thread of this process, so that its CPU
            time is what it takes on an idle machine.
        byte_products: How bytes are multiplied, in words, where that was chosen by the CPU at
            hand; "" where it was not.
        threads: CPU threads that a call may use; None where the runtime chooses.
    """

    in_one_thread: bool = False
    threads: int | None = None
    byte_products: str = ""

    @abc.abstractmethod
    def bind(self, inputs: ExampleInputs) -> Callable[[], object]:
        """Return a function that runs the model on `inputs` and does nothing else.

        Checks and conversions are made here, once, so that a timed call is the model's alone.
        What the function returns is the runtime's own; `run` converts it.

        Raises:
            RuntimeFailure: names, number, shapes or types of `inputs` are not the model's.
        """

    @abc.abstractmethod
    def as_arrays(self, outputs: Any) -> Outputs:  # noqa: ANN401 (each runtime has its own)
        """Return what a bound function returned as arrays, in the model's order of outputs."""

    @override
    @abc.abstractmethod
    def close(self) -> None:
        """Free what the session holds; it cannot run afterwards. Closing twice is harmless."""

    def run(self, inputs: ExampleInputs) -> Outputs:
        """Return the outputs on `inputs`.

        Raises:
            RuntimeFailure: the inputs are not the model's, or the runtime refused the call.
        """
        return self.as_arrays(self.bind(inputs)())


class Runtime(abc.ABC):
    """What runs models: one subclass, in one file, for each.

    Attributes:
        name: how the registry and every message call it.
        reads_modules: True where `build` takes an `nn.Module`, False where it takes an ONNX file.
    """

    name: str
    reads_modules: bool

    @abc.abstractmethod
    def build(self, source: ModelSource, options: BuildOptions) -> Session:
        """Return a session for `source`.

        Raises:
            RuntimeFailure: the runtime refuses the model, or takes another kind of source.
            MissingExtraError: the runtime is not installed.
        """

    @abc.abstractmethod
    def version(self) -> str:
        """Return the version of the runtime that is installed.

        Raises:
            MissingExtraError: the runtime is not installed.
        """
