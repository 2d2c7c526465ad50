"""A cache that stores each key and value in one byte, for `generate()` of transformers."""

from collections.abc import Callable
from typing import Any, Final, Literal, final

import torch
from torch import Tensor, nn
from typing_extensions import override

from nncfx.errors import ArgumentError, needing, require_known

with needing("transformers", "transformers", "its Cache"):
    from transformers.cache_utils import Cache, DynamicCache, DynamicLayer

__all__ = ["ByteCache", "ByteLayer"]

CacheFormat = Literal["int8", "float8_e4m3"]

_FORMATS: Final[dict[str, tuple[torch.dtype, float]]] = {
    "int8": (torch.int8, 127.0),
    "float8_e4m3": (torch.float8_e4m3fn, 448.0),
}
"""By name: the dtype, and the code of the largest magnitude of a head."""

_SMALLEST: Final = 2.0**-100
"""The smallest scale, also used for all-zero tensors."""


@final
class ByteCache(Cache):
    """Stores keys and values in one byte each, with one scale for each token and head.

    Its memory is about a quarter of that of float32, or half of bfloat16's. Each call returns
    stored keys and values, also for its own tokens, so a text that is run at once reads the same
    as one that is run token by token. Beam search, cropping and repeating work as with
    transformers' `DynamicCache`:

        model.generate(tokens, cache=ByteCache(model))  # past_key_values= before 5.24

    An encoder-decoder model stores those of its encoder separately, in float:

        own = ByteCache(model, only_self_attention=True)
        model.generate(tokens, cache=EncoderDecoderCache(own, DynamicCache()))

    Args:
        model: A transformers model, with full attention in each layer.
        format_name: "int8", symmetric, or "float8_e4m3".
        only_self_attention: Set it for the self-attention cache of an `EncoderDecoderCache`.

    Raises:
        ArgumentError: the format is unknown, or the model has other state than keys and values of
            all tokens: windows, chunks, recurrent states, or those of an encoder.
        MissingExtraError: transformers is not installed.
    """

    def __init__(
        self,
        model: nn.Module,
        format_name: CacheFormat = "int8",
        *,
        only_self_attention: bool = False,
    ) -> None:
        require_known("cache format", format_name, _FORMATS)
        config: Any = model.config
        kind = type(model).__name__
        if getattr(config, "is_encoder_decoder", False) and not only_self_attention:
            raise ArgumentError(
                f"{kind} has an encoder, and its cross-attention would append the keys and "
                "values of the encoder to those of the decoder. Pass "
                "EncoderDecoderCache(ByteCache(model, only_self_attention=True), "
                "DynamicCache()) of transformers to generate()."
            )
        plain = DynamicCache(config=config).layers
        other = {type(one).__name__ for one in plain} - {DynamicLayer.__name__}
        # RWKV has a state that its config does not mention
        if getattr(model, "_is_stateful", False):
            other.add("recurrent states")
        if other:
            raise ArgumentError(
                f"{kind} has layers that keep more than keys and values of all "
                f"tokens ({', '.join(sorted(other))}). Leave its cache in float."
            )
        self._own = [ByteLayer(format_name) for _ in plain]
        super().__init__(layers=[*self._own])

    @property
    def size_bytes(self) -> int:
        """The bytes of keys, values and scales."""
        return sum(one.size_bytes for one in self._own)


@final
class ByteLayer(DynamicLayer):  # type: ignore[no-untyped-call]  # transformers has few types
    """The cache of one layer: `keys` and `values` are codes, batch x heads x tokens x width.

    Args:
        format_name: As in `ByteCache`.
    """

    def __init__(self, format_name: CacheFormat = "int8") -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # transformers has few types
        self.dtype, self.peak = _FORMATS[format_name]
        self.keys: Any
        self.values: Any
        self.key_scale: Any = None  # None until there are keys and values
        self.value_scale: Any = None

    @override
    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        self.device = key_states.device
        self.keys, self.key_scale = self._codes(key_states[..., :0, :])
        self.values, self.value_scale = self._codes(value_states[..., :0, :])
        self.is_initialized = True

    @override
    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Append keys and values; return all stored ones, in the precision of the new ones."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        self.keys, self.key_scale = self._longer(self.keys, self.key_scale, key_states)
        self.values, self.value_scale = self._longer(self.values, self.value_scale, value_states)
        return (
            _floats(self.keys, self.key_scale, key_states.dtype),
            _floats(self.values, self.value_scale, value_states.dtype),
        )

    def _codes(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the codes of x, and their scales, batch x heads x tokens x 1."""
        wide = x.float()
        scale = (wide.abs().amax(-1, keepdim=True) / self.peak).clamp_(min=_SMALLEST)
        # rounded first, so that codes match the stored scale
        scale = scale.to(_scale_dtype(x))
        codes = wide / scale.float()
        if not self.dtype.is_floating_point:
            codes = codes.round_()
        return codes.clamp_(-self.peak, self.peak).to(self.dtype), scale

    def _longer(self, codes: Tensor, scale: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        more, its_scale = self._codes(x)
        return torch.cat([codes, more], -2), torch.cat([scale, its_scale], -2)

    @property
    def size_bytes(self) -> int:
        """The bytes of keys, values and scales."""
        kept = (self.keys, self.key_scale, self.values, self.value_scale)
        return sum(one.nbytes for one in kept if one is not None)

    @override
    def reorder_cache(self, beam_idx: Tensor) -> None:
        self.batch_select_indices(beam_idx)

    @override
    def batch_select_indices(self, indices: Tensor) -> None:
        self._change(lambda one: one[indices.to(one.device)])

    @override
    def batch_repeat_interleave(self, repeats: int) -> None:
        self._change(lambda one: one.repeat_interleave(repeats, dim=0))

    @override
    def crop(self, tokens_to_remove: int) -> None:
        """Remove the last `-tokens_to_remove` tokens; the argument is not positive."""
        if tokens_to_remove > 0:
            raise ArgumentError(
                f"tokens_to_remove is {tokens_to_remove}; caches crop by a negative number. "
                f"Write -{tokens_to_remove} to forget so many tokens."
            )
        if tokens_to_remove:
            self._change(lambda one: one[..., :tokens_to_remove, :])

    @override
    def offload(self) -> None:
        self._change(lambda one: one.to("cpu", non_blocking=True))

    @override
    def prefetch(self) -> None:
        self._change(lambda one: one.to(self.device, non_blocking=True))

    @override
    def reset(self) -> None:
        super().reset()
        self.key_scale = self.value_scale = None

    def _change(self, change: Callable[[Tensor], Tensor]) -> None:
        """Apply `change` to codes and scales, which share all axes but the last."""
        if self.is_initialized:
            self.keys, self.values = change(self.keys), change(self.values)
            self.key_scale, self.value_scale = change(self.key_scale), change(self.value_scale)


def _scale_dtype(x: Tensor) -> torch.dtype:
    """Return the dtype of scales: for half precision two bytes, with the exponents of float32."""
    return torch.bfloat16 if x.dtype in {torch.float16, torch.bfloat16} else torch.float32


def _floats(codes: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
    return codes.to(torch.float32).mul_(scale).to(dtype)
