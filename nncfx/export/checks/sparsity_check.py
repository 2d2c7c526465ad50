"""Warn of sparse weights that do not run faster on the target."""

import logging
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from nncfx.export.ir.graph_edits import constant_of, input_of, nodes_of
from nncfx.export.ir.layer_inputs import CONTRACTIONS, stored_integers
from nncfx.targets import Target

if TYPE_CHECKING:
    import onnx_ir as ir

_LOGGER = logging.getLogger(__name__)
_KEPT: Final = 2
_OF: Final = 4
"""Two of four neighbours: the only pattern that widely used kernels exploit."""

_LEAST: Final = 0.9
"""The minimum share of groups with exactly two weights; unstructured zeros reach at most 0.4."""


def warn_unused_pattern(graph: "ir.Graph", target: Target) -> None:
    """Warn of layers with 2:4 sparse weights if `target` does not skip their zeros."""
    if target.skips_zeros_2_4:
        return
    layers = patterned_layers(graph)
    if layers:
        _LOGGER.warning(
            "The weights of %d layers are 2:4 sparse (%s%s), which makes nothing faster: %s has "
            "no kernels that skip their zeros. Packed files are smaller; for time, prune "
            "channels and thin.",
            len(layers),
            layers[0],
            ", ..." if len(layers) > 1 else "",
            target.name,
        )


def patterned_layers(graph: "ir.Graph") -> tuple[str, ...]:
    """Return the names of layers whose stored weights keep two of four along the summed axis."""
    return tuple(str(node.name) for node in nodes_of(graph, *CONTRACTIONS) if _has_pattern(node))


def _has_pattern(node: "ir.Node") -> bool:
    weight = input_of(node, 1)
    values = stored_integers(weight)
    values = constant_of(weight) if values is None else values
    if values is None or values.ndim < 2:  # noqa: PLR2004 (no vector is summed up in groups)
        return False
    is_turned = bool(node.attributes.get_int("transB", 0))
    by_rows = node.op_type == "Conv" or (node.op_type == "Gemm" and is_turned)
    summed = np.moveaxis(values, 1 if by_rows else -2, -1)
    if summed.shape[-1] % _OF:
        return False
    # the first row is enough to recognize most dense layers
    first = summed[(0,) * (summed.ndim - 1)]
    return _keeps_two(first) and _keeps_two(summed)


def _keeps_two(values: npt.NDArray[Any]) -> bool:
    counts = (values != 0).reshape(-1, _OF).sum(1)
    return bool((counts <= _KEPT).all() and (counts == _KEPT).mean() >= _LEAST)
