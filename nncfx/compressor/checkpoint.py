"""Checkpoints of a model in training: one safetensors file, weights and masks and schedule.

The file holds the model's `state_dict` as tensors and one JSON text as metadata: config,
controller state, and the shapes of the example inputs (never their values). Loading reads data and
executes nothing.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from nncfx._version import __version__
from nncfx.compressor.create import create_compressed_model
from nncfx.compressor.input_specs import describe_inputs, inputs_from
from nncfx.config import NNCFConfig
from nncfx.controllers import CompositeController, Controller
from nncfx.errors import ArgumentError, StorageError
from nncfx.quantization import fold_batch_norms
from nncfx.quantization.records import insertions_from, quantizer_records
from nncfx.storage.whole_file import writing
from nncfx.tracing import ExampleInputs, NNCFNetwork, unwrap

__all__ = ["load", "save"]

_FORMAT = "nncfx.checkpoint"
_VERSION = 1
_KEY = "nncfx"


def save(
    path: str | os.PathLike[str], model: nn.Module, controller: Controller | None = None
) -> Path:
    """Write `model`, its masks and the state of `controller` to one file; return its path.

    A model that `nncfx.quantize` returned has no controller; its quantizers are in the file.

    The file is complete or not there: it is written beside `path` and renamed.

    Raises:
        ArgumentError: `model` is no module, a plain module, or not the model of `controller`.
        StorageError: the model's `state_dict` holds something else than tensors, or `path` cannot
            be written.
    """
    if not isinstance(model, nn.Module):
        raise ArgumentError(
            f"The second argument is a {type(model).__name__}, not a module; the path is first: "
            "nncfx.save(path, model).",
        )
    if not isinstance(model, NNCFNetwork) and controller is None:
        raise ArgumentError(
            f"{type(model).__name__} is a plain module, as nncfx.thin and controller.strip() "
            "return, and has no compression to go on with. nncfx.storage.save(path, model) writes "
            "it, and nncfx.storage.load(path, dense_model) reads it back, thinned or not; where "
            "modules became graphs nncfx.thinning.save_thinned and load_thinned do.",
        )
    if isinstance(model, NNCFNetwork) and controller is None:
        controller = CompositeController(model, [])
    if controller is None or controller.model is not model or not isinstance(model, NNCFNetwork):
        raise ArgumentError(
            "The model is not the one that the controller handles, so that masks and level would "
            "not belong together. Pass the pair that create_compressed_model returned, or the "
            "model that nncfx.quantize returned; nncfx.quantize(model, ..., inplace=True) is what "
            "quantizes the controller's own.",
        )
    # the controller's state is in the description
    carried = model.nncf.carried_names
    state = {name: one for name, one in model.state_dict().items() if name not in carried}
    tensors, shared = _separate(state)
    config = NNCFConfig(compression=controller.configs, validate_scopes=False)
    description = {
        "format": _FORMAT,
        "version": _VERSION,
        "nncfx": __version__,
        "model": type(model).__qualname__,
        "config": config.to_dict(),
        "controller": controller.state_dict(),
        "example_inputs": describe_inputs(model.nncf.example_inputs),
        "shared": shared,
        "quantizers": quantizer_records(model, without=_algorithms(controller)),
    }
    with writing(path) as draft:
        save_file(tensors, draft, metadata={_KEY: json.dumps(description)})
    return Path(path)


def load(
    path: str | os.PathLike[str],
    model: nn.Module,
    example_inputs: ExampleInputs | None = None,
) -> tuple[Controller, NNCFNetwork]:
    """Return a controller and `model`, compressed as it was when `save` wrote `path`.

    Args:
        path: A file that `save` wrote.
        model: A fresh model of the original class; it is wrapped in place.
        example_inputs: With which to trace; made from the recorded shapes if absent.

    Raises:
        StorageError: the file is damaged or of another kind, or its tensors do not fit `model`;
            the message lists missing, unexpected and reshaped ones.
        ArgumentError: `model` carries hooks already, or example inputs are needed.
        TracingError: the model cannot be traced.

    Whatever is raised, the model is left as it was.
    """
    if isinstance(model, NNCFNetwork):
        raise ArgumentError(
            "The model is wrapped already, and load wraps it as the file says. Pass a fresh "
            "model, or nncfx.unwrap(model).",
        )
    description = _description(Path(path))
    tensors = _tensors(Path(path), description)
    if example_inputs is None:
        first = next(model.parameters(), None)
        device = torch.device("cpu") if first is None else first.device
        example_inputs = inputs_from(description["example_inputs"], device)
    config = NNCFConfig.from_dict(description["config"])
    state = description["controller"]
    quantizers = insertions_from(description.get("quantizers", []))
    if quantizers and any(name not in tensors for name in _norm_names(model)):
        # quantize folds batch norms where one scale per tensor asks for it
        fold_batch_norms(model, example_inputs)
    made = create_compressed_model(model, config, example_inputs, compression_state=state)
    controller, network = made
    try:
        network.nncf.register(quantizers)
        network.nncf.commit()
        _check_fit(network, tensors, Path(path))
        network.load_state_dict(tensors)
        controller.load_state_dict(description["controller"])
    except BaseException:
        unwrap(network)
        raise
    return controller, network


def _algorithms(controller: Controller) -> set[str]:
    return {one.algorithm for one in controller.configs}


def _norm_names(model: nn.Module) -> list[str]:
    """Return the names in the `state_dict` that belong to batch norms."""
    norms = [name for name, one in model.named_modules() if isinstance(one, _BatchNorm)]
    return [f"{name}.running_mean" for name in norms]


def _separate(state: Mapping[str, Any]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return tensors that share no memory, and which name stands for which other one."""
    tensors: dict[str, Tensor] = {}
    shared: dict[str, str] = {}
    first: dict[tuple[object, ...], str] = {}
    for name, value in state.items():
        if not isinstance(value, Tensor):
            raise StorageError(
                f"'{name}' of the model's state_dict is a {type(value).__name__}; a checkpoint "
                "holds tensors only. Keep such extra state in a file of its own.",
            )
        view = (value.data_ptr(), value.shape, value.stride(), value.dtype, value.device)
        if value.numel() and first.setdefault(view, name) != name:
            shared[name] = first[view]
        else:
            tensors[name] = value.detach().clone(memory_format=torch.contiguous_format)
    return tensors, shared


