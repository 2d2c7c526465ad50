"""The builder of movement sparsity, which plans a learned mask on every weight."""

from collections.abc import Sequence
from typing import final

from typing_extensions import override

from nncfx.algorithms.movement_sparsity.config import MovementSparsityConfig, SparseStructure
from nncfx.algorithms.movement_sparsity.controller import ALGORITHM, MovementSparsityController
from nncfx.algorithms.movement_sparsity.mask import MovementMask
from nncfx.controllers import Builder, register_algorithm, weights_in_scope
from nncfx.controllers.base.weights import hooks_by_weight, raw_parameters
from nncfx.errors import CompressionError
from nncfx.network import NNCFNetwork
from nncfx.operators import operator_of
from nncfx.tracing import Insertion, Priority


@final
@register_algorithm(MovementSparsityConfig)
class MovementSparsityBuilder(Builder[MovementSparsityConfig]):
    """Plans a mask with scores on every weight of linear layers, convolutions and experts."""

    @override
    def plan(self, model: NNCFNetwork) -> list[Insertion]:
        graph = model.nncf.graph
        structures: dict[str, SparseStructure] = {}
        for one in self.config.sparse_structure_by_scopes:
            for operation in graph.select(one.target_scopes):
                structures.setdefault(operation.address, one)
        embeddings = {
            o.address for o in graph.operations if operator_of(o.function).work == "lookup"
        }
        weights = weights_in_scope(
            self,
            model,
            takes=lambda weight: embeddings.isdisjoint(weight.readers),
            kind="linear layer or convolution",
            are_real=True,
        )
        parameters = raw_parameters(model)
        insertions = []
        for weight in weights:
            tensor = parameters[weight.name].detach()
            structure = next((structures[a] for a in weight.readers if a in structures), None)
            hook = MovementMask(tensor, _block(weight.name, tuple(tensor.shape), structure))
            insertions += [
                Insertion(site, hook, Priority.SPARSITY, ALGORITHM) for site in weight.sites
            ]
        return insertions

    @override
    def controller(
        self, model: NNCFNetwork, insertions: Sequence[Insertion]
    ) -> MovementSparsityController:
        masks = hooks_by_weight(model, insertions, MovementMask)
        return MovementSparsityController(model, self.config, masks)


def _block(name: str, shape: tuple[int, ...], structure: SparseStructure | None) -> list[int]:
    """Return the extents of a weight's blocks, which have one score each.

    Raises:
        CompressionError: the structure does not fit the shape.
    """
    if structure is None or structure.mode == "fine":
        return [1] * len(shape)
    if structure.mode == "per_dim":
        assert structure.axis is not None  # noqa: S101 (a rule of the config)
        if structure.axis >= len(shape):
            raise CompressionError(
                f"'{name}' has the shape {shape} and no axis {structure.axis}, which "
                "sparse_structure_by_scopes asks for. Choose another axis or narrower scopes."
            )
        return [1 if axis == structure.axis else extent for axis, extent in enumerate(shape)]
    block = list(structure.sparse_factors or ())
    if len(block) != len(shape) or any(n % b for n, b in zip(shape, block, strict=True)):
        raise CompressionError(
            f"Blocks of {block} do not tile '{name}' of {shape}; each extent must divide the "
            "weight's. Change 'sparse_factors' or narrow its 'target_scopes'."
        )
    return block
