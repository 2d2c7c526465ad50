"""Checkpoints: one safetensors file of a model in training, or of a finished one.

The file contains the model's `state_dict` as tensors, quantized weights of a finished model as
integers, and JSON texts as metadata: config, controller state, the shapes of the example inputs
(never their values), and, deflated, the changes by thinning and quantization. Loading reads data
and executes no code.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from nncfx._version import __version__
from nncfx.config import NNCFConfig
from nncfx.controllers import CompositeController, Controller
from nncfx.controllers.base.nncf_names import tells_arguments
from nncfx.errors import ArgumentError, StorageError
from nncfx.network import NNCFNetwork
from nncfx.quantization import Quantizer, fold_batch_norms
from nncfx.storage.formats.container import is_container
from nncfx.storage.formats.whole_file import naming, writing
from nncfx.storage.models.checkpoint_file import (
    FORMAT,
    VERSION,
    as_metadata,
    pack_tensors,
    read_description,
    read_floats,
    stored_checkpoint,
)
from nncfx.storage.models.model_file import SUFFIX, stored_model
from nncfx.storage.models.model_file import save as save_finished
from nncfx.storage.models.model_state import model_state
from nncfx.storage.models.shard_files import (
    in_first_process,
    read_folder_description,
    save_shards,
    stored_shards,
)
from nncfx.storage.models.sharded_models import gathered, has_shards
from nncfx.storage.models.stored_model import StoredModel, restored_on_error
from nncfx.storage.models.torch_bits import distinct
from nncfx.storage.models.whole_models import require_values, require_whole
from nncfx.thinning.files.model_structure import (
    describe,
    finished,
    hook_again,
    reshaped,
    restored,
    zero_keys,
)
from nncfx.thinning.files.wrapped_again import warn_other_calls, wrapped
from nncfx.tracing import ExampleInputs
from nncfx.tracing.calls.input_specs import describe_inputs
from nncfx.tracing.calls.module_check import require_shapes
from nncfx.tracing.calls.preservation import drop_kept
from nncfx.training.create import create_compressed_model


@tells_arguments()
def save(
    path: str | os.PathLike[str],
    model: nn.Module,
    controller: Controller | None = None,
    *,
    integers: bool | None = None,
    shards: bool = False,
) -> Path:
    """Write `model` to one safetensors file; return its path. `load` restores the model.

    A finished model whose path ends in `.nncfx` is written by `nncfx.storage.save`: smaller, and
    also readable by `load`.

    With a controller of algorithms the file is a checkpoint of training: it contains float
    weights, masks, and the state of the schedules. Without one the model is finished, whether
    `nncfx.quantize`, `quantize_weights`, `nncfx.thin` or `controller.strip()` returned it:
    quantized weights are stored as integers, with their scales and zero points.

    The file is complete or absent: it is written next to `path` and renamed.

    Args:
        path: The file, or the folder for `shards`; an existing one is replaced.
        model: Wrapped, plain or thinned. A model sharded by FSDP2 or tensor parallelism is
            gathered: all processes call this function, and the first one writes.
        controller: Of the model; the controller that `load` returns with a finished model is
            ignored.
        integers: Whether to store quantized weights as integers, in which case training would
            continue from the rounded ones. The default is True for finished models.
        shards: Write a folder to which each process adds its part of the model, without gathering;
            all processes call this function. Weights are stored as floats.

    Raises:
        ArgumentError: `model` is not a module, not the model of `controller`, or has hooks of an
            algorithm that `controller` does not handle; or `integers` is set with `shards`.
        StorageError: the model is sharded, offloaded or on the meta device, its `state_dict`
            contains something other than tensors, or `path` cannot be written.
    """
    if not isinstance(model, nn.Module):
        raise ArgumentError(
            f"The second argument is a {type(model).__name__}, not a module; the path is first: "
            "nncfx.save(path, model)."
        )
    controller = CompositeController(model, []) if controller is None else controller
    if controller.model is not model:
        raise ArgumentError(
            "The model is not the one that the controller handles, so masks and level would not "
            "belong together. Pass the pair that create_compressed_model returned; a finished "
            "model, such as nncfx.thin or controller.strip() returns, goes without a "
            "controller, and nncfx.quantize(model, ..., inplace=True) is what quantizes the "
            "controller's own."
        )
    is_finished = Path(path).suffix == SUFFIX
    _check_form(path, controller, is_finished=is_finished, shards=shards, integers=integers)
    if is_finished:
        return save_finished(path, model, integers=integers is not False).path
    if shards:
        if not has_shards(model):
            require_whole(model, "saved", StorageError)
        tensors, description = _content(model, controller, as_integers=False)
        save_shards(Path(path), tensors, description)
        return Path(path)
    is_sharded = has_shards(model)
    with gathered(model):
        require_whole(model, "saved", StorageError)
        if is_sharded:
            in_first_process(lambda: _write(Path(path), model, controller, integers))
        else:
            _write(Path(path), model, controller, integers)
    return Path(path)


def _check_form(
    path: str | os.PathLike[str],
    controller: Controller,
    *,
    is_finished: bool,
    shards: bool,
    integers: bool | None,
) -> None:
    if is_finished and (controller.configs or shards):
        what = "a training" if controller.configs else "shards"
        raise ArgumentError(
            f"'{path}' ends in {SUFFIX}, a format of finished models, and this is to hold "
            f"{what}. Use another name, such as '{Path(path).stem}.safetensors'."
        )
    if shards and integers:
        raise ArgumentError(
            "A folder of shards holds floats, and integers=True asks for integers. Drop one of "
            "the two: a finished model goes into one file."
        )


def _write(path: Path, model: nn.Module, controller: Controller, integers: bool | None) -> None:
    as_integers = not controller.configs if integers is None else integers
    tensors, description = _content(model, controller, as_integers=as_integers)
    with writing(path) as draft:
        save_file(tensors, draft, metadata=as_metadata(description))


def _content(
    model: nn.Module, controller: Controller, *, as_integers: bool
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors of a checkpoint, and its metadata."""
    require_values(model, "saved", StorageError)
    algorithms = {one.algorithm for one in controller.configs}
    _check_hooks(model, algorithms)
    described = describe(
        model if algorithms else finished(model, constant=as_integers),
        integers=as_integers,
        without=algorithms,
    )
    held, shared = distinct(described.state)
    taken: set[int] = set()
    tensors = {name: _alone(one, taken) for name, one in held.items()}
    config = NNCFConfig(compression=controller.configs, validate_scopes=False)
    structure = dict(described.structure)
    structure.pop("example_inputs", None)
    description = {
        "format": FORMAT,
        "version": VERSION,
        "nncfx": __version__,
        "model": type(model).__qualname__,
        "config": config.to_dict(),
        "controller": controller.state_dict(),
        "shared": shared,
        "packed": pack_tensors(tensors, structure.get("integers", {})),
        "sizes": described.sizes,
        "structure": structure,
    }
    if isinstance(model, NNCFNetwork):
        nncf = model.nncf
        description["example_inputs"] = describe_inputs(nncf.example_inputs)
        structure["further_inputs"] = [describe_inputs(one) for one in nncf.further_inputs]
    return tensors, description


