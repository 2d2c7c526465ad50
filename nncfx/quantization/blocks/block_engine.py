"""Compress the blocks of a model one after another, each on what the ones before now return."""

import dataclasses
import inspect
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, Literal

import torch
from torch import Tensor, nn

from nncfx.errors import ArgumentError, CompressionError, require_known, shortened
from nncfx.narration import tracked
from nncfx.quantization.blocks.activation_scales import best_scales, scalable_groups, scale_group
from nncfx.quantization.blocks.block_calls import BlockCall, advanced, block_calls, find_blocks
from nncfx.quantization.blocks.block_layers import (
    BlockLayers,
    LayerGroup,
    find_block_layers,
    group_moments,
    warn_left,
    warn_unread,
)
from nncfx.quantization.blocks.weight_formats import (
    WEIGHT_FORMATS,
    WeightFormat,
    fitted_grid,
    format_spec,
)
from nncfx.quantization.grid.spec import QuantizerSpec
from nncfx.quantization.grid.stored_weights import on_grid
from nncfx.quantization.packing.linear_layers import is_turned
from nncfx.quantization.packing.pack_weights import (
    become,
    become_packed,
    is_packed,
    mark_packed,
    owners_of_weights,
    packed_layer,
)
from nncfx.quantization.rounding.curvature import Curvature, check_finite, curvature
from nncfx.quantization.rounding.gptq import round_matrix
from nncfx.storage.models.integer_tensor import IntegerTensor
from nncfx.tracing import ExampleInputs, as_call
from nncfx.tracing.calls.model_copy import own_model
from nncfx.tracing.calls.preservation import preserved

_LOGGER = logging.getLogger(__name__)
_METHODS: Final = ("round", "gptq", "hqq")
_LEFT: Final = ("stay in float", " separate_experts makes such layers of experts.")

BlockWork = Callable[[str, nn.Module, Sequence[BlockCall], Sequence[Tensor | None]], None]
"""Compresses one block in place: its name, itself, its calls, and which of their rows count."""


@dataclass(frozen=True, kw_only=True)
class WeightSettings:
    """How the linear layers of blocks are quantized.

    Attributes:
        weights: The format: a name of `WEIGHT_FORMATS`.
        group_size: How many weights of a row share a scale; None for whole rows.
        method: "gptq" or "round", where the grid clips what matters least to the inputs; or
            "hqq", which needs no data and rounds on the grid that leaves sparse errors.
        scales: "awq" to give inputs of large magnitude a finer grid first, where a norm or a
            linear layer makes them for linear layers alone.
        half_scales: Round the scales of groups to float16, for files that hold no others.

    Raises:
        ArgumentError: a value is not admissible.
    """

    weights: WeightFormat = "int4"
    group_size: int | None = 128
    method: Literal["gptq", "round", "hqq"] = "gptq"
    scales: Literal["awq"] | None = None
    half_scales: bool = False

    def __post_init__(self) -> None:
        if self.group_size is not None and self.group_size < 1:
            raise ArgumentError(
                f"group_size is {self.group_size}; a group has at least one weight. Runtimes take "
                "32, 64 or 128."
            )
        format_spec(self.weights, self.group_size, self.group_size or 0)
        require_known("method", self.method, _METHODS)
        if self.scales not in {None, "awq"}:
            raise ArgumentError(f"There are no scales '{self.scales}'. Write 'awq' or None.")
        if self.method == "hqq" and WEIGHT_FORMATS[self.weights].power_of_two:
            raise ArgumentError(
                f"The method 'hqq' fits scales, and those of '{self.weights}' are powers of two. "
                "Write method='gptq' or 'round', or another format."
            )

    @property
    def needs_data(self) -> bool:
        """Whether what layers read counts."""
        return self.method != "hqq" or self.scales is not None


