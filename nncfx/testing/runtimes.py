"""The promises of every runtime, for runtimes of other packages and for nncfx's own.

Each promise is a function of a `RuntimeSubject` that raises `AssertionError` if it is broken.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import override

from nncfx.errors import RuntimeFailure
from nncfx.export import export_onnx
from nncfx.runtimes import BuildOptions, Runtime, Session
from nncfx.testing.refusals import check_refused

__all__ = ["RUNTIME_PROMISES", "RuntimeSubject"]

_ROUNDOFF: Final = 2e-5
"""Of float32: a unit roundoff of 6e-8 times a dot product of 216 terms."""


@dataclass(frozen=True, kw_only=True)
class RuntimeSubject:
    """A runtime, and the errors of its arithmetic.

    Attributes:
        runtime: The runtime.
        folder: The folder for the files of the suite's models, written once for all promises.
        options: How sessions are built.
        relative: The largest error, as a fraction of the largest output.
        batches: The batch sizes to test.
    """

    runtime: Runtime
    folder: Path
    options: BuildOptions = field(default_factory=lambda: BuildOptions(threads=1))
    relative: float = _ROUNDOFF
    batches: tuple[int, ...] = (1, 2, 7)

    def build(self, model: nn.Module, inputs: Tensor) -> Session:
        """Return a session of `model`."""
        source = model if self.runtime.reads_modules else self.file(model, inputs)
        return self.runtime.build(source, self.options)

    def file(self, model: nn.Module, inputs: Tensor) -> Path:
        """Return the ONNX file of `model`, with an open batch axis."""
        path = self.folder / f"{type(model).__name__}_{inputs.ndim}.onnx"
        if not path.exists():
            export_onnx(model, path, inputs)
        return path


def outputs_are_those_of_a_convolutional_model(subject: RuntimeSubject) -> None:
    _check_outputs(subject, _convolutional(), (3, 8, 8))


def outputs_are_those_of_a_recurrent_model(subject: RuntimeSubject) -> None:
    _check_outputs(subject, _Recurrent.fresh(), (6, 8))


def outputs_are_those_of_a_transformer(subject: RuntimeSubject) -> None:
    _check_outputs(subject, _Transformer.fresh(), (6, 8))


def outputs_of_one_call_outlive_the_next(subject: RuntimeSubject) -> None:
    with _session(subject) as session:
        (first,) = session.run(_images(2))
        kept = first.copy()
        session.run(_images(2) + 1)
        np.testing.assert_array_equal(first, kept)


def a_bound_call_can_be_repeated(subject: RuntimeSubject) -> None:
    with _session(subject) as session:
        call = session.bind(_images(2))
        first, second = (session.as_arrays(call()) for _ in range(2))
        np.testing.assert_array_equal(first[0], second[0])


def inputs_of_another_shape_are_refused_in_one_paragraph(subject: RuntimeSubject) -> None:
    with _session(subject) as session:
        inputs = torch.ones(2, 4, 8, 8)
        check_refused(lambda: session.run(inputs), RuntimeFailure, r"\A[^\n]+\s*\Z")


def a_closed_session_does_not_run(subject: RuntimeSubject) -> None:
    session = _session(subject)
    session.close()
    session.close()
    check_refused(lambda: session.run(_images(2)), RuntimeFailure, "The session is closed")


def the_wrong_kind_of_source_is_refused(subject: RuntimeSubject) -> None:
    model = _convolutional()
    source = subject.file(model, _images(2)) if subject.runtime.reads_modules else model
    words = f"Runtime '{subject.runtime.name}'"
    check_refused(lambda: subject.runtime.build(source, BuildOptions()), RuntimeFailure, words)


RUNTIME_PROMISES: Final[tuple[Callable[[RuntimeSubject], None], ...]] = (
    outputs_are_those_of_a_convolutional_model,
    outputs_are_those_of_a_recurrent_model,
    outputs_are_those_of_a_transformer,
    outputs_of_one_call_outlive_the_next,
    a_bound_call_can_be_repeated,
    inputs_of_another_shape_are_refused_in_one_paragraph,
    a_closed_session_does_not_run,
    the_wrong_kind_of_source_is_refused,
)
"""All promises; each is named after what it promises."""


def _images(batch: int) -> Tensor:
    return torch.randn(batch, 3, 8, 8, generator=torch.Generator().manual_seed(batch))


def _session(subject: RuntimeSubject) -> Session:
    return subject.build(_convolutional(), _images(2))


def _check_outputs(subject: RuntimeSubject, model: nn.Module, shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(1)
    with subject.build(model, torch.randn(2, *shape, generator=generator)) as session:
        for batch in subject.batches:
            inputs = torch.randn(batch, *shape, generator=generator)
            expected = model(inputs).detach().numpy()
            (output,) = session.run(inputs)
            limit = subject.relative * float(np.abs(expected).max())
            np.testing.assert_allclose(output.astype(np.float64), expected, rtol=0, atol=limit)


def _convolutional() -> nn.Module:
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.Conv2d(8, 6, 3),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(6 * 6 * 6, 5),
        ).eval()


class _Sequences(nn.Module):
    """Reads sequences of 6 x 8 numbers."""

    body: nn.Module
    head: nn.Module

    @classmethod
    def fresh(cls) -> "_Sequences":
        """Return the model with the same weights in every call, in evaluation mode."""
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(0)
            return cls().eval()

    @override
    def forward(self, x: Tensor) -> Tensor:
        found = self.body(x)
        steps = found[0] if isinstance(found, tuple) else found
        result: Tensor = self.head(steps[:, -1])
        return result


class _Recurrent(_Sequences):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.LSTM(8, 12, batch_first=True)
        self.head = nn.Linear(12, 5)


class _Transformer(_Sequences):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(8, 5)
