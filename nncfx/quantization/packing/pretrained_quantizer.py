"""Make transformers' `save_pretrained` write packed layers in the format of compressed-tensors.

Otherwise that method would write the codes under names that nothing reads, and a model loaded from
the files would have random weights instead.
"""

import copy
import logging
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, final

import torch
from torch import Tensor, nn
from transformers.quantizers.base import HfQuantizer
from transformers.utils.quantization_config import QuantizationConfigMixin, QuantizationMethod
from typing_extensions import override

from nncfx.errors import StorageError, shortened
from nncfx.quantization.packing.layers import PackedLinear, PackedWeight
from nncfx.quantization.packing.layouts import LAYOUTS, MatrixGrid
from nncfx.quantization.packing.parameters import packed_parameters
from nncfx.quantization.packing.tensor_names import file_names
from nncfx.quantization.preparation.separate_experts import SeparateExperts, stacked_experts

_LOGGER = logging.getLogger(__name__)
_LAYOUT: Final = LAYOUTS["compressed-tensors"]
_FEWEST_BITS: Final = 4
_MXFP4_GROUP: Final = 32


@final
class PretrainedQuantizer(HfQuantizer):
    """The quantizer that transformers asks for the state of a model with packed layers."""

    def __init__(self) -> None:
        super().__init__(QuantizationConfigMixin(QuantizationMethod.COMPRESSED_TENSORS))

    @override
    def is_serializable(self) -> bool:
        return True

    @property
    @override
    def is_trainable(self) -> bool:
        return False

    @override
    def get_state_dict_and_metadata(
        self, model: nn.Module, **_: object
    ) -> tuple[dict[str, Tensor], dict[str, str]]:
        """Return the tensors of `model` by their names in files, and update its config."""
        state, told = _as_in_files(model)
        config = copy.deepcopy(model.config)  # the float model has the same one
        for key, value in told.items():
            setattr(config, key, value)
        model.config = config
        return state, {}


def _as_in_files(model: nn.Module) -> tuple[dict[str, Tensor], Mapping[str, Any]]:
    """Return the tensors of a model with packed layers, and the entries of its config.

    Weights that the files do not support are decoded: embeddings, formats that compressed-tensors
    lacks, and weights whose grid differs from that of most, because transformers 5.24 decodes all
    weights with one grid.
    """
    layers = {
        name: one
        for name, one in model.named_modules(remove_duplicate=False)
        if isinstance(one, PackedWeight)
    }
    tables = {id(one.codes) for one in layers.values() if not isinstance(one, PackedLinear)}
    state = _floats(model, layers)
    called = file_names(model, [*state, *(f"{name}.weight" for name in layers)])
    state = {called.get(name, name): one for name, one in state.items()}
    grids = {name: _grid(one) for name, one in layers.items() if id(one.codes) not in tables}
    counts: Counter[MatrixGrid] = Counter()
    for name, own in grids.items():
        if own is not None:
            counts[own] += math.prod(layers[name].shape)
    grid = max(counts, key=counts.__getitem__, default=None)
    decoded: dict[int, Tensor] = {}
    left = [name for name, _ in packed_parameters(model)]
    for name, layer in layers.items():
        module = _module(name, called)
        if grid is None or grids.get(name) != grid:
            weight = decoded.setdefault(id(layer.codes), layer.weight)
            state[f"{module}.weight"] = weight.T.contiguous() if layer.is_turned else weight
            left.append(name)
            continue
        stored = layer.integers()
        if not grid.is_float:
            stored = replace(stored, bits=grid.bits)
        for part, tensor in _LAYOUT.tensors(stored).items():
            state[f"{module}.{part}"] = tensor
    if grid is None:
        return state, {}
    _check_experts(model, called)
    _tell(left)
    floats = [
        name for name, one in model.named_modules() if isinstance(one, nn.Linear) or name in left
    ]
    # vLLM reads the names in files, transformers those in memory
    ignored = dict.fromkeys([*floats, *(_module(name, called) for name in floats)])
    return state, _LAYOUT.config({grid: ["Linear"]}, list(ignored))


def _module(name: str, called: Mapping[str, str]) -> str:
    """Return the name of a module in files."""
    return called.get(f"{name}.weight", f"{name}.weight").removesuffix(".weight")


def _grid(layer: PackedWeight) -> MatrixGrid | None:
    """Return the grid of a layer in files; None if they do not support it."""
    codebook, dtype = layer.format.codebook, layer.zero_dtype
    is_integer = codebook is None and not dtype.is_floating_point
    exponents = layer.scale.detach().float().log2()
    is_mxfp4 = codebook == "float4_e2m1" and layer.is_grouped and layer.group == _MXFP4_GROUP
    is_mxfp4 = is_mxfp4 and torch.equal(exponents, exponents.round())
    if layer.is_turned or not (is_integer or is_mxfp4 or dtype == torch.float8_e4m3fn):
        return None
    return MatrixGrid(
        # codes of fewer bits are stored in 4
        bits=max(layer.bits, _FEWEST_BITS) if is_integer else layer.bits,
        is_float=not is_integer,
        is_symmetric=dtype != torch.uint8 or codebook is not None,
        group=layer.group if layer.is_grouped else None,
    )


def _check_experts(model: nn.Module, called: Mapping[str, str]) -> None:
    """Check that transformers can load the experts of a model with packed layers.

    Raises:
        StorageError: experts are stacked in one parameter, in memory or in files of this class.
    """
    fixes = {
        "Call separate_experts before you quantize": list(stacked_experts(model)),
        "The files of this class have them in one tensor": [
            name
            for name, one in model.named_modules()
            if isinstance(one, SeparateExperts) and f"{name}.0.down_proj.weight" not in called
        ],
    }
    for fix, names in fixes.items():
        if names:
            raise StorageError(
                f"save_pretrained cannot write the experts '{names[0]}': next to packed layers "
                f"transformers only reads them one by one. {fix}; nncfx.save writes all."
            )


def _floats(model: nn.Module, layers: Mapping[str, PackedWeight]) -> dict[str, Tensor]:
    """Return the state of a model without its packed layers; other packed weights are decoded."""
    state = model.state_dict()
    for name, layer in layers.items():
        for key in layer.state_dict().keys() - {"bias"}:
            del state[f"{name}.{key}"]
    for name, place in packed_parameters(model):
        owner, _, attribute = name.rpartition(".")
        inner = f"{owner}.parametrizations.{attribute}.".lstrip(".")
        for key in [key for key in state if key.startswith(inner)]:
            del state[key]
        state[name] = getattr(place.module, attribute)
    return state


def _tell(left: list[str]) -> None:
    if left:
        _LOGGER.warning(
            "save_pretrained writes %d quantized weights as floats: %s. The files of "
            "compressed-tensors hold linear layers on one grid of 4 or 8 bits; nncfx.save holds "
            "all.",
            len(left),
            shortened(list(map(repr, left))),
        )