def quantize_blocks(
    model: nn.Module,
    batches: Iterable[ExampleInputs],
    settings: WeightSettings | None = None,
    *,
    rest: WeightFormat | None = None,
    blocks: str | None = None,
    inplace: bool = False,
) -> nn.Module:
    """Return a copy of a model whose blocks hold quantized weights, calibrated in their order.

    Each block sees what the quantized blocks before it return, and within a block each group of
    layers that read the same tensor what the quantized ones before them make. Only the second
    moments of one such group, or of some experts, are in memory at a time. Rows that an argument
    whose name ends in "mask" leaves out do not count.

    Args:
        model: Plain, on any device; its blocks follow one another in one `nn.ModuleList`.
        batches: Inputs of the model; each is run through every block. For language models some
            128 pieces of text as long as they are used. "hqq" without `scales` reads none.
        settings: How.
        rest: The format of linear layers and embeddings outside of the blocks, rounded to
            nearest; by default they stay in float.
        blocks: The name of the list of blocks, where several would do.
        inplace: Quantize and return `model` itself: no memory for a copy.

    Returns:
        The model with `PackedLinear` in place of linear layers, which `nncfx.save` and
        `export_onnx` take; `packing.unpack_weights` gives float layers with quantizers.

    Raises:
        ArgumentError: there are no blocks or batches, a block cannot run alone, or none has a
            layer to quantize.
        CompressionError: what a layer reads, or a weight by "hqq", is not finite.

    Source: Frantar et al. 2023, GPTQ, section 3.3; Lin et al. 2024, AWQ; Badri and Shaji 2023,
    HQQ.
    """
    chosen = settings or WeightSettings()
    own = own_model(model, inplace=inplace)
    names = find_blocks(own, blocks)

    def work(
        name: str, block: nn.Module, calls: Sequence[BlockCall], counted: Sequence[Tensor | None]
    ) -> None:
        del name
        stored = quantize_block(block, calls, counted, chosen)
        finish.append((block, stored))

    finish: list[tuple[nn.Module, Mapping[str, IntegerTensor]]] = []

    def pack() -> None:
        while finish:
            pack_block(*finish.pop())

    run_blocks(own, names, batches if chosen.needs_data else None, work, after=pack)
    check_any_quantized(own, is_any=is_packed(own))
    if rest is not None:
        _quantize_rest(own, rest, chosen.group_size)
    mark_packed(own)
    return own


def check_any_quantized(model: nn.Module, *, is_any: bool) -> None:
    """Refuse a model of which no block has a layer that was quantized.

    Raises:
        ArgumentError: it is one.
    """
    if not is_any:
        raise ArgumentError(
            f"No layer in any block of {type(model).__name__} was quantized: none is a linear "
            "layer that runs once per forward. Use nncfx.quantization.quantize_weights, which "
            "takes any weight that an operation of the model reads."
        )


def run_blocks(
    model: nn.Module,
    names: Sequence[str],
    batches: Iterable[ExampleInputs] | None,
    work: BlockWork,
    *,
    before: Callable[[str], None] = lambda _: None,
    after: Callable[[], None] = lambda: None,
) -> None:
    """Let `work` compress block after block, in place; each sees what those before return now.

    The model runs in evaluation mode on `batches`; None where the work needs no calls: it is given
    none. `before` is called with the name of a block before it is first looked at, `after` when
    nothing will run it any more.
    """
    if batches is None:
        for name in tracked(names, "Compressing blocks"):
            before(name)
            work(name, model.get_submodule(name), (), ())
            after()
        return
    given = list(batches)
    with preserved(model), torch.no_grad():
        before(names[0])  # which runs, to show what blocks return
        calls = block_calls(model, names, given)
        counted = [
            _counted(model, batch, call.hidden)
            for batch, call in zip(given, calls[0], strict=True)
        ]
        present = calls[0]
        for number in tracked(range(len(names)), "Compressing blocks"):
            if number:
                before(names[number])
            block = model.get_submodule(names[number])
            work(names[number], block, present, counted)
            if number + 1 < len(names):
                present = advanced(block, present, calls[number + 1])
            calls[number] = []
            after()


def _counted(model: nn.Module, batch: ExampleInputs, hidden: Tensor) -> Tensor | None:
    """Return which rows of the hidden states are no padding, if an argument "...mask" says so."""
    args, kwargs = as_call(batch)
    named = dict(zip(inspect.signature(model.forward).parameters, args, strict=False)) | kwargs
    for name, mask in named.items():
        if name.endswith("mask") and isinstance(mask, Tensor) and mask.shape == hidden.shape[:-1]:
            return mask.bool()
    return None


def quantize_block(
    block: nn.Module,
    calls: Sequence[BlockCall],
    counted: Sequence[Tensor | None],
    settings: WeightSettings,
) -> dict[str, IntegerTensor]:
    """Round the linear layers of a block, in place; return their codes by name, outputs first."""
    if not settings.needs_data:
        return _quantize_without_data(block, settings)
    # what has no packed form, as a router, would be rounded and yet take its whole memory
    found = find_block_layers(block, calls[0], lambda one: is_turned(one) is not None)
    warn_left(block, [one.weight for group in found.groups for one in group.layers], *_LEFT)
    if settings.scales == "awq":
        _apply_scales(block, found, calls, counted, settings)
    stored: dict[str, IntegerTensor] = {}
    unread: list[str] = []
    only_energies = settings.method != "gptq"
    for wave in found.waves(only_energies=only_energies):
        all_moments: Sequence[Tensor | None] = [None] * len(wave)
        if settings.method != "hqq":
            all_moments = group_moments(block, wave, calls, counted, only_energies=only_energies)
        for group, moments in zip(wave, all_moments, strict=True):
            stored |= _round_group(group, moments, settings, unread)
    warn_unread(block, unread, "rounded to nearest")
    return stored


