"""Linear layers and embeddings whose weights are codes in memory."""

from collections.abc import Callable, Iterator
from typing import Any, Final, Self, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from typing_extensions import override

from nncfx.quantization.packing.codes import CodeFormat
from nncfx.quantization.packing.products import is_served, packed_product
from nncfx.schemes.wide_floats import wide
from nncfx.storage.models.integer_tensor import IntegerTensor

_CHUNK: Final = 3 * 2**17
"""Numbers that are decoded at once; in float32 they fit into a core's L2 cache."""

_FEW: Final = 4
"""Most input rows that a compiled program multiplies elementwise while decoding."""


class PackedWeight(nn.Module):
    """A matrix of codes, o x i, stored with the inputs on axis 0.

    Attributes:
        codes: Bytes: i x o, or half as many rows if two codes share a byte.
        scale: g x o for g groups of inputs, or 1 x o; in the narrowest exact dtype.
        zero_point: The integer that represents 0, shaped as `scale` and packed as the codes.
        dtype: Dtype of the decoded weight.
        is_turned: Whether the original layer had the inputs on axis 0.
    """

    is_turned = False

    codes: Tensor
    scale: nn.Parameter
    zero_point: Tensor | None

    def __init__(self, stored: IntegerTensor) -> None:
        """Pack a quantized matrix with its outputs on axis 0 (`codes.as_rows`)."""
        super().__init__()
        self.format = CodeFormat.of(stored)
        self.shape = tuple(stored.values.shape)
        self.bits = stored.bits
        outputs, inputs = self.shape
        scale = stored.scale.expand(outputs) if stored.scale.ndim == 0 else stored.scale
        zero = stored.zero_point.expand_as(scale) if scale.ndim else stored.zero_point
        scale = scale.reshape(outputs, -1).T.contiguous()
        self.is_grouped = len(scale) > 1
        self.group = inputs // len(scale)
        # split at a group, so that parts of the bytes match parts of the scales
        self.split = -(-len(scale) // 2) * self.group if self.is_grouped else -(-inputs // 2)
        self.register_buffer("codes", self.format.pack(stored.values.T, self.split))
        self.dtype = stored.dtype
        narrow = scale.to(stored.dtype)
        is_exact = torch.equal(narrow.to(scale.dtype), scale)
        # a parameter, from which others read the dtype and device of a model
        self.scale = nn.Parameter(narrow if is_exact else scale, requires_grad=False)
        zero = zero.reshape(outputs, -1).T
        self.zero_dtype = stored.values.dtype
        half = -(-len(zero) // 2)
        packed = self.format.pack(zero.to(self.zero_dtype), half) if bool(zero.any()) else None
        self.register_buffer("zero_point", packed)

    def integers(self) -> IntegerTensor:
        """Return the quantized matrix with the outputs on axis 0."""
        zero = self._zeros()
        scale = wide(self.scale).T.reshape(-1).contiguous()
        return IntegerTensor(
            values=self.format.unpack(self.codes, self.shape[1]).T.contiguous(),
            scale=scale,
            zero_point=torch.zeros_like(scale, dtype=torch.int32)
            if zero is None
            else zero.T.reshape(-1).to(torch.int32),
            bits=self.bits,
            axis=None if self.is_grouped else 0,
            group=self.group if self.is_grouped else None,
            codebook=self.format.codebook,
            dtype=self.dtype,
        )

    @override
    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> Self:
        self.dtype = fn(self.scale.new_empty(0, dtype=self.dtype)).dtype
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]  # of torch
        return self

    @property
    def weight(self) -> Tensor:
        """The decoded matrix, o x i; it is decoded on each access."""
        return self.integers().dequantize()

    def _zeros(self) -> Tensor | None:
        if self.zero_point is None:
            return None
        return self.format.unpack(self.zero_point, len(self.scale))

    def product(self, x: Tensor) -> Tensor:
        """Return `x @ weight.T` for inputs of n x i."""
        if torch.is_grad_enabled() and x.requires_grad:
            return F.linear(x, self.weight.to(x.dtype))
        if self.format.is_integer and is_served(x, self.codes):
            group = self.group if self.is_grouped else self.shape[1]
            grid = (self.scale, self.zero_point, group, -self.format.lowest)
            return packed_product(x, self.codes, *grid, is_packed=self.format.is_packed)
        if torch.compiler.is_compiling():
            parts = [(x[:, inputs], numbers) for inputs, numbers in self._numbers(x, whole=True)]
            if len(x) <= _FEW:
                made = sum((one.unsqueeze(2) * other).sum(1) for one, other in parts)
            else:
                made = sum(one @ other for one, other in parts)
            found = made if isinstance(made, Tensor) else x.new_zeros(len(x), self.shape[0])
        else:
            found = x.new_zeros(len(x), self.shape[0])
            for inputs, numbers in self._numbers(x, whole=False):
                found.addmm_(x[:, inputs], numbers)
        return found if self.is_grouped else found * self.scale.to(x.dtype)

    def _numbers(self, x: Tensor, *, whole: bool) -> Iterator[tuple[slice, Tensor]]:
        """Yield slices of the inputs with the weight's numbers for them, inputs x o.

        With one scale for each output, the numbers are not yet multiplied by it.
        """
        inputs, zeros, dtype = self.shape[1], self._zeros(), x.dtype
        rows = len(self.codes)
        unit = self.group if self.is_grouped else 1
        # each part is added to the result; the larger the result, the fewer parts there should be
        least = max(_CHUNK // self.shape[0], 2 * len(x))
        step = rows if whole else max(least // unit, 1) * unit
        buffer = self.scale.new_empty(0, dtype=dtype)
        if not whole:
            buffer = buffer.new_empty(min(step, rows), self.shape[0])
        for start in range(0, rows, step):
            packed = self.codes[start : start + step]
            for high in (False, True) if self.format.is_packed else (False,):
                first = start + (self.split if high else 0)
                last = min(first + len(packed), inputs)
                if first < last:
                    part = packed[: last - first]
                    into = buffer.new_empty(part.shape) if whole else buffer[: len(part)]
                    numbers = self.format.numbers(part, into, high=high)
                    yield slice(first, last), self._on_grid(numbers, first, self.scale, zeros)

    def _on_grid(self, numbers: Tensor, first: int, scale: Tensor, zeros: Tensor | None) -> Tensor:
        """Subtract the zero point from numbers and, if there are groups, multiply by the scale."""
        lowest = self.format.lowest
        if not self.is_grouped:
            if zeros is None and not lowest:
                return numbers
            return numbers.sub_((0 if zeros is None else zeros.to(numbers.dtype)) - lowest)
        groups = slice(first // self.group, (first + len(numbers)) // self.group)
        by_group = numbers.view(-1, self.group, numbers.shape[1])
        scale = scale[groups].to(numbers.dtype).unsqueeze(1)
        if zeros is None and not lowest:
            return by_group.mul_(scale).view_as(numbers)
        shift = -lowest if zeros is None else zeros[groups].to(numbers.dtype).unsqueeze(1) - lowest
        if numbers.dtype != torch.float32:
            return by_group.sub_(shift).mul_(scale).view_as(numbers)
        # one pass instead of two
        return torch.addcmul(scale * -shift, by_group, scale, out=by_group).view_as(numbers)

    @override
    def extra_repr(self) -> str:
        kind = self.format.codebook or str(self.format.dtype).removeprefix("torch.")
        groups = f", groups of {self.group}" if self.is_grouped else ""
        return f"{self.shape[1]}, {self.shape[0]}, {kind}, {self.bits} bits{groups}"


@final
class PackedLinear(PackedWeight):
    """Computes `x @ weight.T + bias` like `nn.Linear`, with a weight of codes.

    The weight is decoded in parts that fit into the cache. Gradients reach the inputs, but not the
    codes.
    """

    bias: Tensor | None

    def __init__(
        self, stored: IntegerTensor, bias: Tensor | None = None, *, is_turned: bool = False
    ) -> None:
        """Pack a quantized matrix with its outputs on axis 0, and keep the bias."""
        super().__init__(stored)
        self.is_turned = is_turned
        self.out_features, self.in_features = self.shape
        self.register_buffer("bias", None if bias is None else bias.detach())

    @override
    def forward(self, x: Tensor) -> Tensor:
        if x.is_nested:  # its rows are not one matrix
            return F.linear(x, self.weight, self.bias)
        found = self.product(x.reshape(-1, x.shape[-1]))
        if self.bias is not None:
            found = found + self.bias
        return found.view(*x.shape[:-1], self.out_features)


@final
class PackedEmbedding(PackedWeight):
    """Looks up rows like `nn.Embedding`, in a table of codes; only those rows are decoded."""

    def __init__(self, stored: IntegerTensor, padding_idx: int | None = None) -> None:
        """Pack a quantized table with its tokens on axis 0."""
        super().__init__(stored)
        self.num_embeddings, self.embedding_dim = self.shape
        self.padding_idx = padding_idx

    @override
    def forward(self, tokens: Tensor) -> Tensor:
        asked = tokens.reshape(-1)
        packed = self.codes.index_select(1, asked)
        scale, zeros = self.scale.index_select(1, asked), self._zeros()
        into = scale.new_empty(packed.shape)
        numbers = self.format.numbers(packed, into)
        if self.format.is_packed:
            other = self.format.numbers(packed, torch.empty_like(into), high=True)
            numbers = torch.cat([numbers[: self.split], other])[: self.embedding_dim]
        zeros = None if zeros is None else zeros.index_select(1, asked)
        found = self._on_grid(numbers, 0, scale, zeros)
        found = found if self.is_grouped else found * scale
        return found.T.reshape(*tokens.shape, self.embedding_dim).to(self.dtype)
