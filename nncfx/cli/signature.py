"""Builds inputs from the signature of an ONNX file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, TypeAlias, cast, runtime_checkable

import torch

from nncfx.errors import ArgumentError, RuntimeFailure, did_you_mean
from nncfx.runtimes import Session
from nncfx.runtimes.protocol.named_inputs import InputSpec

Shape: TypeAlias = tuple[int, ...]
"""Sizes of all axes."""


@runtime_checkable
class _Described(Protocol):
    """A session that knows the signature of its model, like all that read files."""

    inputs: tuple[InputSpec, ...]


def signature_inputs(
    session: Session, path: Path, shapes: Mapping[str, Shape], batch: int | None
) -> dict[str, torch.Tensor]:
    """Return inputs for the model's signature: random floats, zeros for integers and flags.

    `shapes` by input name set open axes (`""` names the only input). If axis 0 is open, it is
    `batch`; if that is None, the value in `shapes`, or else 1.

    Raises:
        ArgumentError: `shapes` names an unknown input, an axis remains open, or the batch is fixed
            and differs from `batch`.
        RuntimeFailure: the inputs do not fit into memory.
    """
    assert isinstance(session, _Described)  # noqa: S101 (all sessions that read files are)
    names = [spec.name for spec in session.inputs]
    given = {name or names[0]: shape for name, shape in shapes.items()}
    for name in given:
        if name not in names or ("" in shapes and len(names) > 1):
            raise ArgumentError(
                f"--input-shape names {f'input {name!r}' if name in shapes else 'no input'}; the "
                f"inputs of '{path}' are {', '.join(names)}.{did_you_mean(name, names)}"
            )
    generator = torch.Generator().manual_seed(0)
    inputs = {
        spec.name: _filled(spec, _settled(spec, path, given.get(spec.name), batch), generator)
        for spec in session.inputs
    }
    fixed = session.inputs[0].shape[0] if session.inputs[0].shape else None
    if batch is not None and fixed not in (None, batch):
        raise ArgumentError(
            f"'{path}' computes batches of {fixed} and no others, so --batch {batch} cannot be. "
            "Leave --batch out, or export the model with an open batch."
        )
    return inputs


def _settled(spec: InputSpec, path: Path, given: Shape | None, batch: int | None) -> Shape:
    if given:
        is_open = bool(spec.shape) and spec.shape[0] is None
        return given if batch is None or not is_open else (batch, *given[1:])
    sizes = [
        batch or 1 if axis == 0 and size is None else size for axis, size in enumerate(spec.shape)
    ]
    if None in sizes:
        spelt = "x".join("?" if size is None else str(size) for size in sizes)
        raise ArgumentError(
            f"Input '{spec.name}' of '{path}' has open axes: {spelt}. Fix them with "
            f"--input-shape {spec.name}=... and a number for each."
        )
    return cast("Shape", tuple(sizes))


def _filled(spec: InputSpec, shape: Shape, generator: torch.Generator) -> torch.Tensor:
    dtype = getattr(torch, spec.dtype)
    try:
        if dtype.is_floating_point:
            return torch.randn(shape, generator=generator, device="cpu").to(dtype)
        return torch.zeros(shape, dtype=dtype, device="cpu")
    except (RuntimeError, MemoryError) as error:
        raise RuntimeFailure(
            f"Input '{spec.name}' of shape {'x'.join(map(str, shape))} does not fit into memory. "
            "Take a smaller --batch or --input-shape."
        ) from error