def _description(path: Path) -> dict[str, Any]:
    """Return the JSON of the file at `path`.

    Raises:
        StorageError: it is no safetensors file, or not one of ours, or of a later version.
    """
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
        found: object = json.loads(metadata[_KEY]) if _KEY in metadata else None
    except (OSError, safetensors.SafetensorError, json.JSONDecodeError) as error:
        raise StorageError(
            f"'{path}' cannot be read as a checkpoint: {error}. Give a file that "
            "nncfx.save wrote; a .nncfx file is read by nncfx.thinning.load_thinned.",
        ) from error
    if not isinstance(found, dict) or found.get("format") != _FORMAT:
        raise StorageError(
            f"'{path}' is a safetensors file, but no checkpoint of nncfx: its metadata says no "
            "config. Load it with safetensors and model.load_state_dict.",
        )
    if found.get("version") != _VERSION:
        raise StorageError(
            f"'{path}' has version {found.get('version')!r}; this nncfx {__version__} reads "
            f"version {_VERSION}. Update nncfx.",
        )
    missing = sorted({"config", "controller", "example_inputs", "shared"} - set(found))
    if missing:
        raise StorageError(f"'{path}' is damaged: its metadata lacks {missing}. Write it again.")
    return found


def _tensors(path: Path, description: Mapping[str, Any]) -> dict[str, Tensor]:
    try:
        tensors = load_file(path)
        return tensors | {name: tensors[of] for name, of in description["shared"].items()}
    except (OSError, KeyError, safetensors.SafetensorError) as error:
        raise StorageError(f"'{path}' is damaged: {error}. Write it again.") from error


def _check_fit(network: NNCFNetwork, found: Mapping[str, Tensor], path: Path) -> None:
    """Check that names and shapes agree.

    Raises:
        StorageError: they do not; the message counts what matches and lists what does not.
    """
    carried = network.nncf.carried_names
    wanted = {name: one for name, one in network.state_dict().items() if name not in carried}
    both = [name for name in wanted if name in found]
    reshaped = [
        f"{name} {tuple(found[name].shape)} in the file, {tuple(wanted[name].shape)} in the model"
        for name in both
        if wanted[name].shape != found[name].shape
    ]
    kinds = {
        "missing in the file": sorted(set(wanted) - set(found)),
        "unexpected": sorted(set(found) - set(wanted) - network.nncf.further_names),
        "reshaped": reshaped,
    }
    if not any(kinds.values()):
        return
    lines = [f"  matched: {len(both) - len(reshaped)}"]
    lines += [f"  {kind}: {', '.join(names)}" for kind, names in kinds.items() if names]
    raise StorageError(
        f"'{path}' does not fit this model; build the model as it was when the file was "
        "written.\n" + "\n".join(lines),
    )
