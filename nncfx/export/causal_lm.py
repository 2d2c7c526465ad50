"""Export a causal language model with its cache of keys and values."""

import inspect
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, Literal, TypeAlias

import torch
from torch import Tensor, nn
from typing_extensions import override

from nncfx.errors import ArgumentError, ExportError, error_text, needing, require_known
from nncfx.export.capture.preparation import inferring, plain
from nncfx.export.export_result import ExportResult
from nncfx.export.onnx_export import export_onnx, export_target
from nncfx.targets import Target
from nncfx.tracing.calls.devices import device_of

CacheType: TypeAlias = Literal["float", "int8"]
Past: TypeAlias = Sequence[Sequence[Tensor]]

_CACHES: Final = ("cache", "past_key_values")
"""Names of the cache as an argument and as an output: since transformers 5.24, and before."""
_PARTS: Final = {"float": ("key", "value"), "int8": ("key", "key_scale", "value", "value_scale")}
_BATCH, _PAST, _LENGTH = 2, 4, 3
"""Sizes of the example, all different; open axes must be at least 2 long."""

_STEPS: Final = 127


def export_causal_lm(
    model: nn.Module,
    path: str | os.PathLike[str],
    target: str | Target | None = None,
    *,
    cache: CacheType = "float",
    accuracy_level: Literal[1, 4] = 1,
    opset: int | None = None,
) -> ExportResult:
    """Write a causal language model as an ONNX file that takes a cache and returns the longer one.

    Inputs and outputs are named as in Optimum: the file reads `input_ids` (batch x length),
    `attention_mask` (batch x (past + length)) and, for each layer, `past_key_values.0.key` and
    `past_key_values.0.value` (batch x heads x past x width); it returns `logits` and
    `present.0.key`, ... with past + length positions. Batch, length and past are open; the past
    can be empty. Positions are computed from the mask, so prompts can be padded on the left.
    `nncfx.runtimes.CausalLM` runs the file.

    Args:
        model: A transformers model with attention in each layer, such as `LlamaForCausalLM` or
            `GPT2LMHeadModel`: a plain one, or the result of `nncfx.thin`, `quantize` or
            `quantize_weights`.
        path: The file to write; an existing file is replaced.
        target: The runtime that will read the file; the default is that of `export_onnx`.
        cache: "float" keeps keys and values as they are computed; "int8" stores each number in a
            byte, with one scale per token and head, so the cache takes about a quarter of the
            memory. Tokens are then close to those of `generate()`, not equal.
        accuracy_level: ONNX Runtime's level for products with packed weights: at 1 they read
            floats, and tokens equal those of `generate()`; at 4 they round their inputs to 8
            bits, which takes about half the time per token and gives close tokens.
        opset: The ONNX operator set; the target's by default.

    Raises:
        ArgumentError: The kind of cache is unknown, or the target does not support the accuracy
            level; otherwise as `export_onnx`.
        ExportError: The model keeps no keys and values, or keeps other state as well (Mamba,
            RWKV); otherwise as `export_onnx`.
        MissingExtraError: transformers, onnx or onnxscript is not installed.
    """
    require_known("kind of cache", cache, _PARTS)
    runtime = export_target(model, target)
    if runtime.block_weights:
        runtime = replace(runtime, accuracy_level=accuracy_level)
    elif accuracy_level != 1:
        raise ArgumentError(
            f"accuracy_level is {accuracy_level}, and the target '{runtime.name}' has no packed "
            "products that could round their inputs. Leave it out."
        )
    tokens = torch.zeros(_BATCH, _LENGTH, dtype=torch.int64, device="cpu")
    lean = plain(model, {"input_ids": tokens.to(device_of(model))})
    past = _example_past(lean)
    parts = _PARTS[cache]
    names = [f"{layer}.{part}" for layer in range(len(past)) for part in parts]
    inputs: dict[str, Any] = {
        "input_ids": tokens,
        "attention_mask": torch.ones(_BATCH, _PAST + _LENGTH, dtype=torch.int64, device="cpu"),
        "past_key_values": past if cache == "float" else [_in_bytes(*layer) for layer in past],
    }
    named: type[_WithCache] = type(type(lean).__name__, (_WithCache,), {})  # errors show this name
    return export_onnx(
        named(lean, cache),
        path,
        inputs,
        runtime,
        opset=opset,
        dynamic_axes={
            "input_ids": {1: "length"},
            "attention_mask": {1: "past + length"},
            "past_key_values": {2: "past"},
        },
        input_names=[
            "input_ids",
            "attention_mask",
            *(f"past_key_values.{name}" for name in names),
        ],
        output_names=["logits", *(f"present.{name}" for name in names)],
    )


