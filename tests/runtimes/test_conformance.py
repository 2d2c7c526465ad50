"""What every runtime promises; a runtime that is not installed is skipped and says so."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from nncfx.errors import MissingExtraError, RuntimeFailure
from nncfx.export import ExportResult
from nncfx.runtimes import RUNTIMES, BuildOptions, Runtime, Session

# float32: a unit roundoff of 6e-8 times a dot product of 216 terms.
RELATIVE = 2e-5
# TensorRT computes float32 in TF32, which keeps 10 bits: a roundoff of 5e-4, some of it averaged.
RELATIVE_TF32 = 5e-3


# Compiling takes seconds, and a C++ compiler.
SLOW = ("aot_inductor", "torch_compile")
NEEDS_GPU = ("tensorrt", "tensorrt_rtx")
ALL = [
    pytest.param(
        name,
        marks=[
            *([pytest.mark.slow] if name in SLOW else ()),
            *([pytest.mark.gpu] if name in NEEDS_GPU else ()),
        ],
    )
    for name in sorted(RUNTIMES)
]


def tolerance(runtime: Runtime, expected: np.ndarray) -> float:
    """The largest absolute difference that the runtime's arithmetic explains."""
    relative = RELATIVE_TF32 if runtime.name in NEEDS_GPU else RELATIVE
    return relative * float(np.abs(expected).max())


@pytest.fixture(params=ALL)
def runtime(request: pytest.FixtureRequest) -> Runtime:
    found = RUNTIMES[request.param]
    try:
        found.version()
    except MissingExtraError as error:
        pytest.skip(str(error))
    return found


@pytest.fixture
def options(runtime: Runtime, kept: Path) -> BuildOptions:
    if runtime.name in NEEDS_GPU and not torch.cuda.is_available():
        pytest.skip(f"running an engine of {runtime.name} needs an NVIDIA GPU")
    return BuildOptions(threads=1, cache=kept)


@pytest.fixture
def session(
    runtime: Runtime,
    options: BuildOptions,
    model: nn.Module,
    exported: ExportResult,
) -> Iterator[Session]:
    source = model if runtime.reads_modules else exported
    with runtime.build(source, options) as built:
        yield built


def test_outputs_are_the_models_for_any_batch(
    runtime: Runtime,
    session: Session,
    model: nn.Module,
) -> None:
    for batch in (1, 2) if runtime.name in SLOW else (1, 2, 7):
        inputs = torch.randn(batch, 3, 8, 8)
        expected = model(inputs).detach().numpy()
        (output,) = session.run(inputs)
        np.testing.assert_allclose(output, expected, atol=tolerance(runtime, expected))


def test_outputs_of_sequence_models_are_theirs(
    runtime: Runtime,
    options: BuildOptions,
    architecture: tuple[nn.Module, ExportResult],
) -> None:
    model, file = architecture
    with runtime.build(model if runtime.reads_modules else file, options) as session:
        for batch in (2,) if runtime.name in SLOW else (2, 3):
            inputs = torch.randn(batch, 6, 8)
            expected = model(inputs).detach().numpy()
            (output,) = session.run(inputs)
            np.testing.assert_allclose(output, expected, atol=tolerance(runtime, expected))


def test_outputs_of_one_call_outlive_the_next(session: Session, inputs: torch.Tensor) -> None:
    (first,) = session.run(inputs)
    kept = first.copy()
    session.run(inputs + 1)
    np.testing.assert_array_equal(first, kept)


def test_a_bound_call_can_be_repeated(session: Session, inputs: torch.Tensor) -> None:
    call = session.bind(inputs)
    first, second = (session.as_arrays(call()) for _ in range(2))
    np.testing.assert_array_equal(first[0], second[0])


def test_inputs_of_another_shape_are_refused_in_one_paragraph(session: Session) -> None:
    with pytest.raises(RuntimeFailure) as caught:
        session.run(torch.ones(2, 4, 8, 8))
    assert "\n" not in str(caught.value).strip()


def test_a_closed_session_does_not_run(session: Session, inputs: torch.Tensor) -> None:
    session.close()
    session.close()
    with pytest.raises(RuntimeFailure, match="The session is closed"):
        session.run(inputs)


def test_the_wrong_kind_of_source_is_refused(
    runtime: Runtime,
    model: nn.Module,
    exported: ExportResult,
) -> None:
    source = exported if runtime.reads_modules else model
    with pytest.raises(RuntimeFailure, match=f"Runtime '{runtime.name}'"):
        runtime.build(source, BuildOptions())