def _check_hooks(model: nn.Module, algorithms: set[str]) -> None:
    """Check that the file can describe all hooks.

    Raises:
        ArgumentError: a hook is neither a quantizer nor of a handled algorithm.
    """
    hooks = model.nncf.hooks if isinstance(model, NNCFNetwork) else ()
    for one in hooks:
        known = isinstance(one.hook, (Quantizer, nn.Identity)) or one.algorithm in algorithms
        if not known:
            raise ArgumentError(
                f"The model carries hooks of '{one.algorithm}', and no controller of it is given, "
                "without which they could not be made again. Pass the controller, or save what "
                "nncfx.thin(model).model returns. Where hooks stand at weights alone, "
                "controller.strip() returns a finished model as well, and "
                "nncfx.storage.save(path, model) writes it."
            )


def load(
    path: str | os.PathLike[str],
    model: nn.Module | Callable[[], nn.Module],
    example_inputs: ExampleInputs | None = None,
) -> tuple[Controller, nn.Module]:
    """Return a controller and the model as it was when `path` was written.

    It reads files of `save`, `nncfx.storage.save`, `nncfx.thinning.save_thinned` and
    `CompressionResult.save`. The controller of a finished model has no algorithm: its loss is
    zero, its schedule does nothing, and its level is 0. The model keeps the mode of the given one,
    training mode for a fresh one: call `.eval()` before inference.

    Args:
        path: The file.
        model: A fresh, dense model of the original class, which is changed in place; or a callable
            that creates one, such as the class. If modules have to become graphs because their
            code contains widths, it is not changed and a new model is returned.
        example_inputs: Inputs for tracing; by default built from the recorded shapes.

    Raises:
        StorageError: the file is damaged or of another kind, `model` is on the meta device, or the
            tensors do not fit it; the message lists missing, unexpected and reshaped ones.
        ThinningError: the file's recipes belong to another model.
        ArgumentError: `model` is not a module or already has hooks, or example inputs are needed.
        TracingError: the model cannot be traced.

    If an error is raised, the model is not changed.
    """
    made = model if isinstance(model, nn.Module) or not callable(model) else model()
    if not isinstance(made, nn.Module):
        raise ArgumentError(
            f"load takes a fresh model, or what makes one when called, and got {model!r:.80}. "
            "Write nncfx.load(path, Model())."
        )
    if isinstance(made, NNCFNetwork):
        raise ArgumentError(
            "The model is wrapped already, and load wraps it as the file says. Pass a fresh "
            "model, or nncfx.unwrap(model)."
        )
    require_shapes(made, "load")
    require_values(made, "loaded into", StorageError)
    with gathered(made), naming(path):
        return _loaded(path, made, example_inputs)


