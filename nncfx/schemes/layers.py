"""Selects the layers of a model that a scheme changes, and their raw parameters."""

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from torch import Tensor, nn

from nncfx.errors import ArgumentError, CompressionError, GraphError, did_you_mean, require_known
from nncfx.storage.models.whole_models import require_numbers
from nncfx.tracing.hooks.dynamic_class import original_class
from nncfx.untrusted import REGULAR, is_found

_RECURRENT: Final = (nn.RNNBase, nn.RNNCellBase)

LAYER_KINDS: Final[Mapping[str, tuple[type[nn.Module], ...]]] = MappingProxyType(
    {
        "linear": (nn.Linear,),
        "conv1d": (nn.Conv1d,),
        "conv2d": (nn.Conv2d,),
        "conv3d": (nn.Conv3d,),
        "embedding": (nn.Embedding, nn.EmbeddingBag),
        "lstm": (nn.LSTM, nn.LSTMCell),
        "gru": (nn.GRU, nn.GRUCell),
        "rnn": (nn.RNN, nn.RNNCell),
    }
)
"""The kinds of layers for schemes on single weights, by name."""

CONDENSA_LAYERS: Final = ("linear", "conv2d")
"""The kinds of layers of Condensa's own schemes."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Layer:
    """A weight of a leaf module, with its bias; both raw (without hooks).

    A recurrent module is several layers, one for each weight matrix.

    Attributes:
        name: Dotted name of the module; "" for the root.
        module: The module itself.
        weight: The weight.
        bias: The bias that goes with it, or None.
        weight_name: The name of the weight within the module.
    """

    name: str
    module: nn.Module
    weight: nn.Parameter
    bias: nn.Parameter | None
    weight_name: str = "weight"


def kinds_of(layers: Iterable[str]) -> tuple[type[nn.Module], ...]:
    """Return the module types for the names in `layers`.

    Raises:
        ArgumentError: there is no name, or a name is not in `LAYER_KINDS`.

    >>> kinds_of(["linear", "gru"])
    (<class 'torch.nn.modules.linear.Linear'>, <class 'torch.nn.modules.rnn.GRU'>, \
<class 'torch.nn.modules.rnn.GRUCell'>)
    """
    names = [layers] if isinstance(layers, str) else list(layers)
    for name in names:
        require_known("kind of layer", name, LAYER_KINDS)
    if not names:
        raise ArgumentError(
            "layers is empty, so the scheme would compress nothing. Use some of "
            f"{', '.join(LAYER_KINDS)}."
        )
    return tuple(kind for name in names for kind in LAYER_KINDS[name])


def kinds_in(model: nn.Module) -> list[str]:
    """Return the kinds of layers that `model` has, by their names in `LAYER_KINDS`.

    >>> kinds_in(nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.GRU(8, 8)))
    ['conv2d', 'gru']
    """
    modules = list(model.modules())
    return [kind for kind, of in LAYER_KINDS.items() if any(isinstance(m, of) for m in modules)]


def turned_kinds() -> tuple[type[nn.Module], ...]:
    """Return linear layers whose columns are the outputs: `Conv1D` of transformers (GPT-2).

    Empty if transformers is not imported, since no model has such a layer then.
    """
    found = sys.modules.get("transformers.pytorch_utils")
    return () if found is None else (found.Conv1D,)


def outputs_first(module: nn.Module, weight: Tensor) -> Tensor:
    """Return the weight of `module`, or a view of it, with a row for each output."""
    return weight.T if isinstance(module, turned_kinds()) else weight


def select_layers(
    model: nn.Module,
    kinds: tuple[type[nn.Module], ...],
    *,
    exact: bool = False,
    ignored: Iterable[str] = (),
) -> list[Layer]:
    """Return the layers of `model` whose type is one of `kinds`, in module order.

    Args:
        model: The model; may be a single layer.
        kinds: Module types.
        exact: Whether to leave out subclasses of the kinds, as their forward may differ. A wrapped
            module counts as its original class.
        ignored: Dotted module names to leave out, or `{re}` patterns searched in them.

    Raises:
        GraphError: an entry of `ignored` matches no module, or is not a valid regular expression.
        CompressionError: a layer has no plain weight (parametrized, lazy or of another library).
    """
    left_out = matching_modules(model, ignored)
    layers: list[Layer] = []
    for name, module in model.named_modules():
        fits = original_class(module) in kinds if exact else isinstance(module, kinds)
        if fits and name not in left_out:
            layers.extend(_layers_of(name, module))
    for one in layers:
        require_numbers(one.weight, f"The {one.weight_name} of '{one.name}'", CompressionError)
    return layers


def layer_parameters(layers: Iterable[Layer], *, biases: bool) -> Iterator[nn.Parameter]:
    """Yield the weights, and with `biases` the biases, of `layers`."""
    for layer in layers:
        yield layer.weight
        if biases and layer.bias is not None:
            yield layer.bias


def parameter_names(model: nn.Module, parameters: Iterable[Tensor]) -> frozenset[str]:
    """Return the dotted names of `parameters` in `model` (one for a shared parameter)."""
    wanted = {id(parameter) for parameter in parameters}
    return frozenset(name for name, p in model.named_parameters() if id(p) in wanted)


def matching_modules(model: nn.Module, patterns: Iterable[str]) -> frozenset[str]:
    """Return the dotted names of the modules that match at least one of `patterns`.

    A pattern is an exact dotted name, or `{re}` and a regular expression searched in the name.

    Raises:
        GraphError: a pattern matches no module, or is not a valid regular expression.
    """
    names = [name for name, _ in model.named_modules()]
    found: set[str] = set()
    for pattern in [patterns] if isinstance(patterns, str) else patterns:
        hits = [name for name in names if _selects(pattern, name)]
        if not hits:
            raise GraphError(
                f"'{pattern}' in ignored matches no module, so nothing would be left out. Use a "
                f"dotted name of model.named_modules().{did_you_mean(pattern, names)}"
            )
        found.update(hits)
    return frozenset(found)


def _selects(pattern: str, name: str) -> bool:
    if not pattern.startswith(REGULAR):
        return pattern == name
    return is_found(pattern, name)


def _layers_of(name: str, module: nn.Module) -> Iterator[Layer]:
    raw = dict(module.named_parameters(recurse=False))
    if isinstance(module, _RECURRENT):
        for own, weight in raw.items():
            if own.startswith("weight_"):
                bias = raw.get(own.replace("weight_", "bias_", 1))
                yield Layer(name=name, module=module, weight=weight, bias=bias, weight_name=own)
        return
    plain = raw.get("weight")
    if plain is None or isinstance(plain, nn.parameter.UninitializedParameter):
        raise CompressionError(
            f"'{name}' ({type(module).__name__}) has no plain weight to compress; it is "
            "parametrized or not yet initialised. Bake parametrizations in "
            "(torch.nn.utils.parametrize.remove_parametrizations), run the model once, or ignore "
            "the module."
        )
    yield Layer(name=name, module=module, weight=plain, bias=raw.get("bias"))
