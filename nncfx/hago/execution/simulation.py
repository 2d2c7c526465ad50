"""Simulates a quantized model in floats, with hooks on every edge."""

import operator
from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any, Final

import torch
from torch import Tensor, nn
from typing_extensions import override

from nncfx.hago.graph.overwriting import overwritable_edges
from nncfx.hago.graph.quant_graph import Node, NodeKind, QuantGraph
from nncfx.hago.rules.fixed_point import rescaled_floats, wrapped
from nncfx.hago.strategy.edge_plan import BiasPlan, EdgePlan, Plan, has_channel_scales
from nncfx.network import NNCFNetwork
from nncfx.tracing import Insertion, PostSite, PreSite, Priority, Site, WeightSite
from nncfx.tracing.calls.model_copy import copy_of
from nncfx.tracing.calls.tensors import replaced

ALGORITHM: Final = "hago"


def simulate_quantize(data: Tensor, plan: EdgePlan) -> Tensor:
    """Return `data` with the errors of `plan`: overflow, rounding and saturation.

    If integers arrive, `data` is first rounded to their grid, which corrects float errors; then it
    is wrapped around if the register is too narrow, rescaled by the fixed-point factor, rounded
    half to even, and clipped. In float64 the result equals that of the integer graph, bit for bit.

    Source: Hago, `simulated_quantize`; the clip, which its RFC omits, precedes rounding with the
        same effect.
    """
    if plan.in_scale is None:
        assert plan.out_scale is not None  # noqa: S101 (a float edge has no plan)
        steps = torch.round(data / plan.out_scale)
    else:
        steps = torch.round(data / plan.in_scale)
        if plan.overflows:
            steps = wrapped(steps, plan.in_bits)
        if plan.out_scale is None or plan.factor is None:
            return steps * plan.in_scale
        steps = rescaled_floats(steps, plan.factor)
    return steps.clamp_(-plan.largest, plan.largest).mul_(plan.out_scale)


class SimQ(nn.Module):
    """`simulate_quantize` as a hook.

    Args:
        plan: The plan of the edge; can be replaced. The hook does nothing while `is_active` is
            False.
        is_exact: False omits, for speed, steps below the precision of float32: rounding arriving
            integers to their grid, and rounding the factor to fixed point. The result then differs
            for values within 2**-22 of the middle of two integers.
        overwrites: Whether the data are not read again, so they can be rounded in place, which
            saves an allocation: about a third of the time. Not done if a gradient is needed, or
            with `is_exact`.
        takes_step_of: The hook on the other factor of a product, whose rounded data are in units
            of steps: they are multiplied by its scale here. For a weight this is done only once.
    """

    def __init__(
        self,
        plan: EdgePlan,
        *,
        is_exact: bool,
        overwrites: bool = False,
        takes_step_of: "SimQ | None" = None,
    ) -> None:
        super().__init__()
        self._is_exact, self._overwrites = is_exact, overwrites
        # in a list, so that it is not registered as a submodule
        self._others = [] if takes_step_of is None else [takes_step_of]
        self._leaves_step = False
        for one in self._others:
            one._leaves_step = True  # noqa: SLF001 (another of this class)
        self.plan = plan
        self.is_active = True

    @property
    def plan(self) -> EdgePlan:
        """The plan of the edge."""
        return self._plan

    @plan.setter
    def plan(self, plan: EdgePlan) -> None:
        self._plan = plan
        self._rounds = plan.out_scale is not None and not plan.is_kept
        self._step = None if plan.out_scale is None else plan.out_scale.float()
        self._inverse = None if self._step is None else self._step.reciprocal()

    @property
    def state(self) -> tuple[object, ...]:
        """Return what determines the result besides the data; compared by identity."""
        left = [one.left_step for one in self._others]
        return (self._plan if self.is_active else None, *left)

    @property
    def left_step(self) -> Tensor | None:
        """The factor that the result still has to be multiplied by."""
        is_left = self._leaves_step and self._rounds and self.is_active
        return self._step if is_left else None

    @property
    def is_idle(self) -> bool:
        """Whether the hook returns all data unchanged."""
        does = not self._plan.is_kept if self._is_exact else self._rounds or bool(self._others)
        return not (does or self._plan.overflows)

    @override
    def forward(self, data: Tensor) -> Tensor:
        if self._is_exact:
            is_left_alone = not self.is_active or self.is_idle
            return data if is_left_alone else simulate_quantize(data, self._plan)
        result = self._rounded(data) if self.is_active else data
        for one in self._others:
            step = one.left_step
            result = result if step is None else result * step
        return result

    def _rounded(self, data: Tensor) -> Tensor:
        plan = self._plan
        overwrites = self._overwrites and not data.requires_grad
        if plan.overflows:
            assert plan.in_scale is not None  # noqa: S101 (only integers overflow)
            scale = plan.in_scale.float()
            data = wrapped(torch.round(data / scale), plan.in_bits).mul_(scale)
            overwrites = True
        if not self._rounds:
            return data
        assert self._inverse is not None and self._step is not None  # noqa: S101, PT018 (set for rounding)
        steps = data.mul_(self._inverse) if overwrites else data * self._inverse
        steps = steps.round_().clamp_(-plan.largest, plan.largest)
        return steps if self._leaves_step else steps.mul_(self._step)


