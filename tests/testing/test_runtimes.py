"""The suite of runtimes has teeth: a sound toy passes, and broken ones are caught."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from typing_extensions import override

import nncfx
from nncfx.errors import RuntimeFailure
from nncfx.runtimes import BuildOptions, Runtime, Session
from nncfx.runtimes.backends.torch_eager import TorchEager
from nncfx.runtimes.protocol.runtime import ModelSource, Outputs
from nncfx.testing import RUNTIME_PROMISES, RuntimeSubject
from nncfx.tracing import ExampleInputs

BY_NAME = {promise.__name__: promise for promise in RUNTIME_PROMISES}


class ToySession(Session):
    def __init__(self, session: Session) -> None:
        self.session = session
        self.buffers: dict[tuple[int, ...], np.ndarray] = {}
        self.calls = 0

    @override
    def bind(self, inputs: ExampleInputs) -> Callable[[], object]:
        return self.session.bind(inputs)

    @override
    def as_arrays(self, outputs: Any) -> Outputs:
        return self.session.as_arrays(outputs)

    @override
    def close(self) -> None:
        self.session.close()


class Rounds(ToySession):
    """Computes in half precision."""

    @override
    def as_arrays(self, outputs: Any) -> Outputs:
        return tuple(one.astype(np.float16) for one in super().as_arrays(outputs))


class Reuses(ToySession):
    """Writes the outputs of every call into the same memory."""

    @override
    def as_arrays(self, outputs: Any) -> Outputs:
        (output,) = super().as_arrays(outputs)
        kept = self.buffers.setdefault(output.shape, output)
        kept[...] = output
        return (kept,)


class Drifts(ToySession):
    """Changes what it gives with every call."""

    @override
    def as_arrays(self, outputs: Any) -> Outputs:
        self.calls += 1
        return tuple(one + self.calls for one in super().as_arrays(outputs))


class TalksOn(ToySession):
    """Hands on the error of what is below, with its lines."""

    @override
    def bind(self, inputs: ExampleInputs) -> Callable[[], object]:
        try:
            self.session.run(inputs)
        except RuntimeFailure as error:
            raise RuntimeFailure(f"{error}\nsee above") from error
        return self.session.bind(inputs)


class StaysOpen(ToySession):
    @override
    def close(self) -> None: ...


class Toy(Runtime):
    name = "toy"
    reads_modules = True

    def __init__(self, session: type[ToySession], *, takes_all: bool = False) -> None:
        self.session, self.takes_all = session, takes_all

    @override
    def build(self, source: ModelSource, options: BuildOptions) -> Session:
        if not isinstance(source, nn.Module):
            if self.takes_all:
                source = nn.Identity()
            else:
                raise RuntimeFailure(f"Runtime 'toy' takes modules, not '{source}'. Give one.")
        return self.session(TorchEager().build(source, options))

    @override
    def version(self) -> str:
        return "1"


def test_a_runtime_of_ones_own_is_timed() -> None:
    timing = nncfx.benchmark(nn.Linear(3, 3), torch.ones(1, 3), Toy(ToySession), seconds=0.01)
    assert timing.median_ms > 0


TEETH = {
    "outputs_are_those_of_a_convolutional_model": Toy(Rounds),
    "outputs_are_those_of_a_recurrent_model": Toy(Rounds),
    "outputs_are_those_of_a_transformer": Toy(Rounds),
    "outputs_of_one_call_outlive_the_next": Toy(Reuses),
    "a_bound_call_can_be_repeated": Toy(Drifts),
    "inputs_of_another_shape_are_refused_in_one_paragraph": Toy(TalksOn),
    "a_closed_session_does_not_run": Toy(StaysOpen),
    "the_wrong_kind_of_source_is_refused": Toy(ToySession, takes_all=True),
}


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_a_sound_toy_runtime_keeps_it_and_a_broken_one_is_caught(
    name: str, tmp_path: Path
) -> None:
    BY_NAME[name](RuntimeSubject(runtime=Toy(ToySession), folder=tmp_path))
    with pytest.raises(AssertionError):
        BY_NAME[name](RuntimeSubject(runtime=TEETH[name], folder=tmp_path))
