"""What every runtime promises; a runtime that is not installed is skipped and says so."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from nncfx.errors import MissingExtraError
from nncfx.runtimes import RUNTIMES, BuildOptions
from nncfx.testing import RUNTIME_PROMISES, RuntimeSubject

# TensorRT computes float32 in TF32, which keeps 10 bits: a roundoff of 5e-4, some of it averaged.
RELATIVE_TF32 = 5e-3
# Compiling takes seconds, and a C++ compiler: one batch each; their own tests compile for another.
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


@pytest.fixture(params=ALL)
def subject(request: pytest.FixtureRequest, kept: Path) -> RuntimeSubject:
    runtime = RUNTIMES[request.param]
    try:
        runtime.version()
    except MissingExtraError as error:
        pytest.skip(str(error))
    found = RuntimeSubject(
        runtime=runtime, folder=kept, options=BuildOptions(threads=1, cache=kept)
    )
    if runtime.name in NEEDS_GPU:
        if not torch.cuda.is_available():
            pytest.skip(f"running an engine of {runtime.name} needs an NVIDIA GPU")
        return dataclasses.replace(found, relative=RELATIVE_TF32)
    return dataclasses.replace(found, batches=(2,)) if runtime.name in SLOW else found


@pytest.mark.parametrize("promise", RUNTIME_PROMISES, ids=lambda one: one.__name__)
def test_it_keeps_its_promise(
    subject: RuntimeSubject, promise: Callable[[RuntimeSubject], None]
) -> None:
    promise(subject)
