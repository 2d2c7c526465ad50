"""Split experts that transformers stacks in one parameter into linear layers.

The block engine needs linear layers, and files and programs such as vLLM hold experts one by one
anyway.
"""

import logging
from typing import Final, final

import torch
from torch import Tensor, nn
from typing_extensions import override

_LOGGER = logging.getLogger(__name__)
_MARKS: Final = (
    "has_bias",
    "has_gate",
    "has_post_expert_norm",
    "is_concatenated",
    "is_transposed",
)
"""Attributes that transformers' `use_experts_implementation` sets on experts."""
_FIRST, _GATE, _UP, _DOWN = "gate_up_proj", "gate_proj", "up_proj", "down_proj"


@final
class SeparateExperts(nn.Module):
    """Experts of a mixture, each a module of linear layers with the names that most files use.

    Children are "0", "1", ... with `gate_proj` (if there is a gate), `up_proj` and `down_proj`.
    All experts run on the tokens that chose them, even on none, so a trace sees every layer
    however tokens are routed.
    """

    def __init__(self, experts: nn.Module) -> None:
        super().__init__()
        stacks = {name: one.detach() for name, one in experts.named_parameters(recurse=False)}
        for name in stacks:
            delattr(experts, name)
        self.has_gate = bool(experts.has_gate)
        self.is_concatenated = bool(experts.is_concatenated)
        self.activation = experts
        """The original module without its parameters: the activation, with its constants."""
        self.count = len(stacks[_DOWN])
        turned = bool(experts.is_transposed)
        for number in range(self.count):
            own = {
                name: one[number].mT if turned and one.ndim > 2 else one[number]  # noqa: PLR2004 (e x ...)
                for name, one in stacks.items()
            }
            self.add_module(str(number), self._expert(own))

    def _expert(self, own: dict[str, Tensor]) -> nn.Module:
        """Return one expert built from its matrices, o x i, and biases, o."""
        expert = nn.Module()
        if self.has_gate:
            for name, part in ((_GATE, 0), (_UP, 1)):
                bias = own.get(f"{_FIRST}_bias")
                halves = self._half(own[_FIRST], part), self._half(bias, part)
                expert.add_module(name, _linear(*halves))
        else:
            expert.add_module(_UP, _linear(own[_UP], own.get(f"{_UP}_bias")))
        expert.add_module(_DOWN, _linear(own[_DOWN], own.get(f"{_DOWN}_bias")))
        return expert

    def _half(self, both: Tensor | None, part: int) -> Tensor | None:
        if both is None:
            return None
        return both.chunk(2)[part] if self.is_concatenated else both[part::2]

    @override
    def forward(self, hidden: Tensor, chosen: Tensor, shares: Tensor) -> Tensor:
        """Return the weighted sum of the chosen experts' results for each token, t x d.

        Args:
            hidden: Tokens, t x d.
            chosen: Indices of the experts of each token, t x k; `count` and above is no expert.
            shares: Weights of the experts of each token, t x k.
        """
        experts = [self.get_submodule(str(number)) for number in range(self.count)]
        places = [torch.where(chosen == number) for number in range(self.count)]
        # all first layers come first, so that walks over layers find those that can be grouped
        inner = [
            self._inner(one, hidden[rows]) for one, (rows, _) in zip(experts, places, strict=True)
        ]
        result = torch.zeros_like(hidden)
        for one, between, (rows, ranks) in zip(experts, inner, places, strict=True):
            made = one.get_submodule(_DOWN)(between) * shares[rows, ranks, None]
            result = result.index_add(0, rows, made.to(result.dtype))
        return result

    def _inner(self, expert: nn.Module, hidden: Tensor) -> Tensor:
        up: Tensor = expert.get_submodule(_UP)(hidden)
        activation = self.activation
        if not self.has_gate:
            passed: Tensor = activation.get_submodule("act_fn")(up)
            return passed
        gate = expert.get_submodule(_GATE)(hidden)
        both = torch.cat((gate, up), -1)
        if not self.is_concatenated:
            both = torch.stack((gate, up), -1).flatten(-2)
        gated: Tensor = activation._apply_gate(both)  # type: ignore[operator]  # noqa: SLF001 (as transformers calls it)
        return gated


def _linear(weight: Tensor | None, bias: Tensor | None) -> nn.Linear:
    """Return a layer whose parameters share the memory of `weight` and `bias`."""
    assert weight is not None  # noqa: S101 (a bias alone may be missing)
    with torch.device("meta"):
        layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    layer.weight = nn.Parameter(weight, requires_grad=weight.is_floating_point())
    if bias is not None:
        layer.bias = nn.Parameter(bias)
    return layer


def stacked_experts(model: nn.Module) -> dict[str, nn.Module]:
    """Return, by name, the modules that `separate_experts` can split.

    They have the form of `transformers.integrations.use_experts_implementation`.
    """
    return {
        name: one
        for name, one in model.named_modules()
        if all(hasattr(one, mark) for mark in _MARKS) and hasattr(one, _DOWN)
    }


def separate_experts(model: nn.Module) -> nn.Module:
    """Split experts of `model` that are stacked in one parameter into linear layers; return it.

    `quantize_blocks` and `prune_blocks` need this. It supports mixtures of experts in transformers
    that have the form of `transformers.integrations.use_experts_implementation` (Mixtral, Qwen,
    OLMoE, DeepSeek, GPT-OSS). Other experts are not changed; experts followed by a norm are not
    changed either, and a warning is logged. A model without experts is returned unchanged. To
    load a file that `nncfx.save` wrote afterwards, call this on the fresh model, too.

    Args:
        model: Plain; it is changed in place, and its weights take no additional memory.

    >>> import torch
    >>> separate_experts(torch.nn.Linear(2, 2))
    Linear(in_features=2, out_features=2, bias=True)
    """
    left = []
    for name, module in stacked_experts(model).items():
        if module.has_post_expert_norm:
            left.append(name)
            continue
        model.set_submodule(name, SeparateExperts(module).train(module.training))
    if left:
        _LOGGER.warning(
            "separate_experts leaves %s in one parameter: a norm follows each expert.",
            ", ".join(f"'{one}'" for one in left),
        )
    return model