def _round_group(
    group: LayerGroup, moments: Tensor | None, settings: WeightSettings, unread: list[str]
) -> dict[str, IntegerTensor]:
    """Round the layers of a group by the moments of what they read; return their codes by name.

    Those that read nothing are added to `unread`.
    """
    spec = format_spec(settings.weights, settings.group_size, group.width)
    energies, known = None, None
    if moments is not None:
        check_finite(moments)
        energies = moments.diagonal() if moments.ndim == 2 else moments  # noqa: PLR2004 (i x i)
        if not energies.any():
            unread += [one.name for one in group.layers]
            energies = None
        elif settings.method == "gptq":
            # the inverse takes longer than all else
            known = curvature(moments)
    stored: dict[str, IntegerTensor] = {}
    for layer in group.layers:
        codes = _rounded(layer.rows.contiguous(), spec, settings, energies, known)
        layer.take(codes.dequantize())
        stored[layer.name] = codes
    return stored


def _quantize_without_data(block: nn.Module, settings: WeightSettings) -> dict[str, IntegerTensor]:
    """Do as `quantize_block`; linear layers are known by their class, since nothing runs."""
    stored: dict[str, IntegerTensor] = {}
    for name, module in block.named_modules():
        turned = is_turned(module)
        if turned is None:
            continue
        weight = module.get_parameter("weight")
        rows = (weight.mT if turned else weight).detach().contiguous()
        if not rows.isfinite().all():
            raise CompressionError(
                f"The weight of '{name}' is NaN or infinite, so it has no grid. Load the trained "
                "weights again."
            )
        spec = format_spec(settings.weights, settings.group_size, rows.shape[1])
        codes = _rounded(rows, spec, settings)
        found = codes.dequantize()
        weight.data = found.mT.contiguous() if turned else found
        stored[name] = codes
    warn_left(block, [block.get_parameter(f"{name}.weight") for name in stored], *_LEFT)
    return stored


def _rounded(
    weight: Tensor,
    spec: QuantizerSpec,
    settings: WeightSettings,
    energies: Tensor | None = None,
    known: Curvature | None = None,
) -> IntegerTensor:
    """Return a matrix, o x i, on its grid: by its inputs' curvature, or to nearest."""
    grid = fitted_grid(
        weight,
        spec,
        energies,
        half_scales=settings.half_scales,
        half_quadratic=settings.method == "hqq",
    )
    # rounded in float32, they are on the grid; in their own precision they might not be
    values = weight.float()
    if known is not None:
        values = round_matrix(values, known, *grid, spec).values
    return dataclasses.replace(on_grid(values, *grid, spec), dtype=weight.dtype)


def _apply_scales(
    block: nn.Module,
    found: BlockLayers,
    calls: Sequence[BlockCall],
    counted: Sequence[Tensor | None],
    settings: WeightSettings,
) -> None:
    scalable = scalable_groups(block, found)
    if not scalable:
        _warn_unscaled(type(block).__name__)
        return  # without running the block for nothing
    all_moments = group_moments(block, [group for group, _ in scalable], calls, counted)
    for (group, producers), moments in zip(scalable, all_moments, strict=True):
        scales = best_scales(group.layers, moments, settings.weights, settings.group_size)
        scale_group(group, producers, scales)


@cache
def _warn_unscaled(kind: str) -> None:
    """Say, once for all blocks of a kind, that scales were asked for and are none."""
    _LOGGER.warning(
        "No layer of %s takes scales of 'awq', so it is rounded without them: nothing that "
        "makes the layers' inputs alone has a weight to divide (Gemma's norms multiply by 1 + "
        "weight).",
        kind,
    )


def pack_block(block: nn.Module, stored: Mapping[str, IntegerTensor]) -> None:
    """Replace the layers of `block` by layers of codes."""
    for name, one in stored.items():
        module = block.get_submodule(name)
        layer = packed_layer(module, one, is_by_rows=True)
        if layer is not None:
            become(module, layer)


def _quantize_rest(model: nn.Module, weights: WeightFormat, group_size: int | None) -> None:
    """Replace the linear layers and embeddings that are still in float."""
    for modules in owners_of_weights(model).values():
        weight = modules[0].get_parameter("weight").detach()
        if all(isinstance(one, nn.Linear | nn.Embedding) for one in modules):
            spec = format_spec(weights, group_size, weight.shape[1])
            become_packed(modules, on_grid(weight, *fitted_grid(weight, spec), spec))
    left = [name for name, one in model.named_modules() if isinstance(one, nn.Embedding)]
    if left:
        _LOGGER.warning(
            "Tables stay in float: %s. Only tables are quantized that are looked up as "
            "torch.nn.Embedding does it, and that no layer left in float shares.",
            shortened(list(map(repr, left))),
        )
