"""Weight-only quantization of matrices, filters and embeddings."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, overload

from torch import Tensor, nn

from nncfx.controllers.base.nncf_names import tells_arguments
from nncfx.errors import ArgumentError, GraphError, require_known, shortened
from nncfx.graph import NNCFGraph, Operation
from nncfx.graph.stacked_matrices import stacked_matrices
from nncfx.network import NNCFNetwork, wrap
from nncfx.operators import functions_of, operation_kind
from nncfx.quantization.grid.plan import FloatOperation, PlannedQuantizer, QuantizationPlan
from nncfx.quantization.grid.quantizer import Quantizer
from nncfx.quantization.grid.spec import QuantizerSpec, fitting_group
from nncfx.quantization.packing.pack_weights import codes_fix, pack_weights
from nncfx.quantization.placement.insertions import insert_quantizers, place_quantizers
from nncfx.quantization.placement.operands import operands_of
from nncfx.quantization.placement.scope_check import check_scopes
from nncfx.quantization.placement.transposed_weights import transposed_weights
from nncfx.quantization.ranges.calibration import set_sparse_errors, set_weight_ranges
from nncfx.quantization.ranges.range_estimation import RangeRequest
from nncfx.quantization.rounding.layer_rounding import round_weights
from nncfx.tracing import ExampleInputs, WeightSite
from nncfx.tracing.calls.model_copy import own_model
from nncfx.tracing.calls.module_check import parametrization_fix, require_module

ALGORITHM: Final = "weight_quantization"
"""The algorithm's name on its insertions."""

Method = Literal["gptq", "round", "hqq"]

_METHODS: Final = ("gptq", "round", "hqq")
_LOGGER = logging.getLogger(__name__)
_FUNCTIONS: Final = functions_of("linear", "embedding")
_ATTENTION: Final = "multi_head_attention_forward"
_FILTERING: Final = ("conv", "conv_transpose")
_MULTIPLYING: Final = ("linear", "matmul", "recurrent", *_FILTERING)
_UNGROUPED: Final = ("recurrent", *_FILTERING)
_GROUP: Final = 32
_BYTE: Final = 8
_TOLD: Final = 0.01
"""If a larger share of the model's values stays in float, the log has a warning."""


@overload
def quantize_weights(
    model: nn.Module,
    calibration_batches: Iterable[ExampleInputs] = (),
    *,
    bits: Literal[4, 8] = 8,
    group_size: int | None = None,
    method: Method = "round",
    int8_scopes: Sequence[str] = (),
    ignored_scopes: Sequence[str] = (),
    example_inputs: ExampleInputs | None = None,
    inplace: bool = False,
    pack: Literal[False] = False,
) -> NNCFNetwork: ...


@overload
def quantize_weights(
    model: nn.Module,
    calibration_batches: Iterable[ExampleInputs] = (),
    *,
    bits: Literal[4, 8] = 8,
    group_size: int | None = None,
    method: Method = "round",
    int8_scopes: Sequence[str] = (),
    ignored_scopes: Sequence[str] = (),
    example_inputs: ExampleInputs | None = None,
    inplace: bool = False,
    pack: Literal[True],
) -> nn.Module: ...


