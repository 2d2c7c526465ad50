"""Equivalents of NNCF's names, for error messages to users who port code from NNCF."""

import functools
import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, ParamSpec, TypeVar

from nncfx.errors import TRUTHS, did_you_mean, require_truth

_P = ParamSpec("_P")
_R = TypeVar("_R")

_INSTEAD: Final[Mapping[str, str]] = MappingProxyType(
    {
        "compression_level": "compression_stage()",
        "compression_rate": "level, which can be set",
        "current_sparsity_level": "level",
        "disable_scheduler": "scheduler.hold()",
        "export_model": "nncfx.export_onnx(model, path)",
        "get_compression_state": "state_dict(), or nncfx.save(path, model, controller) for all",
        "get_state": "state_dict()",
        "load_state": "load_state_dict(state), or nncfx.load(path, model) for all",
        "maximal_compression_rate": "scheduler.final_level",
        "name": "algorithm",
        "strip_model": "strip(), which returns a copy",
        "AdaptiveCompressionTrainingLoop": "nncfx.controllers.train_to_accuracy",
        "CompressionStage": "nncfx.controllers.CompressionStage",
        "EarlyExitCompressionTrainingLoop": "nncfx.controllers.train_to_accuracy",
        "AdvancedQuantizationParameters": "nncfx.quantization.QuantizeOptions",
        "CompressWeightsMode": "a word in nncfx.quantize_weights(bits=4, group_size=128)",
        "Dataset": "any iterable of batches: nncfx.quantize(model, map(transform, loader))",
        "IgnoredScope": "a list: ignored_scopes=['Net/Linear[head]', '{re}.*norm']",
        "ModelType": "not asked for: attention is found in the graph",
        "OverflowFix": "nncfx.quantization.QuantizeOptions(overflow_fix='enable')",
        "QuantizationPreset": "a word: nncfx.quantize(model, loader, preset='mixed')",
        "TargetDevice": "a word: nncfx.quantize(model, loader, target='openvino')",
        "compress_weights": "nncfx.quantize_weights, with bits and group_size",
        "quantize_with_accuracy_control": "nncfx.quantization.quantize_with_accuracy_control",
        "batch_norm_adaptation": "nncfx.controllers.adapt_batch_norms",
        "build_graph": "nncfx.wrap(model, example_inputs).nncf.graph",
        "create_accuracy_aware_training_loop": "nncfx.controllers.train_to_accuracy",
        "get_config": "nncfx.save(path, model): the file holds what load needs",
        "load_from_config": "nncfx.load(path, model)",
        "register_default_init_args": "create_compressed_model(..., calibration_batches=loader)",
        "torch": "nncfx itself: it has what nncf.torch had",
        "wrap_model": "nncfx.wrap",
        # arguments
        "advanced_parameters": "options=nncfx.quantization.QuantizeOptions(...)",
        "all_layers": "not asked for: int8_scopes and ignored_scopes name what is to differ",
        "awq": "nncfx.quantization.quantize_blocks with WeightSettings(scales='awq')",
        "calibration_dataset": "calibration_batches, any iterable of batches",
        "dataset": "calibration_batches, any iterable of batches",
        "drop_type": "max_drop, in the units of the metric",
        "dummy_forward_fn": "example_inputs, a tensor, a tuple or a mapping",
        "dump_graphs": "not asked for: nncfx.wrap(model, example_inputs).nncf.graph",
        "fast_bias_correction": "options=nncfx.quantization.QuantizeOptions(correct_biases=True)",
        "gptq": "method='gptq'",
        "ignored_scope": "ignored_scopes=['Net/Linear[head]', '{re}.*norm']",
        "mode": "bits=4 or bits=8 of weights, and target='tensorrt-fp8' for float8",
        "model_type": "not asked for: attention is found in the graph",
        "ratio": "int8_scopes, which names the layers of 8 bits",
        "scale_estimation": "method='gptq' or method='hqq'",
        "subset_size": "samples=300 (nncfx.quantize_weights reads all batches)",
        "target_device": "target='openvino'",
        "validation_dataset": "evaluate, a function of the model that reads data itself",
        "validation_fn": "evaluate, a function of the model that reads data itself",
        "wrap_inputs_fn": "example_inputs, a tensor, a tuple or a mapping",
    }
)


def instead_of(name: str) -> str:
    """Return a sentence, after a space, with the equivalent of NNCF's `name`, or "".

    >>> instead_of("compression_rate")
    " NNCF's 'compression_rate' is here: level, which can be set."
    >>> instead_of("nothing")
    ''
    """
    return f" NNCF's '{name}' is here: {_INSTEAD[name]}." if name in _INSTEAD else ""


def tells_arguments(
    *passed_on: Callable[..., object],
) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Make a function's error for an argument of NNCF name the equivalent.

    A string for an argument that is true or false is an error, too.

    Args:
        passed_on: Functions to which it passes further arguments.
    """

    def decorated(function: Callable[_P, _R]) -> Callable[_P, _R]:
        known = {
            name: parameter
            for one in (function, *passed_on)
            for name, parameter in inspect.signature(one).parameters.items()
            if parameter.kind is not parameter.VAR_KEYWORD
        }
        truths = {name for name, one in known.items() if one.annotation in TRUTHS}

        @functools.wraps(function)
        def called(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            for name in (one for one in kwargs if one not in known):
                told = instead_of(name) or did_you_mean(name, known)
                raise TypeError(f"{function.__name__}() has no argument '{name}'.{told}")
            for name in truths & kwargs.keys():
                require_truth(name, kwargs[name])
            return function(*args, **kwargs)

        return called

    return decorated
