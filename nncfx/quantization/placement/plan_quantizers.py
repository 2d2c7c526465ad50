"""Plan where quantizers go, from the graph of a model and a description of the hardware.

Every operation that the hardware computes in integers requests quantized inputs. A request moves
up through operations that only move elements to the operation that produces the tensor. All
requests for a tensor share one quantizer. Tensors that are concatenated, or added where the
hardware requires it, share a quantizer too. Nothing is quantized inside a fused chain.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from nncfx.graph import NNCFGraph, Operation
from nncfx.graph.operations import OUTPUT_FUNCTION
from nncfx.operators import CONTRACTIONS, MOVEMENTS, operation_kind
from nncfx.quantization.grid.plan import FloatOperation, PlannedQuantizer, QuantizationPlan, Tensor
from nncfx.quantization.grid.spec import QuantizerSpec
from nncfx.quantization.placement.changed_buffers import NO_CHANGES, ChangedBuffers
from nncfx.quantization.placement.graph_operands import graph_operands
from nncfx.quantization.placement.hardware_specs import activation_spec, weight_spec
from nncfx.quantization.placement.operands import Operands
from nncfx.quantization.placement.placement_options import PlacementOptions, SpecRequest
from nncfx.quantization.placement.requests import Requests, fused_chain, is_model_input
from nncfx.quantization.placement.scope_check import check_scopes
from nncfx.targets import DTYPES, Descriptor, Hardware
from nncfx.tracing import PostSite, PreSite, WeightSite

_FOLLOWING = frozenset({*MOVEMENTS, "clip", "relu"})
"""Kinds without requests: their inputs are quantized if a reader of their output requests it."""


def plan_quantizers(
    graph: NNCFGraph,
    hardware: Hardware,
    options: PlacementOptions | None = None,
    *,
    changed: ChangedBuffers = NO_CHANGES,
) -> QuantizationPlan:
    """Return the quantizers of the model with `graph`, and what stays in float and why.

    Args:
        graph: Graph of the model without hooks.
        hardware: Describes what the target computes in integers.
        options: Options of placement; defaults if None.
        changed: Buffers that are not weights (`changed_buffers` finds those of a model).

    Raises:
        GraphError: a scope matches no operation.
        ArgumentError: the hardware does not support the requested bits or mode.

    >>> import torch, nncfx
    >>> from nncfx.targets import hardware_named
    >>> model = nncfx.wrap(torch.nn.Sequential(torch.nn.Linear(2, 3)), torch.zeros(1, 2))
    >>> print(plan_quantizers(model.nncf.graph, hardware_named("onnxruntime")))
    1 activations and 1 weights are quantized for onnxruntime
      Sequential/Linear[0]/linear_0|INPUT0: uint8 asymmetric, 8 bits
      Sequential/Linear[0]/linear_0|WEIGHT: int8 symmetric, 8 bits, one scale per index of axis 0
    """
    options = options or PlacementOptions()
    _check_scopes(graph, options)
    planner = _Planner(graph, hardware, options, changed)
    return planner.plan()


@dataclass(frozen=True)
class _QuantizableOp:
    """An operation that is computed in integers."""

    operation: Operation
    descriptor: Descriptor
    operands: Operands

    @property
    def reads_floats(self) -> bool:
        """Whether it computes in float, and only its weights are integers."""
        return DTYPES[self.descriptor.input(0)] >= 16  # noqa: PLR2004 (half a float)


class _Planner:
    def __init__(
        self,
        graph: NNCFGraph,
        hardware: Hardware,
        options: PlacementOptions,
        changed: ChangedBuffers,
    ) -> None:
        self.graph = graph
        self.hardware = hardware
        self.options = options
        self.float_operations: list[FloatOperation] = []
        self._operands = graph_operands(graph, changed)
        targets = options.target_scopes
        wanted = graph.operations if targets is None else graph.select(targets)
        self._targets = {one.address for one in wanted}
        self._ignored = self._selected(options.ignored_scopes)
        self._ignored_activations = self._selected(options.ignored_activations)
        self._ignored_weights = self._selected(options.ignored_weights)
        self._activation_requests = self._requests(options.activation_overrides)
        self._weight_requests = self._requests(options.weight_overrides)

    def _selected(self, scopes: Sequence[str]) -> set[str]:
        return {one.address for one in self.graph.select(scopes)}

    def _requests(self, overrides: Sequence[tuple[str, SpecRequest]]) -> dict[str, SpecRequest]:
        found: dict[str, SpecRequest] = {}
        for scope, request in overrides:
            for one in self.graph.select([scope]):
                found[one.address] = request.over(found.get(one.address, SpecRequest()))
        return found

    def plan(self) -> QuantizationPlan:
        inside = self._inside_chains()
        asking = [one for each in self.graph.operations if (one := self._asker(each, inside))]
        askers = self._read_in_integers(asking, inside)
        requests = Requests(self.graph)
        for one in askers:
            self._ask(one, requests)
        if not (self.hardware.symmetric_activations or self.options.activations.signed):
            requests.pass_relus()
        self._unify_groups(requests)
        by_address = {one.operation.address: one for one in askers}
        quantizers = [self._activation(one, requests, by_address) for one in requests.groups()]
        quantizers += self._weights(askers)
        order = {one.address: one.index for one in self.graph.operations}
        ranked = sorted(quantizers, key=lambda one: min(order[each] for each in one.operations))
        return QuantizationPlan(
            self.hardware.name,
            tuple(one for one in ranked if one.sites),
            tuple(sorted(self.float_operations, key=lambda one: order[one.address])),
        )

    def _inside_chains(self) -> set[str]:
        """Return the addresses in fused chains, without the first of each chain."""
        return {
            one.address
            for first in self.graph.operations
            for one in fused_chain(self.graph, first, self.hardware)[1:]
        }

    def _read_in_integers(
        self, askers: Sequence[_QuantizableOp], inside: set[str]
    ) -> list[_QuantizableOp]:
        """Leave out operations between float operations, such as an addition before a layer norm.

        Integers there cost accuracy and conversions, and save nothing. Outputs of the model count
        as read in integers.
        """
        by_address = {one.operation.address: one for one in askers}
        is_integer: dict[str, bool] = {}
        for operation in reversed(self.graph.operations):
            address, kind = operation.address, operation_kind(operation.function)
            is_read = any(
                is_integer.get(edge.target, True) for edge in self.graph.outgoing(address)
            )
            asker = by_address.get(address)
            if asker is None:
                passes = kind in _FOLLOWING or kind == "batch_norm" or address in inside
                is_integer[address] = is_read and passes
                continue
            if asker.reads_floats:
                is_integer[address] = False
                reason = (
                    f"{self.hardware.name} has no integer kernel for it; its weights are stored "
                    f"as {asker.descriptor.input(1)} anyway"
                )
                self.float_operations.append(FloatOperation(address, kind, reason))
                continue
            sums = kind in {*CONTRACTIONS, "attention"} or bool(asker.operands.weights)
            is_integer[address] = sums or is_read
            if not is_integer[address]:
                del by_address[address]
                reason = "nothing that reads it is computed in integers"
                self.float_operations.append(FloatOperation(address, kind, reason))
        return list(by_address.values())

    def _asker(self, operation: Operation, inside: set[str]) -> _QuantizableOp | None:
        """Return how `operation` is computed in integers; otherwise record why it is not."""
        kind = operation_kind(operation.function)
        is_float = any("float" in one.dtype for one in operation.outputs)
        if not is_float or kind in _FOLLOWING:
            return None
        if operation.address in inside:
            return None
        descriptor = self.hardware.quantized(kind)
        operands = self._operands[operation.address]
        reason = operands.problem
        if descriptor is None:
            reason = self._no_kernel(operands)
        elif operation.address in self._ignored:
            reason = "it is in the ignored scopes"
        elif operation.address not in self._targets:
            reason = "it is not in the target scopes"
        elif not reason and not operands.activations and not operands.weights:
            reason = "none of its inputs is a float activation"
        if reason or descriptor is None:
            self.float_operations.append(FloatOperation(operation.address, kind, reason))
            return None
        return _QuantizableOp(operation, descriptor, operands)

    def _no_kernel(self, operands: Operands) -> str:
        reason = f"{self.hardware.name} has no integer kernel for it"
        if operands.weights:
            reason += "; nncfx.quantize_weights, called next, stores its weights in 8 bits"
        return reason

    def _ask(self, asker: _QuantizableOp, requests: Requests) -> None:
        operation = asker.operation
        kind = operation_kind(operation.function)
        if operation.address in self._ignored_activations or asker.reads_floats:
            return
        unified = self.hardware.unified_scales
        tensors: list[Tensor] = []
        if kind != "embedding" and not (kind == "concat" and kind in unified):
            edges = {edge.target_port: edge for edge in self.graph.incoming(operation.address)}
            for port in asker.operands.activations:
                # tensors without a producer are quantized only for layers with weights
                source = edges[port].source if port in edges else None
                if asker.operands.weights if source is None else self._is_wanted(source):
                    tensors += requests.ask(operation.address, port, unified=unified)
        if kind in unified:
            requests.unify(tensors)
        if kind in self.hardware.quantized_outputs:
            last = fused_chain(self.graph, operation, self.hardware)[-1]
            requests.produce((last.address, 0), operation.address)
        elif self.options.quantize_outputs and self._is_output(operation):
            requests.produce((operation.address, 0), operation.address)

    def _is_wanted(self, source: str) -> bool:
        return self.options.quantize_inputs or not is_model_input(source)

    def _is_output(self, operation: Operation) -> bool:
        edges = self.graph.outgoing(operation.address)
        return any(edge.target.startswith(f"/{OUTPUT_FUNCTION}_") for edge in edges)

    def _unify_groups(self, requests: Requests) -> None:
        for scopes in self.options.unified:
            addresses = {one.address for one in self.graph.select(scopes)}
            requests.unify(
                tensor
                for tensor, each in list(requests.askers.items())
                if any(address in addresses for address, _ in each)
            )

    def _activation(
        self, tensors: Sequence[Tensor], requests: Requests, askers: dict[str, _QuantizableOp]
    ) -> PlannedQuantizer:
        asking = list(
            dict.fromkeys(one for tensor in tensors for one, _ in requests.askers[tensor])
        )
        sites = tuple(dict.fromkeys(site for one in tensors for site in requests.sites(one)))
        request = SpecRequest()
        for address in asking:
            request = request.over(self._activation_requests.get(address, SpecRequest()))
        request = request.over(self.options.activations)
        dtype = askers[asking[0]].descriptor.input(0)
        spec, is_sign_open = activation_spec(self.hardware, request, dtype)
        first = sites[0] if sites else PostSite(*tensors[0])
        return PlannedQuantizer(
            name=str(first),
            role="activation",
            spec=spec,
            sites=sites,
            tensors=tuple(tensors),
            operations=tuple(asking),
            is_sign_open=is_sign_open,
        )

    def _weights(self, askers: Sequence[_QuantizableOp]) -> list[PlannedQuantizer]:
        found: dict[str, PlannedQuantizer] = {}
        for one in askers:
            address, names = one.operation.address, one.operands.weights.values()
            for name in () if address in self._ignored_weights else names:
                if name in found:
                    continue
                readers = [
                    each.operation.address
                    for each in askers
                    if name
                    in {*each.operation.parameters.values(), *each.operands.weights.values()}
                ]
                spec = self._weight_spec(one)
                shared = [each for each in askers if name in each.operands.weights.values()]
                if len({each.operands.axis for each in shared}) > 1:
                    # read both plain and transposed: no kernel has scales along the summed axis
                    spec = replace(spec, axis=None)
                # NNCF's identifier names no weight; several of an operation need a suffix
                own = f"[{name.rpartition('.')[2]}]" if len(names) > 1 else ""
                found[name] = PlannedQuantizer(
                    name=f"{address}|WEIGHT{own}",
                    role="weight",
                    spec=spec,
                    sites=(WeightSite.of(name),),
                    operations=tuple(readers),
                )
            if one.operands.computed is not None and address not in self._ignored_weights:
                found[address] = self._computed_weight(one, one.operands.computed)
        return list(found.values())

    def _weight_spec(self, asker: _QuantizableOp) -> QuantizerSpec:
        request = self._weight_requests.get(asker.operation.address, SpecRequest())
        request = request.over(self.options.weights)
        return weight_spec(self.hardware, request, asker.descriptor.input(1), asker.operands.axis)

    def _computed_weight(self, asker: _QuantizableOp, port: int) -> PlannedQuantizer:
        spec, address = self._weight_spec(asker), asker.operation.address
        read = asker.operation.inputs[port]
        channels = None if spec.axis is None or read is None else read.shape[spec.axis]
        return PlannedQuantizer(
            name=f"{address}|WEIGHT",
            role="weight",
            spec=spec,
            sites=(PreSite(address, port),),
            operations=(address,),
            scales=channels,
        )


def _check_scopes(graph: NNCFGraph, options: PlacementOptions) -> None:
    named = {
        "ignored_scopes": options.ignored_scopes,
        "target_scopes": options.target_scopes or (),
        "the ignored scopes of activations": options.ignored_activations,
        "the ignored scopes of weights": options.ignored_weights,
        "the overrides": [
            scope for scope, _ in (*options.activation_overrides, *options.weight_overrides)
        ],
        "the unified scopes": [scope for group in options.unified for scope in group],
    }
    for place, scopes in named.items():
        check_scopes(graph, scopes, place)
