"""What kind of work a torch function does, in the words that hardware descriptions use."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

__all__ = ["CONTRACTIONS", "KINDS", "MOVEMENTS", "NORMS", "operation_kind", "unknown_kinds"]

_FUNCTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "add": ("__add__", "__iadd__", "__radd__", "add", "add_"),
    "attention": ("scaled_dot_product_attention", "multi_head_attention_forward"),
    "avg_pool": (
        *("avg_pool1d", "avg_pool2d", "avg_pool3d", "adaptive_avg_pool1d"),
        *("adaptive_avg_pool2d", "adaptive_avg_pool3d", "mean"),
    ),
    "batch_norm": ("batch_norm",),
    "clip": ("clamp", "clamp_", "clip", "hardtanh", "hardtanh_", "relu6", "clamp_min"),
    "concat": ("cat", "concat", "concatenate"),
    "conv": ("conv1d", "conv2d", "conv3d"),
    "conv_transpose": ("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"),
    "div": ("__truediv__", "__itruediv__", "__rtruediv__", "div"),
    "dropout": ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "dropout_"),
    "embedding": ("embedding", "embedding_bag"),
    "gelu": ("gelu",),
    "hardsigmoid": ("hardsigmoid", "hardsigmoid_"),
    "hardswish": ("hardswish", "hardswish_"),
    "interpolate": ("interpolate", "upsample"),
    "layer_norm": (
        *("layer_norm", "group_norm", "instance_norm", "rms_norm", "local_response_norm"),
    ),
    "leaky_relu": ("leaky_relu", "leaky_relu_", "prelu", "elu", "elu_", "rrelu"),
    "linear": ("linear", "addmm", "bilinear"),
    "matmul": (
        *("matmul", "__matmul__", "__rmatmul__", "linalg_matmul"),
        *("bmm", "mm", "baddbmm", "einsum"),
    ),
    "max_pool": (
        *("max_pool1d", "max_pool2d", "max_pool3d", "adaptive_max_pool1d"),
        *("adaptive_max_pool2d", "adaptive_max_pool3d"),
    ),
    "mul": ("__mul__", "__imul__", "__rmul__", "mul", "mul_", "multiply"),
    "pad": ("pad",),
    "recurrent": ("lstm", "gru", "rnn_tanh", "rnn_relu", "lstm_cell", "gru_cell"),
    "relu": ("relu", "relu_"),
    "sigmoid": ("sigmoid", "sigmoid_"),
    "silu": ("silu", "silu_"),
    "slice": ("__getitem__", "narrow", "select", "split", "chunk", "unbind", "split_with_sizes"),
    "softmax": ("softmax", "log_softmax"),
    "sub": ("__sub__", "__isub__", "__rsub__", "sub"),
    "tanh": ("tanh", "tanh_"),
    "transpose": (
        *("transpose", "permute", "swapaxes", "movedim", "T", "mT", "t", "channel_shuffle"),
        *("pixel_shuffle", "pixel_unshuffle", "roll", "flip"),
    ),
    "view": (
        *("view", "reshape", "flatten", "squeeze", "unsqueeze", "contiguous", "unflatten"),
        *("expand", "expand_as", "view_as", "clone", "detach", "repeat", "ravel"),
    ),
}

KINDS: Final = frozenset(_FUNCTIONS)
"""All kinds; a function that is none of these has the kind `"other"`."""

CONTRACTIONS: Final = frozenset({"conv", "conv_transpose", "linear", "matmul"})
"""The kinds that sum products: what integer kernels are made for."""

MOVEMENTS: Final = frozenset({"dropout", "max_pool", "pad", "slice", "transpose", "view"})
"""The kinds whose every output element is one of the input's (in inference): what is on a grid
of integers stays on it."""

NORMS: Final = frozenset({"batch_norm", "layer_norm"})

_KIND_OF: Final[Mapping[str, str]] = MappingProxyType(
    {function: kind for kind, functions in _FUNCTIONS.items() for function in functions},
)


def operation_kind(function: str) -> str:
    """Return the kind of a traced function, by its spelling in an address.

    >>> operation_kind("conv2d"), operation_kind("__iadd__"), operation_kind("fft_fft")
    ('conv', 'add', 'other')
    """
    return _KIND_OF.get(function, "other")


def unknown_kinds(names: Iterable[str]) -> list[str]:
    """Return those of `names` that are no kind, in order."""
    return [name for name in names if name not in KINDS]
