"""Measure the error of each quantizer and each layer of a quantized model, in decibels."""

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import torch
from torch import Tensor
from typing_extensions import override

from nncfx.errors import ArgumentError
from nncfx.narration import tracked
from nncfx.network import NNCFNetwork
from nncfx.quantization.grid.quantizer import Quantizer
from nncfx.quantization.ranges.calibration import calibration_inputs
from nncfx.quantization.ranges.observation import (
    Note,
    in_float,
    in_float_first,
    probing,
    quantizers_of,
    run_batches,
)
from nncfx.quantization.signal_error import Energies, quantizers_by_layer
from nncfx.tracing import ExampleInputs, PostSite, Site, WeightSite
from nncfx.tracing.calls.tensors import tensors_in

if TYPE_CHECKING:
    from rich.table import Table


class TensorError(NamedTuple):
    """The error of one tensor of a quantized model.

    Attributes:
        name: The site of the quantizer, or the address of the layer.
        role: "weight" and "activation" for the rounding and clipping of one quantizer only;
            "layer" for the output of a layer, with all quantization up to there.
        bits: Width of the quantizer's integers; `None` for a layer.
        sqnr_db: 10 log10 of the energy of the tensor over that of its error; infinite without
            error.
    """

    name: str
    role: Literal["weight", "activation", "layer"]
    bits: int | None
    sqnr_db: float


_HEAD: Final = ("tensor", "kind", "bits", "SQNR dB")


@dataclass(frozen=True)
class ErrorReport:
    """The errors of a quantized model on some data; `print` shows text, `rich.print` a table.

    Attributes:
        tensors: The quantizers in the order of the model's hooks, then the layers in execution
            order.
    """

    tensors: tuple[TensorError, ...]

    def worst(self, count: int = 10) -> "ErrorReport":
        """Return a report of the `count` tensors with the largest errors, worst first."""
        return ErrorReport(tuple(sorted(self.tensors, key=lambda one: one.sqnr_db)[:count]))

    @override
    def __str__(self) -> str:
        rows = [_HEAD, *self._rows()]
        width = max(len(row[0]) for row in rows)
        return "\n".join(f"{a:<{width}}  {b:<10}  {c:>4}  {d:>7}" for a, b, c, d in rows)

    def __rich__(self) -> "Table":
        from rich import box
        from rich.markup import escape
        from rich.table import Table

        table = Table(*_HEAD, box=box.SIMPLE)
        for row in self._rows():
            table.add_row(*map(escape, row))  # scopes look like markup
        return table

    def _rows(self) -> Iterator[tuple[str, str, str, str]]:
        for one in self.tensors:
            bits = "" if one.bits is None else str(one.bits)
            yield one.name, one.role, bits, f"{one.sqnr_db:.1f}"


def quantization_errors(
    model: NNCFNetwork, batches: Iterable[Any], *, reference: torch.nn.Module | None = None
) -> ErrorReport:
    """Return the quantization error of each quantizer and each layer.

    Each batch runs twice, in float and quantized. A quantizer with several sites is named after
    the first.

    Args:
        model: With calibrated quantizers; it runs in evaluation mode and is not changed.
        batches: At least one, each in a form that `quantize` takes, such as input and label.
        reference: The model before it was quantized. Without it, the rounding error of weights
            that were rounded in place (by GPTQ, or learned) is not included.

    Raises:
        ArgumentError: there are no batches, one has an unknown form, or `reference` has other
            parameters.
    """
    values = {} if reference is None else _values_of(reference, model)
    inputs = calibration_inputs(batches, model, sys.maxsize)
    sites: dict[Quantizer, Site] = {}
    for site, quantizer in quantizers_of(model).items():
        sites.setdefault(quantizer, site)
    own = {quantizer: Energies() for quantizer in sites}
    layers = {address: Energies() for address in quantizers_by_layer(model)}
    notes: dict[Site, Note] = {PostSite(address): one.note for address, one in layers.items()}
    exact = {
        quantizer: values[str(site)] for quantizer, site in sites.items() if str(site) in values
    }
    with _watching(own, exact), probing(model, notes):
        run_batches(model, in_float_first(model, inputs, values))
    of_quantizers = [
        TensorError(
            str(sites[quantizer]),
            "weight" if isinstance(sites[quantizer], WeightSite) else "activation",
            quantizer.spec.bits,
            one.sqnr_db,
        )
        for quantizer, one in own.items()
    ]
    of_layers = [TensorError(key, "layer", None, one.sqnr_db) for key, one in layers.items()]
    return ErrorReport((*of_quantizers, *of_layers))


def _values_of(reference: torch.nn.Module, model: NNCFNetwork) -> dict[str, Tensor]:
    """Return the parameters of `reference` by name; `model` must have the same names."""
    stored = {name: one.shape for name, one in model.named_parameters()}
    values = {name: one.detach() for name, one in reference.named_parameters()}
    for name, one in values.items():
        if stored.get(name) != one.shape:
            raise ArgumentError(
                f"reference has a parameter '{name}' of the shape {list(one.shape)}, and the "
                "quantized model has none. Pass the model that was given to quantize, without "
                "what folds its batch norms."
            )
    return values


@contextmanager
def _watching(
    energies: dict[Quantizer, Energies], exact: Mapping[Quantizer, Tensor]
) -> Iterator[None]:
    """Record inputs, or the tensors in `exact`, and outputs of quantizers inside the block."""

    def note(module: torch.nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
        if isinstance(module, Quantizer) and module.is_active:
            energies[module].add(exact.get(module, args[0]), output)

    with ExitStack() as stack:
        for quantizer in energies:
            stack.enter_context(quantizer.register_forward_hook(note))
        yield


def layer_sensitivities(model: NNCFNetwork, batches: Iterable[ExampleInputs]) -> dict[str, float]:
    """Return the SQNR of the model's output in dB if only one layer is quantized, by address.

    A low value means that the layer is sensitive. The model runs on all batches once per layer,
    and once in float; a few dozen examples are enough for a ranking.

    Args:
        model: With calibrated quantizers; it runs in evaluation mode and is not changed.
        batches: Inputs of the model, at least one.

    Raises:
        ArgumentError: there are no batches.
    """
    found = output_errors(model, batches, quantizers_by_layer(model))
    return {address: one.sqnr_db for address, one in found.items()}


def output_errors(
    model: NNCFNetwork,
    batches: Iterable[ExampleInputs],
    groups: Mapping[str, frozenset[Quantizer]],
) -> dict[str, Energies]:
    """Return the error of the model's outputs for each group of quantizers alone, by its name.

    Raises:
        ArgumentError: there are no batches.
    """
    inputs = list(batches)
    every = set(quantizers_of(model).values())
    with in_float(every):
        exact = _outputs(model, inputs)
    found = {}
    for name in tracked(groups, "Quantizing one layer at a time"):
        energies = found[name] = Energies()
        with in_float(every - groups[name]):
            for one, other in zip(exact, _outputs(model, inputs), strict=True):
                energies.add(one, other)
    return found


def _outputs(model: NNCFNetwork, batches: Iterable[ExampleInputs]) -> list[Tensor]:
    """Return the float tensors that the model returns for all batches."""
    kept: list[Tensor] = []

    def keep(module: torch.nn.Module, args: Any, output: Any) -> None:  # noqa: ANN401 (any model)
        del module, args
        kept.extend(one for one in tensors_in(output) if one.is_floating_point())

    with model.register_forward_hook(keep):
        run_batches(model, batches)
    return kept