def _loaded(
    path: str | os.PathLike[str], made: nn.Module, example_inputs: ExampleInputs | None
) -> tuple[Controller, nn.Module]:
    if not Path(path).is_dir() and is_container(path):
        made = restored(made, stored_model(path), example_inputs=example_inputs)
        return CompositeController(made, []), made
    place = Path(path)
    if place.is_dir():
        description = read_folder_description(place)
        stored = stored_shards(place, description)
    else:
        description = read_description(place)
        stored = stored_checkpoint(place, description)
    config = NNCFConfig.from_dict(description["config"])
    if description["version"] > 1 and not config.compression:
        made = restored(made, stored, example_inputs=example_inputs)
        if stored.structure["example_inputs"] and not isinstance(made, NNCFNetwork):
            made = wrapped(made, stored, example_inputs)
        return CompositeController(made, []), made
    with restored_on_error(made):
        controller, network = _in_training(made, stored, config, description, example_inputs)
        if place.is_dir():
            tensors = stored.read()
        else:  # load_state_dict copies into parameters
            borrowed = dict(network.named_parameters(remove_duplicate=False))
            tensors = read_floats(place, description, borrowed=borrowed)
        zeros = {name: torch.zeros_like(one) for name, one in zero_keys(network).items()}
        _check_fit(network, zeros | tensors, path)
        network.load_state_dict(zeros | tensors)
        drop_kept(network)
        controller.load_state_dict(description["controller"])
    warn_other_calls(network, stored)
    return controller, network


def _in_training(
    model: nn.Module,
    stored: StoredModel,
    config: NNCFConfig,
    description: Mapping[str, Any],
    example_inputs: ExampleInputs | None,
) -> tuple[Controller, NNCFNetwork]:
    """Return controller and model of a checkpoint, and of any file of version 1."""
    model = reshaped(model, stored)
    _take(model, stored)
    network = wrapped(model, stored, example_inputs)
    is_old = description["version"] == 1 and stored.structure["quantizers"]
    if is_old and _norm_names(network) - set(stored.tensors):
        # quantize folds batch norms if weights have one scale per tensor
        fold_batch_norms(network, network.nncf.example_inputs)
    controller, network = create_compressed_model(
        network, config, compression_state=description["controller"]
    )
    hook_again(network, stored)
    return controller, network


def _norm_names(model: nn.Module) -> set[str]:
    """Return the names in the `state_dict` that belong to batch norms."""
    norms = [name for name, one in model.named_modules() if isinstance(one, _BatchNorm)]
    return {f"{name}.running_mean" for name in norms}


def _take(model: nn.Module, stored: StoredModel) -> None:
    """Load the tensors of the file that fit into `model`, in new memory.

    Resized tensors have no values yet, and algorithms read weights.
    """
    state = model.state_dict(keep_vars=True)
    for name, value in stored.read().items():
        if name in state and state[name].shape == value.shape:
            state[name].data = value.to(state[name].device, state[name].dtype)


def _alone(value: Tensor, taken: set[int]) -> Tensor:
    """Return `value` if it fills memory that is not `taken`, else a copy of it."""
    is_plain = type(value) is Tensor and value.is_contiguous() and not value.is_conj()
    if is_plain and not value.is_neg() and value.untyped_storage().nbytes() == value.nbytes:
        place = value.untyped_storage().data_ptr()
        if place not in taken:
            taken.add(place)
            return value
    return value.clone(memory_format=torch.contiguous_format)


def _check_fit(
    network: NNCFNetwork, found: Mapping[str, Tensor], path: str | os.PathLike[str]
) -> None:
    """Check that names and shapes agree.

    Raises:
        StorageError: they do not; the message counts what matches and lists what does not.
    """
    carried = network.nncf.carried_names
    wanted = {name: one for name, one in model_state(network).items() if name not in carried}
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
        f"'{path}' does not fit this model; build the model as it was when the file was written, "
        "and where values say which path a forward takes, as to experts, pass the "
        "example_inputs used then.\n" + "\n".join(lines)
    )