class _WithCache(nn.Module):
    """A language model that reads its cache as tensors and returns it as tensors."""

    def __init__(self, model: nn.Module, cache: CacheType) -> None:
        super().__init__()
        self.model, self.cache = model, cache
        parameters = inspect.signature(model.forward).parameters
        self.takes_positions = "position_ids" in parameters
        self.reads_cache_as = next((one for one in _CACHES if one in parameters), _CACHES[-1])

    @override
    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, past_key_values: Past
    ) -> tuple[Tensor, list[tuple[Tensor, ...]]]:
        more: dict[str, object] = {}
        if self.takes_positions:
            positions = (attention_mask.cumsum(-1) - 1).clamp(min=0)
            more["position_ids"] = positions[:, -input_ids.shape[1] :]
        floats = past_key_values
        if self.cache == "int8":
            floats = [(_floats(*layer[:2]), _floats(*layer[2:])) for layer in past_key_values]
        more[self.reads_cache_as] = _dynamic_cache(floats)
        output = self.model(
            input_ids=input_ids, attention_mask=attention_mask, use_cache=True, **more
        )
        present = _pairs(self.model, output)
        if self.cache == "int8":
            present = [
                tuple(
                    torch.cat([old, new], 2)
                    for old, new in zip(
                        before,
                        _in_bytes(*(one[:, :, before[0].shape[2] :] for one in pair)),
                        strict=True,
                    )
                )
                for before, pair in zip(past_key_values, present, strict=True)
            ]
        return output.logits, present


def _dynamic_cache(past: Past) -> object:
    with needing("transformers", "transformers", "exporting a language model with its cache"):
        from transformers import DynamicCache
    return DynamicCache([tuple(layer) for layer in past])


def _example_past(model: nn.Module) -> list[tuple[Tensor, ...]]:
    """Return the keys and values of each layer: batch x heads x `_PAST` x width."""
    device = device_of(model)
    ids = torch.zeros(_BATCH, _PAST, dtype=torch.int64, device=device)
    try:
        with inferring(model) as first, first:
            output = model(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=True)
    except Exception as error:
        raise ExportError(
            f"{type(model).__name__} does not run on input_ids, attention_mask and use_cache, as "
            f"causal language models of transformers do: {error_text(error)}. Export "
            "it with nncfx.export_onnx."
        ) from error
    return _pairs(model, output)


def _pairs(model: nn.Module, output: Any) -> list[tuple[Tensor, ...]]:  # noqa: ANN401 (a class of each model)
    cache = next((getattr(output, one) for one in _CACHES if hasattr(output, one)), None)
    layers = getattr(cache, "layers", ())
    pairs: list[Any] = [
        (getattr(one, "keys", None), getattr(one, "values", None)) for one in layers
    ]
    is_attention = all(isinstance(one, Tensor) and one.ndim == 4 for pair in pairs for one in pair)  # noqa: PLR2004 (batch, heads, length, width)
    further = {key for one in layers for key in vars(one) if key.endswith("_states")}
    if not (pairs and is_attention) or further:
        raise ExportError(
            f"{type(model).__name__} returns no keys and values of attention for every layer "
            f"(it has {type(cache).__name__}), which is the only state that the file's inputs and "
            "outputs hold. Export it without: nncfx.export_onnx(model, path, inputs)."
        )
    return pairs


def _in_bytes(key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
    """Return keys and values as int8, each followed by its scales: batch x heads x length x 1."""
    found: list[Tensor] = []
    for one in (key, value):
        scale = one.abs().amax(-1, keepdim=True).clamp(min=torch.finfo(one.dtype).tiny) / _STEPS
        found += [(one / scale).round().clamp(-_STEPS, _STEPS).to(torch.int8), scale]
    return tuple(found)


def _floats(whole: Tensor, scale: Tensor) -> Tensor:
    return whole.to(scale.dtype) * scale
