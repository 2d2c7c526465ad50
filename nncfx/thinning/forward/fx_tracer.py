"""Traces the forward of one module into an `fx.Graph`: `traced_forward`."""

import functools
import inspect
import operator
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch import fx, nn
from torch.fx.proxy import Attribute, TraceError
from typing_extensions import override

from nncfx.channels.rules.constants import CONSTRUCTORS
from nncfx.thinning.forward.arguments import Arguments, made
from nncfx.tracing.calls.preservation import preserved

# ruff: noqa: ANN401 (arguments of functions can be anything)

_MAKERS: Final = CONSTRUCTORS | {"arange", "eye", "linspace", "tensor"}


def traced_forward(
    module: nn.Module, arguments: Arguments, *, train: bool
) -> tuple[fx.Graph, dict[str, torch.Tensor]]:
    """Return the graph of one forward, and the tensors that its code gets from elsewhere, by name.

    Calls of submodules are single nodes. Branches on sizes are resolved for `arguments`, and the
    graph rejects inputs for which the module would branch differently.

    Args:
        module: not changed.
        arguments: of a call of its forward.
        train: whether to trace in training mode instead of evaluation mode.

    Raises:
        Exception: of many kinds; the code cannot be traced, such as branches on values.
    """
    tracer = _ForwardTracer({name: made(one, module) for name, one in arguments.items()})
    stand_in: nn.Module = object.__new__(type(module))  # receives what the tracer records
    with torch.no_grad(), preserved(module, train=train), _recorded(tracer, module):
        vars(stand_in).update(vars(module))
        graph = tracer.trace(stand_in)
    # the flag now has another value, and only tensors matter among the recorded attributes
    names = {str(one.target) for one in graph.nodes if one.op == "get_attr"}
    found = {key: one for key, one in vars(stand_in).items() if isinstance(one, torch.Tensor)}
    return graph, {key: one for key, one in found.items() if key in names}


