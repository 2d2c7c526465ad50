"""Applies the algorithms of a config to a model, for training in the user's own loop."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import nn
from typing_extensions import override

from nncfx._version import __version__
from nncfx.config import AlgorithmConfig, AnyConfig, Fault, NNCFConfig, config_error
from nncfx.controllers import (
    Builder,
    CompositeController,
    Controller,
    adapt_batch_norms,
    builder_for,
    registered_algorithms,
)
from nncfx.controllers.base.nncf_names import tells_arguments
from nncfx.controllers.base.shared_gradients import average_gradients
from nncfx.controllers.base.unread_weights import check_written_weights, warn_unhooked_weights
from nncfx.controllers.masks.weight_sparsity import warn_added_sparsity
from nncfx.errors import ArgumentError
from nncfx.network import NNCFNetwork, unwrap, wrap
from nncfx.storage.models.sharded_models import gathered
from nncfx.storage.models.whole_models import require_values
from nncfx.thinning.quantizers import warn_quantized_attention
from nncfx.tracing import ExampleInputs, Insertion, Priority
from nncfx.tracing.calls.module_check import require_module
from nncfx.training.config_inputs import example_inputs_of
from nncfx.training.config_scopes import configs_in_scope

_LOGGER = logging.getLogger(__name__)
_Made = TypeVar("_Made")


@tells_arguments()
def create_compressed_model(  # noqa: PLR0913 (entry point: one argument per setting)
    model: nn.Module,
    config: AnyConfig,
    example_inputs: ExampleInputs | None = None,
    *,
    further_inputs: Sequence[ExampleInputs] = (),
    compression_state: Mapping[str, Any] | None = None,
    calibration_batches: Iterable[Any] | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> tuple[Controller, NNCFNetwork]:
    """Return a controller and the same `model`, wrapped, with the algorithms of `config` applied.

    The algorithms' initial levels are applied. Train the model in your own loop, call
    `controller.scheduler.epoch_step()` at the start of each epoch and `.step()` at the start of
    each optimizer step, and add `controller.loss()` to the loss of the task.

    Args:
        model: Any model; a wrapped one keeps its hooks.
        config: The algorithms to apply: a config, a mapping, or the path of a JSON file. Several
            algorithms are combined in one composite controller.
        example_inputs: A tensor, a tuple of positional or a mapping of keyword inputs; by default
            built from the config's `input_info`. Not needed for a wrapped model.
        further_inputs: More example inputs, for a model whose forward branches, as for
            `nncfx.wrap`.
        compression_state: The result of an earlier `controller.state_dict()`; also load the
            model's `state_dict`, which holds the masks. Nothing is initialized from data then.
        calibration_batches: Data such as a loader, read by `batchnorm_adaptation`, as described in
            `nncfx.controllers.adapt_batch_norms`, and by quantizers to find their ranges.
        on_progress: Called after each of these batches with the number of examples so far and in
            total.

    Raises:
        ConfigError: `config` has faults, a scope in it matches no operation, or an algorithm can
            be read but not applied yet.
        ArgumentError: there are no example inputs, or the model already has one of the algorithms,
            or data are needed and there are no `calibration_batches`; or the model was created in
            inference mode, or is on the meta device.
        TracingError: the model cannot be traced.
        CompressionError: an algorithm has nothing to apply to.
        StorageError: `compression_state` belongs to another config.

    If an error is raised, the model is not changed.
    """
    config = NNCFConfig.of(config)
    _check_config(config)
    _check_trainable(model)
    samples = 0 if compression_state is not None else _adaptation_samples(config)
    if compression_state is None and calibration_batches is None:
        _need_no_data(config)
    batches = None if calibration_batches is None else _Reread(calibration_batches)
    with (
        # objects created in a caller's inference mode could not be trained
        torch.inference_mode(mode=False),
        gathered(model),
        _wrapped(model, config, (example_inputs, further_inputs)) as network,
    ):
        algorithms = configs_in_scope(config, network.nncf.graph)
        _check_new(network, algorithms)
        builders = [builder_for(one) for one in algorithms]
        plans = [_made(one, one.plan(network), Sequence) for one in builders]
        by_name = {one.algorithm: plan for one, plan in zip(algorithms, plans, strict=True)}
        warn_unhooked_weights(network, by_name)
        check_written_weights(network, by_name)
        for plan in plans:
            network.nncf.register(plan)
        network.nncf.commit()
        warn_added_sparsity(network.nncf.hooks)
        warn_quantized_attention(network)
        # in the order of the hooks: an algorithm can inspect the effect of earlier ones on a
        # weight
        pairs = sorted(zip(builders, plans, strict=True), key=_first_priority)
        parts = [_made(one, one.controller(network, plan), Controller) for one, plan in pairs]
        controller = parts[0] if len(parts) == 1 else CompositeController(network, parts)
        if compression_state is not None:
            controller.load_state_dict(compression_state)
        else:
            _start(parts, batches)
        if samples and batches is not None:
            adapt_batch_norms(network, batches, samples=samples, progress=on_progress)
    average_gradients(network)
    return controller, network


def _made(builder: Builder[Any], made: _Made, kind: type) -> _Made:
    """Return the result of a builder, which can be a user's own, after checking it.

    Raises:
        ArgumentError: it has another type, or is a controller without a scheduler.
    """
    if not isinstance(made, kind):
        what = "controller()" if kind is Controller else "plan()"
        raise ArgumentError(
            f"{type(builder).__name__}.{what} returned a {type(made).__name__}; it must return "
            f"{'a Controller' if kind is Controller else 'a list of Insertion'}."
        )
    if isinstance(made, Controller) and not hasattr(made, "scheduler"):
        raise ArgumentError(
            f"{type(made).__name__} has no scheduler. Set self.scheduler in its __init__, such as "
            "to sparsity_scheduler(self, config.params, ...), or has_level = False in its class."
        )
    return made


def _first_priority(pair: tuple[Builder[Any], Sequence[Insertion]]) -> int:
    return min((insertion.priority for insertion in pair[1]), default=Priority.DEFAULT)


@contextmanager
def _wrapped(
    model: nn.Module,
    config: NNCFConfig,
    inputs: tuple[ExampleInputs | None, Sequence[ExampleInputs]],
) -> Iterator[NNCFNetwork]:
    """Yield the wrapped `model`; on an error, undo all changes to it."""
    example_inputs, further_inputs = inputs
    was_wrapped = isinstance(model, NNCFNetwork)
    if not was_wrapped:
        if example_inputs is None:
            example_inputs = example_inputs_of(config.input_info, model)
        model = wrap(model, example_inputs, further_inputs=further_inputs)
    elif further_inputs:
        raise ArgumentError(
            "further_inputs come too late for a model that is wrapped already: its graph is made. "
            "Give them to nncfx.wrap, or pass the model unwrapped."
        )
    assert isinstance(model, NNCFNetwork)  # noqa: S101 (the result of wrap)
    before = {insertion.algorithm for insertion in model.nncf.hooks}
    try:
        yield model
    except BaseException:
        if was_wrapped:
            for algorithm in {one.algorithm for one in config.compression} - before:
                model.nncf.remove(algorithm)
        else:
            unwrap(model)
        raise


def _check_trainable(model: nn.Module) -> None:
    require_module(model, "create_compressed_model")
    made = [name for name, one in model.named_parameters() if one.is_inference()]
    if made:
        raise ArgumentError(
            f"'{made[0]}' was made in torch.inference_mode, so it cannot be trained. Make or "
            "load the model outside of it, or pass a copy.deepcopy that is made outside."
        )


def _check_config(config: NNCFConfig) -> None:
    _warn_idle_device(config)
    built = registered_algorithms()
    faults = []
    if config.search is not None:
        faults.append(
            Fault(
                path="search",
                problem="a search has a training loop of its own, and would do nothing here. Run "
                "it by nncfx.Compressor.from_config, or take the section out.",
            )
        )
    faults += [
        Fault(
            path=f"compression[{index}].algorithm",
            problem=f"'{one.algorithm}' can be read, but not applied yet by nncfx {__version__}. "
            f"Take the item out; what can be applied: {', '.join(built)}.",
        )
        for index, one in enumerate(config.compression)
        if one.algorithm not in built
    ]
    if faults:
        raise config_error(faults)


def _warn_idle_device(config: NNCFConfig) -> None:
    is_read = any(one.depends_on_device for one in config.compression)
    if config.target_device != "ANY" and not is_read:
        _LOGGER.warning(
            "target_device is '%s' and changes nothing here: sparsity and pruning are the same on "
            "every device, and a quantization item with a 'target' has its hardware. Leave it "
            "out, or write 'ANY'.",
            config.target_device,
        )


def _adaptation_samples(config: NNCFConfig) -> int:
    return max((one.adaptation_samples for one in config.compression), default=0)


def _start(parts: Iterable[Controller], batches: Iterable[Any] | None) -> None:
    for part in parts:
        part.initialize()
        if batches is not None and any(one.calibration_samples for one in part.configs):
            part.calibrate(batches)


def _need_no_data(config: NNCFConfig) -> None:
    """Raise an error if `config` asks for something that is computed from data."""
    samples = _adaptation_samples(config)
    if samples:
        raise ArgumentError(
            f"The config asks for batchnorm_adaptation with {samples} samples, and there are no "
            "data. Pass calibration_batches, such as the training loader, or set "
            "'num_bn_adaptation_samples' to 0."
        )
    for one in config.compression:
        if one.calibration_samples:
            what, instead = one.from_data
            raise ArgumentError(
                f"'{one.algorithm}' finds {what} from {one.calibration_samples} samples, and "
                f"there are no data. Pass calibration_batches, such as the training loader, or "
                f"{instead}."
            )


class _Reread(Iterable[Any]):
    """Batches that can be iterated repeatedly, even if they come from an iterator."""

    def __init__(self, batches: Iterable[Any]) -> None:
        self._batches = batches
        self._kept: list[Any] = []

    @override
    def __iter__(self) -> Iterator[Any]:
        if iter(self._batches) is not self._batches:
            yield from self._batches
            return
        yield from self._kept
        for batch in self._batches:
            self._kept.append(batch)
            yield batch


def _check_new(model: NNCFNetwork, algorithms: Sequence[AlgorithmConfig]) -> None:
    require_values(model, "compressed")
    present = {insertion.algorithm for insertion in model.nncf.hooks}
    twice = sorted(present & {one.algorithm for one in algorithms})
    if twice:
        raise ArgumentError(
            f"The model carries {', '.join(twice)} already; an algorithm is applied once. "
            f"Call model.nncf.remove('{twice[0]}') first, or keep the controller you have."
        )
