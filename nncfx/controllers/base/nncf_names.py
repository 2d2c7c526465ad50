"""What NNCF called what here has another name: for the error of whoever brings an old loop."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

__all__ = ["instead_of"]

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
        "torch": "nncfx itself: what nncf.torch had stands there",
        "wrap_model": "nncfx.wrap",
    },
)


def instead_of(name: str) -> str:
    """Return what NNCF's `name` is called here, as a sentence after a space, or "".

    >>> instead_of("compression_rate")
    " NNCF's 'compression_rate' is here: level, which can be set."
    >>> instead_of("nothing")
    ''
    """
    return f" NNCF's '{name}' is here: {_INSTEAD[name]}." if name in _INSTEAD else ""
