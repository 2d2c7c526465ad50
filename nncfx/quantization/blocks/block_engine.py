"""Compress the blocks of a model one after another, each on outputs of the compressed ones."""

import dataclasses
import inspect
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, Literal

import torch
from torch import Tensor, nn

from nncfx.errors import ArgumentError, CompressionError, require_known, require_truths, shortened
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
"""Compresses a block in place, given its name, the block, its calls, and which rows count."""


@dataclass(frozen=True, kw_only=True)
class WeightSettings:
    """How the linear layers of blocks are quantized.

    Attributes:
        weights: The format: a name in `WEIGHT_FORMATS`.
        group_size: How many weights of a row share a scale; None for whole rows.
        method: "gptq" or "round", with clipping that considers the inputs; or "hqq", which needs
            no data and rounds on grids with sparse errors.
        scales: "awq" to first give inputs of large magnitude a finer grid, if they come from a
            norm or a linear layer that only linear layers read.
        half_scales: Round scales to float16, for files that support no other scales.

    Raises:
        ArgumentError: a value is out of range, or values contradict each other.
    """

    weights: WeightFormat = "int4"
    group_size: int | None = 128
    method: Literal["gptq", "round", "hqq"] = "gptq"
    scales: Literal["awq"] | None = None
    half_scales: bool = False

    def __post_init__(self) -> None:
        require_truths(self)
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
        """Whether calibration data is required."""
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
    """Return a copy of a model with quantized weights in its blocks, calibrated one by one.

    Each block is calibrated on the outputs of the quantized blocks before it. Within a block,
    layers that read the same tensor form a group, and each group is calibrated on the outputs of
    the quantized groups before it. Only the second moments of one group, or of some experts, are
    in memory at a time. Rows masked by an argument whose name ends in "mask" are ignored.

    Args:
        model: Plain, on any device; its blocks follow one another in one `nn.ModuleList`.
        batches: Inputs of the model; each runs through every block. For language models use about
            128 texts of the length used in practice. "hqq" without `scales` reads none.
        settings: Settings of the weights; defaults if None.
        rest: The format of linear layers and embeddings outside of the blocks, which are rounded
            to nearest; by default they stay in float.
        blocks: The name of the list of blocks, if there are several candidates.
        inplace: Quantize and return `model` itself, which needs no memory for a copy.

    Returns:
        The model with `PackedLinear` instead of linear layers, for `nncfx.save` and `export_onnx`;
        `packing.unpack_weights` converts it to float layers with quantizers.

    Raises:
        ArgumentError: there are no blocks or batches, a block cannot run alone, or none has a
            layer to quantize.
        CompressionError: the input of a layer, or a weight with "hqq", is not finite.

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
    """Check that a layer in some block was quantized.

    Raises:
        ArgumentError: no layer was.
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
    """Call `work` to compress each block in place, on the outputs of the compressed blocks before.

    The model runs in evaluation mode on `batches`; if they are None, `work` is called without
    calls. `before` is called with the name of a block before its first use, `after` after its
    last.
    """
    if batches is None:
        for name in tracked(names, "Compressing blocks"):
            before(name)
            work(name, model.get_submodule(name), (), ())
            after()
        return
    given = list(batches)
    with preserved(model), torch.no_grad():
        before(names[0])  # this block runs, to record the form of its result
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
    """Return which rows of the hidden states are not padding, by an argument "...mask", if any."""
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
    """Round the linear layers of a block in place; return their codes, o x i, by name."""
    if not settings.needs_data:
        return _quantize_without_data(block, settings)
    # layers without a packed form, such as routers, would be rounded but save no memory
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
    """Round the layers of a group by the moments of their input; return their codes by name.

    Layers whose input is always zero or empty are added to `unread`.
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
            # computed once per group, because the inverse takes longer than the rest
            known = curvature(moments)
    stored: dict[str, IntegerTensor] = {}
    for layer in group.layers:
        codes = _rounded(layer.rows.contiguous(), spec, settings, energies, known)
        layer.take(codes.dequantize())
        stored[layer.name] = codes
    return stored


def _quantize_without_data(block: nn.Module, settings: WeightSettings) -> dict[str, IntegerTensor]:
    """Do the same as `quantize_block` for modules that are linear layers by their class."""
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
    """Return a matrix, o x i, rounded by the curvature of its inputs, or to nearest."""
    grid = fitted_grid(
        weight,
        spec,
        energies,
        half_scales=settings.half_scales,
        half_quadratic=settings.method == "hqq",
    )
    # in float32, rounded values lie on the grid; in the weight's own dtype they might not
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
        return  # no need to run the block
    all_moments = group_moments(block, [group for group, _ in scalable], calls, counted)
    for (group, producers), moments in zip(scalable, all_moments, strict=True):
        scales = best_scales(group.layers, moments, settings.weights, settings.group_size)
        scale_group(group, producers, scales)


@cache
def _warn_unscaled(kind: str) -> None:
    """Warn, once per class of blocks, that requested scales cannot be applied."""
    _LOGGER.warning(
        "No layer of %s takes scales of 'awq', so it is rounded without them: nothing that "
        "makes the layers' inputs alone has a weight to divide (Gemma's norms multiply by 1 + "
        "weight).",
        kind,
    )


def pack_block(block: nn.Module, stored: Mapping[str, IntegerTensor]) -> None:
    """Replace the quantized layers of `block` by packed layers."""
    for name, one in stored.items():
        module = block.get_submodule(name)
        layer = packed_layer(module, one, is_by_rows=True)
        if layer is not None:
            become(module, layer)


def _quantize_rest(model: nn.Module, weights: WeightFormat, group_size: int | None) -> None:
    """Replace linear layers and embeddings that are still in float by packed layers."""
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
