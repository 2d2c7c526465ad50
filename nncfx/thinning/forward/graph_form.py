"""Modules whose forward is an `fx` graph: `GraphForm`, and how to convert a module."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any, cast

from torch import fx, nn
from typing_extensions import override

from nncfx.storage.models.module_walk import all_modules, all_tensors
from nncfx.thinning.forward.fx_graph import ForwardGraph
from nncfx.thinning.forward.graph_data import NodeData, as_data, from_data
from nncfx.tracing.calls.model_copy import copied


class GraphForm(fx.GraphModule):
    """An `fx.GraphModule` with all state of the module that it replaces.

    Parameters, buffers, submodules, hooks and attributes are the module's, whether the graph uses
    them or not, so the keys of the `state_dict` do not change. Methods other than `forward` are
    missing. It is pickled with its graph, including what depends on `training`; torch's own class
    would write Python code and trace it again.
    """

    @override
    def __deepcopy__(self, memo: dict[int, Any]) -> "GraphForm":
        reduced: Any = self.__reduce_ex__(4)
        function, arguments, state = reduced[:3]
        other: Any = function(*arguments)
        memo[id(self)] = other
        other.__setstate__(copy.deepcopy(state, memo))
        return cast("GraphForm", other)

    @override
    def __reduce__(self) -> tuple[Any, ...]:
        state = {key: one for key, one in vars(self).items() if key != "_graph"}
        return (_with_graph, (type(self).__name__, as_data(self.graph)), state)


def _with_graph(name: str, nodes: Sequence[NodeData]) -> GraphForm:
    made = GraphForm(nn.Module(), fx.Graph(), name)
    made.graph = from_data(nodes)
    return made


def _standing_for(module: nn.Module, form: ForwardGraph, graph: fx.Graph) -> GraphForm:
    """Return a module with the state of `module` and a graph from `form`."""
    made = GraphForm(nn.Module(), fx.Graph(), type(module).__name__)
    vars(made).update({**vars(module), **form.constants})
    made.graph = graph
    return made


def exchange(
    model: nn.Module, name: str, form: ForwardGraph, values: Mapping[str, int]
) -> nn.Module:
    """Return `model`, with one module converted to a graph with changed integers.

    Args:
        model: changed in place, unless it is the module itself.
        name: of the module; "" is the model itself.
        form: of its class.
        values: literals to their new values; others do not change.
    """
    module = model.get_submodule(name)
    return _put(model, module, _standing_for(module, form, form.settled(values)))


def with_literals(model: nn.Module, forms: Mapping[str, ForwardGraph]) -> nn.Module:
    """Return `model` with some modules converted to graphs whose integers are attributes.

    Both have the same tensors, by the same names; `model` is not changed.

    Args:
        model: any module.
        forms: by name of the module.
    """
    if not forms:
        return model
    other = copied(model, {id(one): one for one in all_tensors(model).values()})
    for name, form in forms.items():
        module = other.get_submodule(name)
        made = _standing_for(module, form, copy.deepcopy(form.graph))
        vars(made).update(form.literals)
        other = _put(other, module, made)
    return other


def _put(model: nn.Module, module: nn.Module, other: nn.Module) -> nn.Module:
    if model is module:
        return other
    for _, parent in all_modules(model):
        table = parent._modules  # noqa: SLF001 (a module may have several names)
        table.update({key: other for key, one in table.items() if one is module})
    return model
