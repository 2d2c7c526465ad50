"""Experts of transformers as linear layers: theirs lie in one parameter, as no block engine reads.

Files, and programs such as vLLM, hold them one by one anyway.
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
"""What transformers' `use_experts_implementation` sets on experts."""
_FIRST, _GATE, _UP, _DOWN = "gate_up_proj", "gate_proj", "up_proj", "down_proj"


@final
class SeparateExperts(nn.Module):
    """Experts of a mixture, each a module of linear layers, named as in most files.

    Children are "0", "1", ... with `gate_proj` (where there is a gate), `up_proj` and `down_proj`.
    All of them run, on the tokens that chose them, which may be none: whichever way tokens go, a
    trace sees each layer.
    """

    def __init__(self, experts: nn.Module) -> None:
        super().__init__()
        stacks = {name: one.detach() for name, one in experts.named_parameters(recurse=False)}
        for name in stacks:
            delattr(experts, name)
        self.has_gate = bool(experts.has_gate)
        self.is_concatenated = bool(experts.is_concatenated)
        self.activation = experts
        """What is left of them: the activation, with its constants."""
        self.count = len(stacks[_DOWN])
        turned = bool(experts.is_transposed)
        for number in range(self.count):
            own = {
                name: one[number].mT if turned and one.ndim > 2 else one[number]  # noqa: PLR2004 (e x ...)
                for name, one in stacks.items()
            }
            self.add_module(str(number), self._expert(own))

    def _expert(self, own: dict[str, Tensor]) -> nn.Module:
        """Return one expert of its matrices, o x i, and biases, o."""
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
        """Return what the chosen experts make of each token, summed by their shares, t x d.

        Args:
            hidden: t x d.
            chosen: The numbers of the experts of each token, t x k; `count` and above is none.
            shares: Of these, t x k.
        """
        experts = [self.get_submodule(str(number)) for number in range(self.count)]
        places = [torch.where(chosen == number) for number in range(self.count)]
        # first all first layers, so that a walk over the layers meets those that can go together
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
    """Return a layer of these values: views, no memory of their own."""
    assert weight is not None  # noqa: S101 (a bias alone may be missing)
    with torch.device("meta"):
        layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    layer.weight = nn.Parameter(weight, requires_grad=weight.is_floating_point())
    if bias is not None:
        layer.bias = nn.Parameter(bias)
    return layer


def stacked_experts(model: nn.Module) -> dict[str, nn.Module]:
    """Return the modules that `separate_experts` takes, by name.

    They have the form of `transformers.integrations.use_experts_implementation`.
    """
    return {
        name: one
        for name, one in model.named_modules()
        if all(hasattr(one, mark) for mark in _MARKS) and hasattr(one, _DOWN)
    }


def separate_experts(model: nn.Module) -> nn.Module:
    """Turn experts of `model` that lie in one parameter into linear layers, and return it.

    Made for mixtures of transformers, whose experts have the form of
    `transformers.integrations.use_experts_implementation` (Mixtral, Qwen's, OLMoE, DeepSeek,
    GPT-OSS); others, and those with a norm behind each expert, stay as they are, and the log
    tells. A model without experts is returned as it is.
    What computes with linear layers takes them then: `quantize_blocks`, `prune_blocks`. To load
    what `nncfx.save` wrote of it, call this on the fresh model, too.

    Args:
        model: Plain; it is changed in place, and its weights take no more memory.

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
