"""Sites of hooks, and insertions of hooks at sites, as plain data."""

from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar, TypeAlias

from torch import nn
from typing_extensions import override


class Priority(IntEnum):
    """NNCF's priorities, by which hooks at one site are ordered.

    Any other integer is valid too; hooks of equal priority run in the order of registration.
    """

    DEFAULT = 0
    STATISTICS = 1
    PRUNING = 2
    SPARSITY = 3
    QUANTIZATION = 11


@dataclass(frozen=True)
class WeightSite:
    """A parameter or buffer, where a module reads it.

    A weight that several modules share has one site per module.

    Attributes:
        module: Dotted name of the module that reads it; "" is the root.
        name: The parameter's or buffer's name in that module, for instance `"weight"`.

    >>> WeightSite.of("layer1.conv.weight")
    WeightSite(module='layer1.conv', name='weight')
    """

    module: str
    name: str

    @classmethod
    def of(cls, parameter: str) -> "WeightSite":
        """Return the site of a dotted parameter name, as `Operation.parameters` holds it."""
        module, _, name = parameter.rpartition(".")
        return cls(module, name)

    @property
    def key(self) -> str:
        """The site as text, unique in the model and without dots."""
        module = self.module.replace(".", ":")
        return f"{module}|{self.name}"

    @override
    def __str__(self) -> str:
        return f"{self.module}.{self.name}" if self.module else self.name


class _ActivationSite:
    address: str
    port: int
    _side: ClassVar[str]

    @property
    def key(self) -> str:
        """The site as text, unique in the model and without dots."""
        return str(self).replace(".", ":")

    @override
    def __str__(self) -> str:
        return f"{self.address}|{self._side}{self.port}"


@dataclass(frozen=True)
class PreSite(_ActivationSite):
    """The tensor that enters an operation at a port."""

    _side: ClassVar[str] = "INPUT"

    address: str
    port: int


@dataclass(frozen=True)
class PostSite(_ActivationSite):
    """The tensor that leaves an operation at a port."""

    _side: ClassVar[str] = "OUTPUT"

    address: str
    port: int = 0


Site: TypeAlias = WeightSite | PreSite | PostSite


@dataclass(frozen=True)
class Insertion:
    """A hook for a site; has no effect until it is committed.

    Attributes:
        site: Where to insert the hook.
        hook: Takes the tensor at the site and returns the tensor to use instead, of the same
            shape, dtype and device. It can have parameters and can be used at several sites. A
            `CallHook` is also notified of each call of the model.
        priority: Order at the site, smaller first; see `Priority`.
        algorithm: Name of the algorithm, used in keys of the `state_dict` and for removal. Not
            empty, without '.' and '#', and not an attribute of nn.Module.
    """

    site: Site
    hook: nn.Module
    priority: int
    algorithm: str
