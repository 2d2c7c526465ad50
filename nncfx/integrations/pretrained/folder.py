"""Saves a thinned or quantized transformers model as a folder, and loads it."""

import copy
import logging
import os
from pathlib import Path
from typing import Any, Final

from torch import nn

from nncfx.errors import ArgumentError, StorageError, did_you_mean, needing
from nncfx.integrations.pretrained.widths import with_widths
from nncfx.network import NNCFNetwork
from nncfx.storage.formats.whole_file import writing_files
from nncfx.thinning.files.model_structure import finished
from nncfx.tracing import ExampleInputs
from nncfx.tracing.hooks.dynamic_class import original_class
from nncfx.training import load, save

__all__ = ["from_pretrained", "save_pretrained"]

_LOGGER = logging.getLogger(__name__)

_FILE: Final = "nncfx.safetensors"
_PLAIN: Final = "model.safetensors"


def save_pretrained(
    model: nn.Module,
    folder: str | os.PathLike[str],
    *,
    example_inputs: ExampleInputs | None = None,
) -> Path:
    """Write a compressed transformers model into `folder`; return the path of its weights.

    If a config of the model's class can express the remaining widths (every layer lost the same
    number of neurons or heads), the folder is an ordinary transformers folder: `config.json` with
    these widths and `model.safetensors`, which any `from_pretrained` reads without nncfx.
    Otherwise, and for quantized models, `config.json` has the original widths and
    `nncfx.safetensors` the weights (integers if they are quantized) with a description of what was
    removed; `from_pretrained` of this module reads both kinds.

    Args:
        model: The result of `nncfx.thin`, `quantize`, `quantize_weights` or `controller.strip()`,
            or a plain model. Masks are baked in.
        folder: Created if missing. Files of the same names are replaced.
        example_inputs: Inputs on which a model of the new widths must agree before its config is
            written; by default those of transformers (`model.dummy_inputs`), or those that the
            model was wrapped with.

    Raises:
        ArgumentError: `model` is not a transformers model.
        StorageError: A file cannot be written; or as for `nncfx.save`.
        MissingExtraError: transformers is not installed.
    """
    if not isinstance(model, _package().PreTrainedModel):
        raise ArgumentError(
            f"The first argument is a {type(model).__name__}, not a model of transformers (with "
            "a config). nncfx.save(path, model) saves any module."
        )
    place = Path(folder)
    left = finished(model)
    is_quantized = isinstance(left, NNCFNetwork) and bool(left.nncf.hooks)
    plain = None if is_quantized else with_widths(left, example_inputs)
    if plain is None and not is_quantized:
        _LOGGER.warning(
            "No config of %s has the widths that are left, or a model made of it does not run on "
            "example_inputs (of transformers, often token ids, if you pass none) or computes "
            "something else. transformers itself cannot read '%s'; from_pretrained of "
            "nncfx.integrations.pretrained can.",
            original_class(model).__name__,
            place,
        )
    path = place / (_FILE if plain is None else _PLAIN)
    with writing_files(path) as draft:
        if plain is None:
            _write(left, model, draft)
        else:
            plain.save_pretrained(draft)
        written = {one.name for one in draft.iterdir()}
    for one in (*place.glob("model*.safetensors*"), place / _FILE):
        if one.name not in written:  # written by an earlier save of another model
            one.unlink(missing_ok=True)
    return path


def _write(left: nn.Module, model: Any, folder: Path) -> None:  # noqa: ANN401 (a class of each model)
    """Write the remaining part of `model`, with the config of its original widths."""
    config = copy.deepcopy(model.config)
    config.architectures = [original_class(model).__name__]
    config.save_pretrained(folder)
    if model.can_generate():
        model.generation_config.save_pretrained(folder)
    save(folder / _FILE, left)


def from_pretrained(
    folder: str | os.PathLike[str],
    model_class: type[nn.Module] | None = None,
    *,
    example_inputs: ExampleInputs | None = None,
) -> nn.Module:
    """Return the model that `save_pretrained` wrote into `folder`, in eval mode.

    Args:
        folder: A local folder.
        model_class: The class of the model; by default the transformers class named in the config.
            Your own class has to be given, since no code in the folder is executed.
        example_inputs: Inputs for tracing a quantized model; by default built from recorded
            shapes.

    Raises:
        StorageError: There is no such folder or config, the config does not name a transformers
            class, or the weights are damaged or belong to another model.
        MissingExtraError: transformers is not installed.
    """
    package = _package()
    place = Path(folder)
    if not (place / "config.json").is_file():
        raise StorageError(
            f"'{place}' holds no config.json, so save_pretrained has not written it."
        )
    config = package.AutoConfig.from_pretrained(place)
    known = model_class or _class_of(config, place)
    if not (place / _FILE).is_file():
        loaded: nn.Module = known.from_pretrained(place)  # type: ignore[attr-defined]  # of transformers
        return loaded.eval()
    _, model = load(place / _FILE, known(config).eval(), example_inputs)
    if model.can_generate() and (place / "generation_config.json").is_file():  # type: ignore[operator]  # of transformers
        model.generation_config = package.GenerationConfig.from_pretrained(place)
    return model.eval()


def _class_of(config: Any, place: Path) -> type[nn.Module]:  # noqa: ANN401 (a class of each model)
    package = _package()
    name = (getattr(config, "architectures", None) or ["none"])[0]
    found = getattr(package, name, None)
    if not (isinstance(found, type) and issubclass(found, package.PreTrainedModel)):
        guess = did_you_mean(name, dir(package))
        raise StorageError(
            f"'{place / 'config.json'}' names the architecture '{name}', which transformers "
            f"{package.__version__} does not have.{guess} Pass model_class=."
        )
    return found


def _package() -> Any:  # noqa: ANN401 (the package creates its names on access)
    with needing("transformers", "transformers", "saving and loading its models"):
        import transformers
    return transformers
