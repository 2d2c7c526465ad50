"""Checks that a thinned model computes the same as the masked one."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from types import MappingProxyType
from typing import Final, TypeAlias

import numpy as np
import torch
from torch import nn

from nncfx.channels.masked_norms import LivingChannels
from nncfx.channels.trace import CALLS_OF_A_PATH
from nncfx.errors import ThinningError, TracingError, error_text, machine_fault
from nncfx.float64 import float64_device, in_float64
from nncfx.graph.union_find import Ids
from nncfx.thinning.proof_inputs import EmbeddingRows, random_inputs
from nncfx.tracing import ExampleInputs, run
from nncfx.tracing.calls.model_copy import copied
from nncfx.tracing.calls.preservation import preserved
from nncfx.tracing.calls.tensors import replaced, tensors_in
from nncfx.tracing.record.function_mode import watch_shapes

Dead: TypeAlias = Mapping[int, tuple[int, Ids]]
Proof: TypeAlias = tuple[ExampleInputs, list[torch.Tensor]]

# Sums over fewer terms are rounded differently. These limits leave room for sums of some
# thousands of terms; half precision has 11 or 8 bits, hence 2^-7 and 2^-4.
_TOLERANCES = {
    torch.float64: 1e-12,
    torch.float32: 1e-5,
    torch.float16: 2.0**-7,
    torch.bfloat16: 2.0**-4,
}


_ROUNDED: Final = 1e-2
"""Beyond this error in float32, rounding is not accepted as the cause."""

_FINER: Final = 2.0**-20
"""Rounding shrinks by 2^-29 from float32 (24 bits) to float64 (53 bits); a difference stays."""


class _Difference(ThinningError):  # noqa: N818 (named after the finding)
    """Outputs differ by more than the tolerance.

    Attributes:
        error: the largest relative error.
        limit: the tolerance.
    """

    def __init__(self, error: float, limit: float, more: str = "") -> None:
        super().__init__(
            f"The thinned model differs from the masked one by {error:.1e}, relative to the "
            f"largest output; {limit:.1e} is the tolerance.{more}"
        )
        self.error, self.limit = error, limit


class NothingProven(ThinningError):  # noqa: N818 (named after the finding)
    """The compared outputs prove nothing."""


class ConstantOutputs(NothingProven):
    """All outputs are one number, such as zero, for all inputs.

    Attributes:
        what: the number.
        error: the largest relative error among them, which is accepted.
    """

    def __init__(self, what: str, error: float = 0.0) -> None:
        super().__init__(_VACUOUS.format(what=what))
        self.what, self.error = what, error


_NO_NUMBERS: Final = (
    "Every output of the model on the example inputs is NaN, so comparing the thinned model "
    "with it would prove nothing. Its weights may have diverged, or its code may not compute in "
    "their dtype; thin a model, and pass inputs, that give numbers."
)
_VACUOUS: Final = (
    "Every output of the model is {what}, on the example inputs and on random ones of their "
    "shapes, so comparing the thinned model with it would prove nothing. Pass inputs on which "
    "its outputs vary (further_inputs), or prune less: some layer may have nothing left."
)


_SPREADS: Final = (1.0, 30.0)
"""Standard deviations of inputs to try while all outputs are one number."""


def default_tolerance(outputs: Sequence[torch.Tensor]) -> float:
    """Return the largest relative error that rounding explains, by the coarsest dtype."""
    return max((_TOLERANCES.get(output.dtype, 1e-12) for output in outputs), default=0.0)


def relative_error(expected: torch.Tensor, actual: torch.Tensor) -> float:
    """Return max |actual - expected| / max |expected|; infinite if shapes or NaN differ.

    Positions where both are NaN, or the same infinity, agree. Two empty tensors agree.
    """
    if expected.shape != actual.shape:
        return float("inf")
    expected, actual = in_float64(expected.detach()), in_float64(actual.detach())
    same = (expected == actual) | (expected.isnan() & actual.isnan())
    difference = (actual - expected).abs().masked_fill(same, 0.0)
    largest = difference.max().item() if difference.numel() else 0.0
    if largest == 0:
        return 0.0
    finite = expected.abs()[expected.isfinite()]
    scale = finite.max().item() if finite.numel() else 0.0
    error = largest / scale if scale else float("inf")
    return float("inf") if np.isnan(error) else error


def verify(
    masked: nn.Module,
    thinned: nn.Module,
    example_inputs: ExampleInputs,
    tolerance: float | None,
    dead: Dead = MappingProxyType({}),
    *,
    further_inputs: Sequence[ExampleInputs] = (),
) -> float:
    """Return the largest relative error over all outputs, in evaluation mode.

    It is measured on the example inputs, on the further ones, and on random ones of the shapes and
    types of each (`random_inputs`) if the masked model accepts them. Deep networks can amplify the
    rounding of float32 beyond the default tolerance: models that agree in float64 are accepted.

    Args:
        masked: the model before.
        thinned: the model after.
        example_inputs: inputs for both models.
        tolerance: the largest relative error accepted; None for that of `default_tolerance`.
        dead: the channels that norms of the masked model ignore, as in `Removal`.
        further_inputs: more inputs.

    Raises:
        ThinningError: the thinned model fails, or its error exceeds the tolerance.
        NothingProven: the outputs are all NaN.
        ConstantOutputs: they are one number, such as zero, for all inputs.
    """
    inputs = (example_inputs, *further_inputs)
    try:
        return _verified(masked, thinned, inputs, dead, tolerance)
    except _Difference as fault:
        if tolerance is not None or fault.error > _ROUNDED:
            raise
        try:
            _check_in_double(masked, thinned, inputs, dead, fault.error * _FINER)
        except Exception as error:
            if machine_fault(error) is not None:
                raise
            if isinstance(error, ThinningError):
                raise fault from error
            more = (
                " That may be rounding, which copies in float64 would show, and those do not "
                f"run ({error_text(error)}). If it is negligible, pass a larger tolerance=."
            )
            raise _Difference(fault.error, fault.limit, more) from error
    return _verified(masked, thinned, inputs, dead, _ROUNDED)


def _verified(
    masked: nn.Module,
    thinned: nn.Module,
    inputs: Sequence[ExampleInputs],
    dead: Dead,
    tolerance: float | None,
) -> float:
    """Return the largest relative error; like `verify`, in the dtype of the models."""
    worst = 0.0
    try:
        for probe, expected in proofs(masked, inputs[0], dead, inputs[1:]):
            worst = max(worst, _error(expected, thinned, probe, tolerance))
    except ConstantOutputs as same:
        raise ConstantOutputs(same.what, worst) from same
    return worst


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


def _check_in_double(
    masked: nn.Module,
    thinned: nn.Module,
    inputs: Sequence[ExampleInputs],
    dead: Dead,
    tolerance: float,
) -> None:
    """Raise as `verify` does if copies in float64 differ, or the error with which they fail."""
    first = next(iter(masked.parameters()), torch.zeros((), device="cpu"))
    device = float64_device(first)
    models = [copied(one, {}).to(device).double() for one in (masked, thinned)]
    in_double = [
        replaced(one, lambda tensor: _wide(tensor.to(device)))  # on the device of the models
        for one in inputs
    ]
    _verified(models[0], models[1], in_double, dead, tolerance)


def proofs(
    masked: nn.Module,
    example_inputs: ExampleInputs,
    dead: Dead,
    further_inputs: Sequence[ExampleInputs],
) -> Iterator[Proof]:
    """Yield inputs, each with the outputs of the masked model, until outputs vary.

    Arguments are those of `verify`.

    Raises:
        NothingProven: at the end, if the outputs are all NaN.
        ConstantOutputs: at the end, if they are one number.
    """
    seen = []
    # outputs that are all one number so far may be cut off, for example by a ReLU
    for spread in (None, *_SPREADS):
        for number, inputs in enumerate((example_inputs, *further_inputs)):
            first = number * CALLS_OF_A_PATH
            own = {call - first: one for call, one in dead.items() if call - first >= 0}
            for probe, expected in _probes(masked, inputs, own, spread):
                seen.append(expected)
                yield probe, expected
        if not _constant(seen):
            return
    raise ConstantOutputs(_constant(seen))


def worst_error(proof: Iterable[Proof], thinned: nn.Module, tolerance: float | None) -> float:
    """Return the largest relative error of a thinned model on all of `proof`; like `verify`.

    Raises:
        ThinningError: it fails, or its error exceeds the tolerance.
    """
    errors = (_error(expected, thinned, probe, tolerance) for probe, expected in proof)
    return max(errors, default=0.0)


def _probes(
    masked: nn.Module, inputs: ExampleInputs, dead: Dead, spread: float | None
) -> Iterator[Proof]:
    """Yield inputs, and random ones like them, each with the outputs of the masked model."""

    def expected(given: ExampleInputs) -> list[torch.Tensor]:
        with LivingChannels(dead) if dead else nullcontext():
            return _outputs(masked, given)

    with EmbeddingRows(inputs) as tables:
        found = expected(inputs)
    yield inputs, found
    for drawn in random_inputs(inputs, tables.rows, spread=spread):
        try:
            found = expected(drawn)
        except Exception as error:  # some models do not accept arbitrary values
            if machine_fault(error) is not None:
                raise
            continue
        if not _all_nan(found):
            yield drawn, found
            return


def _error(
    expected: list[torch.Tensor],
    thinned: nn.Module,
    inputs: ExampleInputs,
    tolerance: float | None,
) -> float:
    """Return the largest relative error of the thinned model's outputs.

    Raises:
        ThinningError: it fails, or its error exceeds the tolerance.
    """
    try:
        actual = _outputs(thinned, inputs)
    except Exception as error:
        if machine_fault(error) is not None:
            raise
        raise ThinningError(f"The thinned model fails: {error_text(error)}.") from error
    if len(expected) != len(actual):
        raise ThinningError(f"The thinned model has {len(actual)} outputs, not {len(expected)}.")
    pairs = zip(expected, actual, strict=True)
    worst = max((relative_error(one, other) for one, other in pairs), default=0.0)
    limit = default_tolerance(expected) if tolerance is None else tolerance
    if worst > limit:
        raise _Difference(worst, limit)
    return worst


def _constant(seen: Sequence[list[torch.Tensor]]) -> str:
    """Return the single number that all outputs on all inputs are; "" if they vary.

    Raises:
        NothingProven: all are NaN.
    """
    filled = [one for outputs in seen for one in outputs if one.numel()]
    if _all_nan(filled):
        raise NothingProven(_NO_NUMBERS)
    if not filled or sum(one.numel() for one in filled) == 1:
        return ""
    first = filled[0].flatten()[0]
    if any(bool((one != first).any()) for one in filled):
        return ""
    return f"{first.item() + 0:g} everywhere"  # -0.0 is 0


def _all_nan(outputs: Sequence[torch.Tensor]) -> bool:
    filled = [one for one in outputs if one.numel()]
    return bool(filled) and all(bool(one.isnan().all()) for one in filled)


@contextmanager
def _one_path() -> Iterator[None]:
    """Disable the fused path of torch's transformers, which writes zeros into padded rows.

    Layers with hooks do not take it, and layers without do.
    """
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def _outputs(model: nn.Module, example_inputs: ExampleInputs) -> list[torch.Tensor]:
    with torch.no_grad(), preserved(model), _one_path():
        return [output.clone() for output in tensors_in(run(model, example_inputs))]


def check_training(masked: nn.Module, thinned: nn.Module, inputs: Sequence[ExampleInputs]) -> None:
    """Check that the thinned model runs in training mode if the masked one does; shape-only.

    Raises:
        ThinningError: it fails.
    """
    for one in inputs:
        try:
            watch_shapes(masked, one, list, train=True)
        except TracingError:  # for instance, norms reject a batch of one
            continue
        try:
            watch_shapes(thinned, one, list, train=True)
        except TracingError as error:
            raise ThinningError(f"The thinned model fails in training mode: {error}") from error