class _ForwardTracer(fx.Tracer):
    """Treats each called module as a single node, and resolves branches by the arguments."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        super().__init__()
        self.proxy_buffer_attributes = True
        self.is_computing = False
        self._arguments = arguments
        self._values: dict[fx.Node, Any] = {}

    @override
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return True

    @override
    def call_module(self, m: nn.Module, forward: Any, args: Any, kwargs: Any) -> Any:
        if self.is_computing:
            return forward(*args, **kwargs)
        return super().call_module(m, forward, args, kwargs)

    @override
    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        if self.is_computing:
            return attr_val
        return super().getattr(attr, attr_val, parameter_proxy_cache)

    @override
    def create_args_for_root(
        self, root_fn: Callable[..., Any], is_module: bool, concrete_args: Any = None
    ) -> tuple[Any, list[Any]]:
        positional: list[Any] = []
        named: dict[str, Any] = {}
        parameters = inspect.signature(root_fn).parameters
        for name, parameter in list(parameters.items())[1:]:
            if name not in self._arguments:
                continue  # *args or **kwargs without any arguments
            default = () if parameter.default is parameter.empty else (parameter.default,)
            given: Any = self.create_proxy("placeholder", name, default, {})
            self._values[given.node] = value = self._arguments[name]
            if value is None or isinstance(value, bool | str):
                self._require(given, value)
                given = value
            if parameter.kind is parameter.KEYWORD_ONLY:
                named[name] = given
            else:
                positional.append(given)
        return lambda *args: root_fn(*args, **named), [self.root, *positional]

    def _require(self, proxy: fx.Proxy, value: Any) -> None:
        """Make the graph reject inputs for which something has another value."""
        compare = operator.is_ if value is None or isinstance(value, bool) else operator.eq
        same = self.create_proxy("call_function", compare, (proxy, value), {})
        text = f"this graph holds where {proxy.node} is {value!r}"
        self.create_proxy("call_function", torch._assert, (same, text), {})  # noqa: SLF001 (as fx does)

    @override
    def proxy(self, node: fx.Node) -> fx.Proxy:
        return _Proxy(node, self)

    @override
    def to_bool(self, obj: fx.Proxy) -> bool:
        return bool(self.decided(obj, bool))

    @override
    def iter(self, obj: fx.Proxy) -> Iterator[Any]:
        count = self.decided(obj, len)
        return iter([self._item(obj, index) for index in range(count)])

    def _item(self, proxy: fx.Proxy, index: int) -> fx.Proxy:
        return self.create_proxy("call_function", operator.getitem, (proxy, index), {})

    def decided(self, proxy: fx.Proxy, ask: Callable[[Any], Any]) -> Any:
        """Return the result of `ask` for the value of a proxy, and make the graph require it.

        Raises:
            TraceError: `ask` needs the values of a tensor.
        """
        value = self._value(proxy.node)
        if isinstance(value, torch.Tensor) and ask is not len:
            raise TraceError(f"the code looks at the values of '{proxy.node}'")
        answer = ask(value)
        if answer is not value:
            proxy = self.create_proxy("call_function", ask, (proxy,), {})
        self._require(proxy, answer)
        return answer

    def _value(self, node: fx.Node) -> Any:
        if node not in self._values:
            args = fx.map_arg(node.args, self._value)
            kwargs = fx.map_arg(node.kwargs, self._value)
            self.is_computing = True
            try:
                self._values[node] = self._computed(node, args, kwargs)
            finally:
                self.is_computing = False
        return self._values[node]

    def _computed(self, node: fx.Node, args: Any, kwargs: Any) -> Any:
        if callable(node.target):
            return node.target(*args, **kwargs)
        if node.op == "call_method":
            return getattr(args[0], node.target)(*args[1:], **kwargs)
        found = operator.attrgetter(node.target)(self.root)
        return found(*args, **kwargs) if node.op == "call_module" else found


class _Proxy(fx.Proxy):
    """Represents a value; where code needs a number, it is the one for the given arguments."""

    @override
    def __len__(self) -> int:
        return int(self._decided(len))

    def __index__(self) -> int:
        return int(self._decided(operator.index))

    def __int__(self) -> int:
        return int(self._decided(int))

    def __float__(self) -> float:
        return float(self._decided(float))

    @override
    def __getattr__(self, k: str) -> "_Attribute":
        return _Attribute(self, k)

    def _decided(self, ask: Callable[[Any], Any]) -> Any:
        assert isinstance(self.tracer, _ForwardTracer)  # noqa: S101 (which creates all proxies)
        return self.tracer.decided(self, ask)


def _noted(function: Callable[..., Any]) -> Callable[..., fx.Proxy]:
    def note(self: fx.Proxy, *args: Any) -> fx.Proxy:
        return self.tracer.create_proxy("call_function", function, (self, *args), {})

    return note


# fx itself traces x *= 2 as x = x * 2, a different operation: the base of a view x is unchanged
for _name in fx.graph.inplace_methods:
    setattr(_Proxy, f"__{_name}__", _noted(getattr(operator, _name)))


class _Attribute(Attribute, _Proxy):
    """An attribute of a proxy."""


@contextmanager
def _recorded(tracer: _ForwardTracer, module: nn.Module) -> Iterator[None]:
    """Record functions that create a tensor of a given size as nodes, and `len` in the forward.

    Torch does not pass these to proxies, and rejects proxies as sizes; `len` returns only
    integers.
    """

    def as_node(func: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(func)
        def note(*args: Any, **kwargs: Any) -> Any:
            if tracer.is_computing:
                return func(*args, **kwargs)
            return tracer.create_proxy("call_function", func, args, kwargs)

        return note

    def length(value: Any) -> Any:
        return as_node(len)(value) if isinstance(value, fx.Proxy) else len(value)

    makers = {name: as_node(func) for name, func in vars(torch).items() if name in _MAKERS}
    own = inspect.unwrap(type(module).forward).__globals__
    with _changed(vars(torch), makers), _changed(own, {"len": length}):
        yield


@contextmanager
def _changed(table: dict[str, Any], values: Mapping[str, Any]) -> Iterator[None]:
    """Set `values` in a table, and restore it afterwards."""
    before = {name: table[name] for name in values if name in table}
    table.update(values)
    try:
        yield
    finally:
        for name in values:
            del table[name]
        table.update(before)
