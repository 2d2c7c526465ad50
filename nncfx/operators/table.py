"""The operator table, which describes each torch operation once for the whole library.

To add an operation, add a row here, or call `register_operator` in your own code, and add rules
for it with `@channel_rule`, `@mac_rule`, or the decorators of `nncfx.hago`.
"""

from typing import Final

from nncfx.operators.operator import Operator, row, rows

_LAYER: Final = "activation weight bias"
_ATTENDED: Final = "activation activation activation"

_CONTRACTIONS: Final = (
    row(
        "conv1d conv2d conv3d", name="conv", kind="conv", work="contraction", ports=_LAYER,
        output_axis=0, macs="fan_in", channels="convolution",
    ),
    row(
        "conv_transpose1d conv_transpose2d conv_transpose3d", name="conv_transpose",
        kind="conv_transpose", work="contraction", ports=_LAYER,
        output_axis=1, macs="fan_out", channels="transposed_convolution",
    ),
    row(
        "linear", kind="linear", work="contraction", ports=_LAYER,
        output_axis=0, macs="product", channels="linear",
    ),
    row(
        "bilinear", kind="linear", work="contraction",
        ports="activation activation weight bias", macs="fan_in",
    ),
    row(
        "addmm", kind="linear", work="contraction", ports="bias left right",
        macs="product", channels="added_product",
    ),
    row(
        "matmul __matmul__ linalg_matmul mm", kind="matmul", work="contraction",
        ports="left right", macs="product", channels="matrix_product",
    ),
    row(
        "bmm", kind="matmul", work="contraction", ports="left right",
        macs="product", channels="matrix_product",
    ),
    row("__rmatmul__", kind="matmul", work="contraction", ports="right left", macs="product"),
    row(
        "baddbmm", kind="matmul", work="contraction", ports="addend left right",
        macs="product", channels="batched_add_product",
    ),
    row(
        "einsum", kind="matmul", work="contraction", ports="factor factor",
        macs="einsum", channels="einsum",
    ),
    row("addbmm", work="contraction", ports="addend left right", macs="batch_reduced_product"),
    row("addmv", work="contraction", ports="addend left right", macs="product"),
    row("mv dot inner", work="contraction", ports="left right", macs="product"),
    row(
        "_grouped_mm grouped_mm", work="contraction", ports="left right",
        macs="product", channels="grouped_product",
    ),
    row(
        "scaled_dot_product_attention", kind="attention", work="attention",
        ports=f"{_ATTENDED} addend", macs="attention", channels="attention",
    ),
    row(
        "multi_head_attention_forward", kind="attention", work="attention",
        ports=f"{_ATTENDED} weight bias bias bias weight bias",
        in_float="its projections are inside",
    ),
    *(
        row(function, kind="recurrent", work="recurrence", macs="recurrent", channels=function)
        for layer in ("lstm", "gru", "rnn_tanh", "rnn_relu")
        for function in (layer, f"{layer}_cell")
    ),
    row(
        "embedding embedding_bag", kind="embedding", work="lookup",
        ports="index weight", output_axis=0, channels="embedding",
    ),
)  # fmt: skip

_NORMS: Final = (
    row("batch_norm", kind="batch_norm", work="normalisation", channels="batch_normalisation"),
    row("layer_norm", kind="layer_norm", work="normalisation", channels="normalisation"),
    row("rms_norm", kind="layer_norm", work="normalisation", channels="normalisation"),
    row("group_norm", kind="layer_norm", work="normalisation", channels="group_normalisation"),
    row("instance_norm", kind="layer_norm", work="normalisation", channels="per_channel"),
    row(
        "local_response_norm",
        kind="layer_norm", work="normalisation", channels="channel_normalisation",
    ),
    row("_weight_norm", work="normalisation", channels="weight_normalisation"),
    row("normalize", work="normalisation", channels="unit_length"),
)  # fmt: skip

_POINTWISE: Final = (
    *rows("add __add__ __iadd__ __radd__", kind="add"),
    *rows("sub subtract __sub__ __isub__ __rsub__", kind="sub"),
    *rows("mul multiply __mul__ __imul__ __rmul__", kind="mul", channels="product"),
    *rows("div divide true_divide __truediv__ __itruediv__ __rtruediv__ __rdiv__", kind="div"),
    *rows("clamp clip, clamp_max, clamp_min, hardtanh, relu6", kind="clip"),
    *rows("relu", kind="relu"),
    *rows("leaky_relu, elu, rrelu", kind="leaky_relu"),
    row("prelu", kind="leaky_relu", channels="per_channel"),
    *rows("gelu", kind="gelu"),
    *rows("hardsigmoid", kind="hardsigmoid"),
    *rows("hardswish", kind="hardswish"),
    *rows("sigmoid", kind="sigmoid"),
    *rows("silu", kind="silu"),
    *rows("tanh", kind="tanh"),
    *rows(
        "dropout, dropout1d, dropout2d, dropout3d, alpha_dropout",
        kind="dropout", work="movement",
    ),
    *rows(
        "abs absolute __abs__, acos, acosh, addcdiv, addcmul, angle, arctan atan, asin, asinh, "
        "atan2, atanh, bernoulli, bitwise_and __and__ __iand__ __rand__, bitwise_not __invert__, "
        "bitwise_or __or__ __ior__ __ror__, bitwise_xor __xor__ __ixor__ __rxor__, ceil, celu, "
        "conj, copy, copysign, cos, cosh, dequantize, deg2rad, digamma, empty_like, eq __eq__, "
        "erf, erfc, erfinv, exp, exp2, expm1, feature_alpha_dropout, feature_dropout, fill, "
        "float_power, floor, floor_divide __floordiv__ __ifloordiv__ __rfloordiv__, fmax, fmin, "
        "fmod, frac, full_like, ge __ge__, greater gt __gt__, hardshrink, heaviside, hypot, "
        "isclose, isfinite, isinf, isnan, le __le__, lerp, less lt __lt__, lgamma, log, log10, "
        "log1p, log2, logaddexp, logical_and, logical_not, logical_or, logical_xor, logit, "
        "log_sigmoid, masked_fill, maximum, minimum, mish, nan_to_num, ne not_equal __ne__, "
        "neg negative __neg__, ones_like, positive __pos__, pow __pow__ __ipow__ __rpow__, "
        "rad2deg, rand_like, randn_like, reciprocal, remainder __mod__ __imod__, round, rsqrt, "
        "rsub, selu, sgn, sign, sin, sinc, sinh, softplus, softshrink, softsign, sqrt, square, "
        "tan, tanhshrink, threshold, trunc, where, xlogy, zero, zeros_like",
    ),
)  # fmt: skip

