"""Prepare a model for export: unwrap it, switch it to inference, and check that it runs."""

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import fx, nn

from nncfx.errors import ExportError, error_text
from nncfx.export.capture.dynamic_batch import Call
from nncfx.network import NNCFNetwork, bake, is_bakeable, strip
from nncfx.quantization import Quantizer
from nncfx.quantization.moved_weights import warn_moved_weights
from nncfx.quantization.packing.pack_weights import is_packed, unpack_weights
from nncfx.storage.models.whole_models import require_values, require_whole
from nncfx.tracing import ExampleInputs, Priority, WeightSite
from nncfx.tracing.calls.inputs import own_tensors
from nncfx.tracing.calls.preservation import preserved, without_keeping
from nncfx.tracing.hooks.dynamic_class import change_class, spec_of
from nncfx.tracing.record.parameter_writes import ParameterWrites, WatchedWrites

_LOGGER = logging.getLogger(__name__)


def plain(model: nn.Module, example_inputs: ExampleInputs) -> nn.Module:
    """Return a wrapped model without its wrapping, where a plain module can compute the same.

    Quantizers stay, because a plain module would hold a rounded weight as an ordinary float. Hooks
    before them, such as masks, are applied to the weights of a copy, because a file can hold
    neither scores nor the unpacking of bits. Layers of codes become float layers with quantizers.

    Raises:
        ExportError: `model` is sharded or offloaded.
        ArgumentError: `model` is on meta.
    """
    require_whole(model, "exported", ExportError, is_only_run=True)
    require_values(model, "exported")
    if not isinstance(model, NNCFNetwork):
        return unpack_weights(model, example_inputs) if is_packed(model) else model
    warn_moved_weights(model)
    kept = [
        one.hook
        for one in model.nncf.hooks
        if not is_bakeable(one)
        or (isinstance(one.site, WeightSite) and one.priority >= Priority.QUANTIZATION)
    ]
    if not kept:
        return strip(model)
    if len(kept) < len(model.nncf.hooks):
        model = bake(model, but=tuple(map(type, kept)))
    return _called(model) if isinstance(model, fx.GraphModule) else model


def _called(model: NNCFNetwork) -> nn.Module:
    """Return a module that shares all state with `model` but is not an `fx.GraphModule`.

    torch.export runs the graph of a graph module instead of calling it, and so skips its hooks.
    """
    spec = spec_of(model)
    kind = type(spec.original.__name__, (nn.Module,), {"forward": spec.original.forward})
    shell: nn.Module = object.__new__(kind)
    object.__setattr__(shell, "__dict__", model.__dict__)
    change_class(shell, replace(spec, original=kind))
    return shell


@contextlib.contextmanager
def inferring(model: nn.Module) -> Iterator[WatchedWrites]:
    """Hold every module in eval mode, and restore modes, buffers and kept tensors at the end.

    Weights that the first forward writes are restored as well, if it runs inside the context that
    is yielded: some models write once, guarded by a flag that is restored. Export in this block.
    """
    with torch.no_grad(), without_keeping(model) as modules, preserved(model):
        writes = ParameterWrites(modules)
        try:
            yield WatchedWrites(writes)
        finally:
            writes.undo()


def check_writable(model: nn.Module) -> None:
    """Refuse a module for which the exporter would write a file that no runtime reads.

    Raises:
        ExportError: an LSTM projects its state, which ONNX's LSTM cannot; or the model is
            quantized, and autocast would change the type in which it computes.
    """
    device = next((one.device.type for one in model.parameters()), "cpu")
    if torch.is_autocast_enabled(device) and any(
        isinstance(one, Quantizer) for one in model.modules()
    ):
        raise ExportError(
            "torch.autocast is on, under which a quantized model computes in "
            f"{torch.get_autocast_dtype(device)}; files with integers are written from float32. "
            "Export outside of its block."
        )
    for name, module in model.named_modules():
        if isinstance(module, nn.LSTM) and module.proj_size:
            raise ExportError(
                f"'{name or type(model).__name__}' is an LSTM with proj_size={module.proj_size}, "
                "and ONNX's LSTM has no projection of its state: there is no file for it. Use "
                "proj_size=0, with a smaller hidden_size or a linear layer after it, and train "
                "it on."
            )


def warn_idle_quantizers(model: nn.Module) -> None:
    """Warn of quantizers that are switched off, as in the first epochs of a staged schedule."""
    hooks = [one for one in model.modules() if isinstance(one, Quantizer)]
    idle = sum(not one.is_active for one in hooks)
    if idle:
        _LOGGER.warning(
            "%d of %d quantizers are switched off, and there the file computes in float. If a "
            "schedule starts them later, export after that epoch (scheduler.epoch_step(epoch)).",
            idle,
            len(hooks),
        )


def run_once(model: nn.Module, call: Call) -> object:
    """Return what `model` returns for `call`, in eval mode; its buffers stay as they were.

    Raises:
        ExportError: it does not run, or torch.export cannot follow it.
    """
    args, kwargs = own_tensors(call)
    before = _places(model)
    try:
        with preserved(model):
            result = model(*args, **kwargs)
    except ExportError:
        raise
    except Exception as error:
        raise ExportError(
            f"{type(model).__name__} does not run on the example inputs, so there is nothing to "
            f"export: {error_text(error)}"
        ) from error
    for name, place in _places(model).items():
        if place != before.get(name):
            # torch.export would set a tensor without data, and crash
            raise ExportError(
                f"{type(model).__name__} sets the data of '{name}' in its forward, as networks do "
                "that fold their branches into one weight, and torch.export cannot follow that. "
                "The weight is there now: let the forward use it without setting it again."
            )
    return result


def _places(model: nn.Module) -> dict[str, int]:
    plain = {n: one for n, one in model.named_parameters() if type(one) is nn.Parameter}
    return {name: one.data_ptr() for name, one in plain.items()}
