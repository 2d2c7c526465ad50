"""Attention whose heads together are narrower than its input."""

from typing import cast

import torch
from torch import nn
from torch.nn import functional as F
from typing_extensions import override

_BATCHED = 3  # axes: batch, tokens, channels
_PER_HEAD = 3  # axes of a mask: batch times heads, queries, keys


class NarrowAttention(nn.MultiheadAttention):
    """`nn.MultiheadAttention` with whole heads removed.

    torch's own class assumes that its heads together are as wide as its input. This class takes
    every width from its weights, and has the same state.
    """

    @override
    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        key_padding_mask: torch.Tensor | None = None,
        need_weights: bool = True,
        attn_mask: torch.Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return the output as torch's class would, and the weights of the remaining heads."""
        if query.is_nested:  # torch's encoder nests padded sequences in evaluation mode
            given = zip(query.unbind(), key.unbind(), value.unbind(), strict=True)
            found = [self(*one, None, need_weights=False, attn_mask=attn_mask)[0] for one in given]
            return torch.nested.as_nested_tensor(found), None
        q, k, v = self._projected(query, key, value)
        mask = self._mask(q, key_padding_mask, attn_mask)
        rate = self.dropout if self.training else 0.0
        weights: torch.Tensor | None = None
        if need_weights:
            scores = (q * q.shape[-1] ** -0.5) @ k.mT
            weights = (scores if mask is None else scores + mask).softmax(-1)
            weights = F.dropout(weights, rate)
            mixed = weights @ v
            weights = weights.mean(1) if average_attn_weights else weights
        else:
            causal = is_causal and key_padding_mask is None
            mixed = F.scaled_dot_product_attention(
                q, k, v, None if causal else mask, rate, is_causal=causal
            )
        result = self.out_proj(mixed.transpose(1, 2).flatten(2))
        if query.dim() < _BATCHED:
            return result[0], None if weights is None else weights[0]
        return result if self.batch_first else result.transpose(0, 1), weights

    def _projected(self, *inputs: torch.Tensor) -> list[torch.Tensor]:
        """Return queries, keys and values, each `n x heads x tokens x width`."""
        # Read attributes, so that hooks and parametrizations apply.
        weight = cast("torch.Tensor | None", self.in_proj_weight)
        bias = cast("torch.Tensor | None", self.in_proj_bias)
        query, key, value = inputs
        if weight is not None and query is key is value:
            parts = F.linear(query, weight, bias).chunk(3, -1)
        else:
            own = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
            weights = own if weight is None else weight.chunk(3)
            biases = (None,) * 3 if bias is None else bias.chunk(3)
            parts = tuple(map(F.linear, inputs, weights, biases))
        return [self._by_head(one) for one in parts]

    def _by_head(self, data: torch.Tensor) -> torch.Tensor:
        batch = data[None] if data.dim() < _BATCHED else data
        if data.dim() == _BATCHED and not self.batch_first:
            batch = batch.transpose(0, 1)
        return batch.reshape(*batch.shape[:-1], self.num_heads, -1).transpose(1, 2)

    def _mask(
        self,
        query: torch.Tensor,
        key_padding_mask: torch.Tensor | None,
        attn_mask: torch.Tensor | None,
    ) -> torch.Tensor | None:
        """Return the mask that is added to the scores."""
        if attn_mask is not None:
            attn_mask = _added(attn_mask, query.dtype)
            if attn_mask.dim() == _PER_HEAD:
                attn_mask = attn_mask.reshape(len(query), -1, *attn_mask.shape[1:])
        if key_padding_mask is None:
            return attn_mask
        padding = _added(key_padding_mask, query.dtype)
        padding = padding.reshape(len(query), 1, 1, padding.shape[-1])
        return padding if attn_mask is None else attn_mask + padding


def narrow_attention(module: nn.Module) -> bool:
    """Turn a module into a `NarrowAttention`, in place, if needed; return whether it was."""
    if type(module) is not nn.MultiheadAttention or module.bias_k is not None:
        return False
    own = dict(module.named_parameters(recurse=False))
    queries = own["in_proj_weight"] if "in_proj_weight" in own else own["q_proj_weight"]
    widths = {module.out_proj.in_features, module.out_proj.out_features, queries.shape[1]}
    if module.add_zero_attn or widths == {module.embed_dim}:
        return False
    keys, values = own.get("k_proj_weight", queries), own.get("v_proj_weight", queries)
    module.embed_dim = queries.shape[1]
    module.kdim, module.vdim = keys.shape[1], values.shape[1]
    module.__class__ = NarrowAttention
    module._qkv_same_embed_dim = False  # noqa: SLF001 (nn.TransformerEncoderLayer reads it)
    return True


def _added(mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    if mask.dtype != torch.bool:
        return mask
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(mask, -torch.inf)