class SimulatedBias(nn.Module):
    """A hook that rounds a bias as its `BiasPlan` says; the plan can be replaced."""

    def __init__(self, plan: BiasPlan) -> None:
        super().__init__()
        self.plan = plan

    @property
    def state(self) -> tuple[object, ...]:
        """Return what determines the result besides the bias; compared by identity."""
        return (self.plan,)

    @override
    def forward(self, bias: Tensor) -> Tensor:
        scale, largest = self.plan.scale.flatten(), self.plan.largest
        steps = torch.round(bias.double() / scale).clamp_(-largest, largest)
        return steps.mul_(scale).to(bias.dtype)


class Remembered(nn.Module):
    """A hook on a parameter that only runs again after the parameter or the plan changed.

    A search evaluates hundreds of candidates, each of which changes few weights.
    """

    def __init__(self, hook: SimQ | SimulatedBias) -> None:
        super().__init__()
        self._hook = hook
        # a tuple, so that the parameter is not registered in this module; a single one, so that
        # threads read and write it atomically
        self._memory: tuple[tuple[object, ...], tuple[int, int], Tensor] | None = None

    @override
    def forward(self, parameter: Tensor) -> Tensor:
        needs_gradient = torch.is_grad_enabled() and parameter.requires_grad
        if needs_gradient or torch.is_inference_mode_enabled() or parameter.is_inference():
            result: Tensor = self._hook(parameter)
            return result
        seen = *self._hook.state, parameter
        place = parameter.data_ptr(), parameter._version  # noqa: SLF001 (torch's count of changes)
        memory = self._memory
        if memory is None or place != memory[1] or not all(map(operator.is_, seen, memory[0])):
            memory = self._memory = seen, place, self._hook(parameter)
        return memory[2]