@tells_arguments()
def quantize_weights(  # noqa: PLR0913 (the front door of one method)
    model: nn.Module,
    calibration_batches: Iterable[ExampleInputs] = (),
    *,
    bits: Literal[4, 8] = 8,
    group_size: int | None = None,
    method: Method = "round",
    int8_scopes: Sequence[str] = (),
    ignored_scopes: Sequence[str] = (),
    example_inputs: ExampleInputs | None = None,
    inplace: bool = False,
    pack: bool = False,
) -> nn.Module:
    """Return a copy of `model` with quantized weights; activations stay in float.

    With 8 bits, each row of a matrix (an output of a linear layer, a token of an embedding) has
    one scale, and its grid is symmetric. With 4 bits, or a `group_size`, each group of
    neighbouring weights in a row shares a scale and a zero point. If columns are the outputs,
    as in `addmm`, they take the place of rows. Grids of 8 bits cover the largest weight; those
    of 4 bits may clip it (`mse_shares`). Recurrent layers always have 8 bits and a scale per row,
    convolutions 8 bits and a scale per filter, because no runtime reads them in groups. Matrices
    of experts that are stacked in one parameter count as linear layers. Weights that stay in float
    because they are computed are logged; weights that `quantize` has quantized are left alone.

    ONNX Runtime rounds the inputs of packed products to 8 bits per block, so its outputs differ
    by about a percent unless the target has `accuracy_level=1`.

    Args:
        model: Plain or wrapped; it is not changed unless `inplace` is true.
        calibration_batches: Inputs of the model, for "gptq"; each is run once.
        bits: 8 or 4.
        group_size: How many weights of a row share a scale. By default 32 with 4 bits, and whole
            rows with 8. A layer whose rows are not a multiple of it has groups of a half, a
            quarter, ... down to 16, or else 8 bits and a scale per row; this is logged.
        method: "round" to nearest; "gptq", which compensates the rounding of each weight of a
            linear layer, or of a convolution of 1 or 2 axes, with the weights not yet rounded and
            so changes the parameters (other layers round to nearest); or "hqq", which
            rounds to nearest on grids that leave sparse errors and needs no data.
        int8_scopes: Operations whose weights have 8 bits and a scale per row where `bits` is 4,
            such as the head of a language model; patterns as in `ignored_scopes`.
        ignored_scopes: Operations to leave in float: addresses, scopes, `{function}<name>`
            or `{re}` patterns.
        example_inputs: Inputs to trace a plain model with; by default the first batch.
        inplace: Quantize and return `model` itself, wrapped, which needs no memory for a copy.
        pack: Return a plain model that holds integers in memory and decodes them as it runs
            (`packing.pack_weights`); otherwise each forward rounds the float weights.

    Raises:
        ArgumentError: a value is out of range, "gptq" has no batches, there are no inputs to
            trace with, all weights are quantized already, or the model cannot be copied.
        GraphError: a scope matches nothing, or there is no weight to quantize.

    Source: Frantar et al. 2023, GPTQ; Badri and Shaji 2023, HQQ.
    """
    require_module(model, "quantize_weights")
    batches = list(calibration_batches)
    _check(bits, group_size, method, has_batches=bool(batches))
    if not (isinstance(model, NNCFNetwork) or example_inputs is not None or batches):
        raise ArgumentError(
            "The model is not wrapped, and neither example_inputs nor calibration batches say "
            "what it reads. Pass example_inputs=."
        )
    wrapped = own_model(model, inplace=inplace)
    if not isinstance(wrapped, NNCFNetwork):
        wrapped = wrap(wrapped, batches[0] if example_inputs is None else example_inputs)
    group = _GROUP if bits == 4 and group_size is None else group_size  # noqa: PLR2004 (bits)
    plan = _plan(wrapped, bits, group, ignored_scopes, int8_scopes)
    hooks = place_quantizers(wrapped, plan, at_all_names=False)
    set_weight_ranges(wrapped, hooks, _range_of)
    if method == "hqq":
        set_sparse_errors(wrapped, hooks)
    insert_quantizers(wrapped, hooks)
    if method == "gptq":
        round_weights(wrapped, batches)
    return pack_weights(wrapped) if pack else wrapped


def _check(bits: int, group_size: int | None, method: str, *, has_batches: bool) -> None:
    if bits not in {4, 8}:
        raise ArgumentError(
            f"bits is {bits}; runtimes that compute with packed weights take 8 or 4. "
            "Write one of them; quantize_mixed(..., weights_only=True) takes both, by layer."
        )
    if group_size is not None and group_size < 1:
        raise ArgumentError(
            f"group_size is {group_size}; a group has at least one weight. Runtimes take 16, 32, "
            "64, 128 or 256."
        )
    require_known("method", method, _METHODS)
    if method == "gptq" and not has_batches:
        raise ArgumentError(
            "The method 'gptq' rounds by what layers read, and there are no calibration batches. "
            "Pass some, or method='round'."
        )


def _plan(
    model: NNCFNetwork,
    bits: int,
    group: int | None,
    ignored_scopes: Sequence[str],
    int8_scopes: Sequence[str],
) -> QuantizationPlan:
    """Return a plan with a quantizer for each name under which a weight is read."""
    stored = dict(model.named_parameters(remove_duplicate=False))
    rounded = _rounded(model)
    graph = model.nncf.graph
    transposed, stacked = transposed_weights(graph), stacked_matrices(graph)
    planned: dict[str, PlannedQuantizer] = {}
    forms: dict[int, tuple[QuantizerSpec, int]] = {}
    in_float: dict[str, Operation] = {}
    check_scopes(graph, int8_scopes, "int8_scopes")
    in_bytes = {one.address for one in graph.select(int8_scopes)}
    for operation in _not_ignored(graph, ignored_scopes):
        kind = operation_kind(operation.function)
        has_rows = kind in _UNGROUPED or operation.address in in_bytes
        matrices = _matrices(operation, transposed.get(operation.address, {}))
        read = operation.parameters.values()
        matrices |= {name: stacked[name] for name in read if name in stacked}
        in_float |= dict.fromkeys(read, operation)
        for name, axis in matrices.items():
            weight = stored.get(name)
            if (
                weight is None
                or not weight.numel()
                or weight.is_complex()
                or id(weight) in rounded
            ):
                continue  # a buffer, a computed weight, or an empty one
            if id(weight) not in forms:
                asked = (_BYTE, None) if has_rows else (bits, group)
                is_bank = kind in _FILTERING
                forms[id(weight)] = _form(name, weight, axis, *asked, is_bank=is_bank)
            spec, scales = forms[id(weight)]
            before = planned[name].operations if name in planned else ()
            planned[name] = PlannedQuantizer(
                name=f"{operation.address}|WEIGHT[{name.rpartition('.')[2]}]",
                role="weight",
                spec=spec,
                sites=(WeightSite.of(name),),
                operations=(*before, operation.address),
                scales=scales,
            )
    _check_found(model, planned, is_rounded=bool(rounded))
    left = {
        name: operation
        for name, operation in in_float.items()
        if name in stored and id(stored[name]) not in forms.keys() | rounded
    }
    _warn_float_weights({name: one.function for name, one in left.items()}, stored)
    return QuantizationPlan(
        hardware="any target",
        quantizers=tuple(planned.values()),
        float_operations=tuple(
            FloatOperation(one.address, operation_kind(one.function), "it reads no matrix")
            for one in dict.fromkeys(left.values())
        ),
        algorithm=ALGORITHM,
    )


