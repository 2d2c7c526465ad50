"""Which channel rule follows which torch function."""

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from nncfx.channels.rules import movement
from nncfx.channels.rules.contraction import (
    added_product,
    convolution,
    embedding,
    linear,
    transposed_convolution,
)
from nncfx.channels.rules.elementwise import (
    along_axis,
    channel_normalisation,
    group_normalisation,
    normalisation,
    per_channel,
    pointwise,
    reduction,
    unit_length,
    window,
)
from nncfx.channels.rules.products import (
    attention,
    batched_add_product,
    einsum,
    grouped_product,
    matrix_product,
)
from nncfx.channels.rules.recurrent import joined, packed, padded, recurrent, recurrent_cell
from nncfx.channels.rules.weights import batch_normalisation, product, weight_normalisation
from nncfx.channels.state import ChannelState
from nncfx.tracing.record.function_mode import TracedCall

__all__ = ["RULES", "Rule"]

Rule: TypeAlias = Callable[[ChannelState, TracedCall], None]

_POINTWISE: Final = (
    "abs absolute acos acosh add addcdiv addcmul alpha_dropout angle arctan asin asinh atan atan2 "
    "atanh bernoulli bitwise_and bitwise_not bitwise_or bitwise_xor ceil celu clamp clamp_max "
    "clamp_min clip conj copy copysign cos cosh dequantize deg2rad digamma div divide dropout "
    "dropout1d dropout2d dropout3d elu empty_like eq erf erfc erfinv exp exp2 expm1 "
    "feature_alpha_dropout feature_dropout fill float_power floor floor_divide fmax fmin fmod "
    "frac full_like ge gelu greater gt hardshrink hardsigmoid hardswish hardtanh heaviside hypot "
    "isclose isfinite isinf isnan le leaky_relu lerp less lgamma log log10 log1p log2 logaddexp "
    "logical_and logical_not logical_or logical_xor logit logsigmoid lt masked_fill maximum "
    "minimum mish mul multiply nan_to_num ne neg negative not_equal ones_like positive pow "
    "rad2deg rand_like randn_like reciprocal relu relu6 remainder round rrelu rsqrt rsub selu "
    "sgn sigmoid sign silu sin sinc sinh softplus softshrink softsign sqrt square sub subtract "
    "tan tanh tanhshrink threshold true_divide trunc where xlogy zero zeros_like"
)
_OPERATORS: Final = (
    "add sub mul truediv floordiv mod pow rpow rtruediv radd rsub rmul rfloordiv rdiv neg abs "
    "pos invert and or xor rand ror rxor eq ne lt le gt ge iadd isub imul itruediv ipow ifloordiv "
    "imod iand ior ixor"
)
_WINDOWS: Final = (
    "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d "
    "adaptive_max_pool2d adaptive_max_pool3d avg_pool1d avg_pool2d avg_pool3d "
    "fractional_max_pool2d fractional_max_pool3d interpolate lp_pool1d lp_pool2d lp_pool3d "
    "max_pool1d max_pool1d_with_indices max_pool2d max_pool2d_with_indices max_pool3d "
    "max_pool3d_with_indices upsample upsample_bilinear upsample_nearest"
)
_ALONG: Final = "softmax log_softmax softmin cumsum cumprod cummax cummin logcumsumexp argsort"
_REDUCTIONS: Final = (
    "all amax amin aminmax any argmax argmin count_nonzero logsumexp max mean median min nanmean "
    "nansum norm prod std std_mean sum var var_mean"
)
_RECURRENT: Final = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}


def _spelt(names: str, rule: Rule) -> dict[str, Rule]:
    return {form: rule for name in names.split() for form in (name, f"{name}_", f"_{name}")}


RULES: Final[Mapping[str, Rule]] = {
    **_spelt(_POINTWISE, pointwise),
    **{f"__{name}__": pointwise for name in _OPERATORS.split()},
    **_spelt("mul multiply", product),
    **dict.fromkeys(["__mul__", "__rmul__", "__imul__"], product),
    **_spelt(_WINDOWS, window),
    **_spelt(_ALONG, along_axis),
    **_spelt(_REDUCTIONS, reduction),
    "normalize": unit_length,
    "batch_norm": batch_normalisation,
    **dict.fromkeys(["instance_norm", "prelu"], per_channel),
    "_weight_norm": weight_normalisation,
    **dict.fromkeys(["layer_norm", "rms_norm"], normalisation),
    "group_norm": group_normalisation,
    "local_response_norm": channel_normalisation,
    "embedding": embedding,
    "linear": linear,
    **dict.fromkeys(["conv1d", "conv2d", "conv3d"], convolution),
    **dict.fromkeys(
        ["conv_transpose1d", "conv_transpose2d", "conv_transpose3d"],
        transposed_convolution,
    ),
    **movement.RULES,
    **dict.fromkeys(["__matmul__", "matmul", "bmm"], matrix_product),
    **dict.fromkeys(["_grouped_mm", "grouped_mm"], grouped_product),
    "addmm": added_product,
    "baddbmm": batched_add_product,
    "einsum": einsum,
    "scaled_dot_product_attention": attention,
    **{name: recurrent(gates) for name, gates in _RECURRENT.items()},
    **{f"{name}_cell": recurrent_cell(gates) for name, gates in _RECURRENT.items()},
    "_pack_padded_sequence": packed,
    "_pad_packed_sequence": padded,
    "pad_sequence": joined,
}
"""The rule of every torch function that is followed, by its spelling in an address."""