class SimulatedGraph(nn.Module):
    """The simulation of a quantized model: called like the model, computes in `dtype`.

    In float64 it equals the integer graph, bit for bit. In float32 it is faster. Runs on the CPU.

    Attributes:
        model: The wrapped model, with a hook on every edge from or to integers that changes
            values.
    """

    def __init__(self, graph: QuantGraph, plan: Plan, dtype: torch.dtype) -> None:
        super().__init__()
        self.model: NNCFNetwork = copy_of(graph.model).to(dtype)
        self._dtype = dtype
        self._edges: dict[int, SimQ] = {}
        self._outputs: dict[int, SimQ] = {}
        self._biases: dict[int, SimulatedBias] = {}
        is_exact = dtype == torch.float64
        sites, unread = HookSites(graph), overwritable_edges(graph)
        # hooks that the current plan does not need are not inserted, since even idle hooks take
        # time
        self._idle: list[tuple[SimQ, list[Site], nn.Module]] = []
        for number, edge in plan.edges.items():
            factor = None if is_exact else self._edges.get(_other_factor(graph, number))
            hook = SimQ(edge, is_exact=is_exact, overwrites=number in unread, takes_step_of=factor)
            is_constant = graph.nodes[graph.edges[number].source].kind is NodeKind.CONSTANT
            self._edges[number] = hook
            placed = Remembered(hook) if is_constant else hook
            self._idle.append((hook, [sites.of_edge(number)], placed))
        for number, edge in plan.outputs.items():
            hook = self._outputs[number] = SimQ(edge, is_exact=is_exact)
            self._idle.append((hook, sites.of_output(number), hook))
        for number, bias in plan.biases.items():
            self._biases[number] = SimulatedBias(bias)
        self._place(
            [(sites.of_bias(number), Remembered(one)) for number, one in self._biases.items()]
        )
        self._place_working()
        self.eval()

    def set_plan(self, plan: Plan) -> None:
        """Switch to another plan of the same topology."""
        for number, edge in self._edges.items():
            if edge.plan is not plan.edges[number]:
                edge.plan = plan.edges[number]
        for number, output in self._outputs.items():
            if output.plan is not plan.outputs[number]:
                output.plan = plan.outputs[number]
        for number, bias in self._biases.items():
            bias.plan = plan.biases[number]
        self._place_working()

    def _place_working(self) -> None:
        working = [one for one in self._idle if not one[0].is_idle]
        if working:
            self._idle = [one for one in self._idle if one[0].is_idle]
            self._place([(site, placed) for _, sites, placed in working for site in sites])

    def _place(self, hooks: Iterable[tuple[Site, nn.Module]]) -> None:
        self.model.nncf.register(
            Insertion(site, hook, Priority.QUANTIZATION, ALGORITHM) for site, hook in hooks
        )
        self.model.nncf.commit()

    def restrict_to(self, edges: Collection[int] | None) -> None:
        """Quantize only these edges, by number; None for all."""
        for number, edge in self._edges.items():
            edge.is_active = edges is None or number in edges

    @override
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        args, kwargs = as_floats((args, kwargs), self._dtype)
        return self.model(*args, **kwargs)


def _other_factor(graph: QuantGraph, number: int) -> int:
    """Return the edge of the other factor of a weight's product; -1 if it is not a weight."""
    edge = graph.edges[number]
    first = graph.incoming[edge.target][0]
    is_factor = has_channel_scales(graph, number) and graph.edges[first].port == 0
    return first if is_factor else -1


def as_floats(value: Any, dtype: torch.dtype) -> Any:  # noqa: ANN401 (whatever a model takes)
    """Return `value` with its floating tensors cast to `dtype`."""
    return replaced(value, lambda one: one.to(dtype) if one.is_floating_point() else one)


class HookSites:
    """The sites for the hooks of a graph; for a weight only if a single call reads it."""

    def __init__(self, graph: QuantGraph) -> None:
        self._graph = graph
        self._reads = Counter(
            name for _, _, one in graph.calls() for name in one.parameters.values()
        )

    def of_output(self, number: int) -> list[Site]:
        """Return the sites at which the model returns the output of the node."""
        name = self._graph.nodes[number].name
        returned = sorted(self._graph.returned)
        return [PostSite(name, port) for source, port in returned if source == name]

    def of_edge(self, number: int) -> Site:
        """Return the site for a hook on the edge."""
        edge = self._graph.edges[number]
        source, target = self._graph.nodes[edge.source], self._graph.nodes[edge.target]
        if source.kind is NodeKind.CONSTANT and self._is_own(source.name, target):
            return WeightSite.of(source.name)
        return PreSite(target.name, edge.port)

    def of_bias(self, number: int) -> Site:
        """Return the site for a hook on the bias of the call."""
        name, node = self._graph.biases[number], self._graph.nodes[number]
        return WeightSite.of(name) if self._is_own(name, node) else PreSite(node.name, 2)

    def _is_own(self, name: str, reader: Node) -> bool:
        assert reader.operation is not None  # noqa: S101 (targets of edges are calls)
        own = name.rpartition(".")[0] == reader.operation.module
        return own and self._reads[name] == 1