_OVER_AXES: Final = (
    *rows("softmax, log_softmax", kind="softmax", work="reduction", channels="along_axis"),
    *rows(
        "softmin, cumsum, cumprod, cummax, cummin, logcumsumexp, argsort",
        work="reduction", channels="along_axis",
    ),
    *rows("mean", kind="avg_pool", work="reduction", channels="reduction"),
    *rows(
        "all, amax, amin, aminmax, any, argmax, argmin, count_nonzero, logsumexp, max, median, "
        "min, nanmean, nansum, norm, prod, std, std_mean, sum, var, var_mean",
        work="reduction", channels="reduction",
    ),
    *rows(
        "avg_pool1d, avg_pool2d, avg_pool3d, "
        "adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d",
        kind="avg_pool", work="window", channels="window",
    ),
    *rows(
        "max_pool1d, max_pool2d, max_pool3d, "
        "adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d",
        kind="max_pool", work="movement", channels="window",
    ),
    *rows("interpolate, upsample", kind="interpolate", work="window", channels="window"),
    *rows(
        "fractional_max_pool2d, fractional_max_pool3d, lp_pool1d, lp_pool2d, lp_pool3d, "
        "max_pool1d_with_indices, max_pool2d_with_indices, max_pool3d_with_indices, "
        "upsample_bilinear, upsample_nearest",
        work="window", channels="window",
    ),
)  # fmt: skip

_VIEWS: Final = (
    "clone contiguous detach flatten ravel repeat reshape squeeze unflatten unsqueeze view"
)
_TURNS: Final = "T mT movedim permute swapaxes t transpose"
_RESHAPES: Final = (
    "H mH adjoint atleast_1d atleast_2d atleast_3d data moveaxis repeat_interleave "
    "squeeze_ swapdims t_ tile transpose_ unsqueeze_"
)
_SELECTIONS: Final = (
    "diagonal fliplr flipud gather hsplit index_select masked_select rot90 take take_along_dim "
    "vsplit"
)
_CASTS: Final = "requires_grad_ type float double half bfloat16 int long bool cpu cuda"
_LIKE: Final = "activation like"


def _moving(
    functions: str, *, channels: str, kind: str = "other", ports: str = "activation"
) -> tuple[Operator, ...]:
    return tuple(
        row(one, kind=kind, work="movement", channels=channels, ports=ports)
        for one in functions.split()
    )


_MOVEMENTS: Final = (
    *_moving(_VIEWS, kind="view", channels="reshape"),
    *_moving("view_as", kind="view", channels="reshape", ports=_LIKE),
    *_moving("expand", kind="view", channels="repeated"),
    *_moving("expand_as", kind="view", channels="repeated", ports=_LIKE),
    *_moving(_TURNS, kind="transpose", channels="reshape"),
    *_moving("flip pixel_unshuffle roll", kind="transpose", channels="select"),
    *_moving("pixel_shuffle", kind="transpose", channels="pixel_shuffle"),
    *_moving("channel_shuffle", kind="transpose", channels="fixes"),
    *_moving("__getitem__ narrow select unbind", kind="slice", channels="select"),
    *_moving("split split_with_sizes", kind="slice", channels="split"),
    *_moving("chunk", kind="slice", channels="chunk"),
    *_moving("pad", kind="pad", channels="pad"),
    row("cat concat concatenate", kind="concat", work="join", channels="concatenate"),
    *_moving(_RESHAPES, channels="reshape"),
    *_moving("reshape_as", channels="reshape", ports=_LIKE),
    *_moving("broadcast_to", channels="repeated"),
    *_moving(_SELECTIONS, channels="select"),
    *_moving(_CASTS, channels="cast"),
    *_moving("to type_as", channels="cast", ports=_LIKE),
    *_moving("unsafe_split", channels="split"),
    *_moving("tensor_split unsafe_chunk", channels="chunk"),
    row("stack", work="join", channels="stack"),
    *_moving("__setitem__", channels="assign"),
    *_moving(
        "index_add index_add_ index_copy index_copy_ scatter_add scatter_add_", channels="add_at"
    ),
    *_moving("_pack_padded_sequence", channels="packed"),
    *_moving("_pad_packed_sequence", channels="padded"),
    row("pad_sequence", work="join", channels="joined"),
    row("glu", channels="gate"),
)

ROWS: Final = (*_CONTRACTIONS, *_NORMS, *_POINTWISE, *_OVER_AXES, *_MOVEMENTS)
"""All known operations; any other operation has the kind "other"."""