def _rounded(model: NNCFNetwork) -> set[int]:
    """Return the ids of the parameters that already have quantizers, as from `quantize`."""
    sites = {str(one.site) for one in model.nncf.hooks if isinstance(one.hook, Quantizer)}
    parameters = model.named_parameters(remove_duplicate=False)
    return {id(one) for name, one in parameters if name in sites}


def _check_found(
    model: NNCFNetwork, planned: Mapping[str, PlannedQuantizer], *, is_rounded: bool
) -> None:
    fix = parametrization_fix(model)
    if not planned and is_rounded:
        raise ArgumentError(
            "All weights outside of ignored_scopes pass quantizers already. Quantize the float "
            "model, or continue with this one as it is."
        )
    if not planned:
        raise GraphError(
            "The model has no linear, convolutional, recurrent or embedding layer outside of "
            "ignored_scopes whose weight is a parameter, so there is nothing to quantize."
            + (codes_fix(model) or fix)
        )
    if fix:
        _LOGGER.warning("quantize_weights leaves alone weights that are not parameters.%s", fix)


def _range_of(planned: PlannedQuantizer) -> RangeRequest:
    return RangeRequest(method="min_max" if planned.spec.bits == _BYTE else "mse_shares")


def _warn_float_weights(functions: Mapping[str, str], stored: Mapping[str, Tensor]) -> None:
    """Log which weights of more than one axis stay in float, and what reads them."""
    left = {name: one for name, one in functions.items() if stored[name].ndim > 1}
    if not left:
        return
    named = [f"'{name}' ({function})" for name, function in left.items()]
    total = sum({id(one): one.numel() for one in stored.values()}.values())
    share = sum({id(stored[name]): stored[name].numel() for name in left}.values()) / total
    _LOGGER.log(
        logging.WARNING if share > _TOLD else logging.INFO,
        "quantize_weights leaves %.1f %% of the model's values in float: %s. It takes weights "
        "of linear, convolutional, recurrent and embedding layers.",
        100 * share,
        shortened(named),
    )


def _not_ignored(graph: NNCFGraph, ignored_scopes: Sequence[str]) -> list[Operation]:
    check_scopes(graph, ignored_scopes, "ignored_scopes")
    ignored = {one.address for one in graph.select(ignored_scopes)}
    return [one for one in graph.operations if one.address not in ignored]


def _matrices(operation: Operation, transposed: Mapping[int, str]) -> dict[str, int]:
    """Return the weights of `operation`, each with its output axis."""
    if operation.function in _FUNCTIONS:
        # `operands_of` skips products of two parameters, which a linear layer can have
        return {operation.parameters[1]: 0} if 1 in operation.parameters else {}
    if operation.function == _ATTENTION:
        shapes = {port: one.shape for port, one in enumerate(operation.inputs) if one is not None}
        named = operation.parameters.items()
        return {name: 0 for port, name in named if len(shapes.get(port, ())) == 2}  # noqa: PLR2004 (a matrix)
    kind, operands = operation_kind(operation.function), operands_of(operation, transposed)
    if kind not in _MULTIPLYING or operands.axis is None:
        return {}
    return dict.fromkeys(operands.weights.values(), operands.axis)


def _form(
    name: str, weight: Tensor, axis: int, bits: int, group: int | None, *, is_bank: bool
) -> tuple[QuantizerSpec, int]:
    """Return the spec of a weight, with scales per output or per group, and its number of scales.

    Where the group does not divide the row length, it is halved, since runtimes support powers of
    two; if no group fits, the row has a single scale and 8 bits.
    """
    columns = axis == weight.ndim - 1
    length = weight.shape[-2 if columns else -1]
    own = fitting_group(group, length)
    if own != group:
        bits = _BYTE if own is None else bits
        _LOGGER.warning(
            "quantize_weights gives '%s' %d bits and %s: its rows have %d weights, not a "
            "multiple of the group_size %s.",
            name,
            bits,
            "a scale for each row" if own is None else f"groups of {own}",
            length,
            group,
        )
    if own is None and (is_bank or weight.ndim == 2):  # noqa: PLR2004 (a matrix)
        return QuantizerSpec(bits=bits, axis=axis, narrow=True), weight.shape[axis]
    if own is None:
        spec = QuantizerSpec(bits=bits, group=length, columns=columns, narrow=True)
    else:
        grid = QuantizerSpec(bits=bits, mode="asymmetric", signed=False, group=own)
        spec = grid.replace(columns=columns)
    return spec, weight.numel() // (own or length)
