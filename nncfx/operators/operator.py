"""The rows of the operator table, and functions to write them."""

from dataclasses import dataclass
from typing import Final, Literal

OTHER: Final = "other"
"""The kind of operations for which descriptions of targets have no word."""

FIXES: Final = "fixes"
"""The channel rule of operations that are not followed, so channels that they read must stay."""

ROLES: Final = frozenset(
    {"activation", "addend", "bias", "factor", "index", "left", "like", "right", "weight"}
)
"""The roles of input ports. In a matrix product, `left` and `right` are the two matrices, and a
`factor` is either; any of the three can be a weight. From a `like` input, only the shape, dtype or
device is read."""

_FACTORS: Final = ROLES - {"addend", "bias", "index", "like"}
_WEIGHTS: Final = frozenset({"factor", "left", "right", "weight"})
_NO_KERNEL: Final = "no description of a target has a word for it"

Work = Literal[
    "attention",
    "contraction",
    "join",
    "lookup",
    "movement",
    "normalisation",
    "pointwise",
    "recurrence",
    "reduction",
    "window",
]


@dataclass(frozen=True, kw_only=True, slots=True)
class Operator:
    """One operation of torch: a row of the table.

    Attributes:
        name: Its name in the table.
        functions: Its functions, named as in addresses.
        kind: Its kind in hardware descriptions; `OTHER` if these have no word for it.
        work: What it does. A contraction sums products; the outputs of a movement are elements of
            its input.
        ports: The role of each input port, from `ROLES`; further ports are activations.
        output_axis: The axis of its weight that produces output channels; None if that varies.
        macs: The rule that counts its multiply-accumulates; "none" if it has none.
        channels: The rule that follows channels through it, or `FIXES`.
        in_float: Why it is never quantized; "" if that depends on the target.
    """

    name: str
    functions: tuple[str, ...]
    kind: str = OTHER
    work: Work = "pointwise"
    ports: tuple[str, ...] = ("activation",)
    output_axis: int | None = None
    macs: str = "none"
    channels: str = FIXES
    in_float: str = ""

    @property
    def factors(self) -> tuple[int, ...]:
        """The first two ports of multiplied operands, or of a lookup table.

        The third operand of a bilinear layer is left out; no runtime multiplies three integers.
        """
        return tuple(port for port, role in enumerate(self.ports) if role in _FACTORS)[:2]

    @property
    def has_weight(self) -> bool:
        """Whether one of its operands can be a matrix, a filter bank or a table of parameters.

        A recurrent layer reads a list of weights, whose length depends on layers and directions.
        """
        return self.work == "recurrence" or not _WEIGHTS.isdisjoint(self.ports)

    def role(self, port: int) -> str:
        """Return the role of an input port.

        >>> one = row("addmm", ports="bias left right")
        >>> one.role(2), one.role(3)
        ('right', 'activation')
        """
        return self.ports[port] if port < len(self.ports) else "activation"

    def port(self, *roles: str) -> int:
        """Return the first port with one of these roles.

        >>> row("addmm", ports="bias left right").port("left", "activation")
        1
        """
        return next(port for port, role in enumerate(self.ports) if role in roles)


def row(  # noqa: PLR0913 (the columns of the table)
    functions: str,
    *,
    name: str = "",
    kind: str = OTHER,
    work: Work = "pointwise",
    ports: str = "activation",
    output_axis: int | None = None,
    macs: str = "none",
    channels: str = FIXES,
    in_float: str = "",
) -> Operator:
    """Return a row; `functions` and `ports` are words, and `name` defaults to the first function.

    >>> row("squeeze", kind="view", work="movement", channels="reshape").name
    'squeeze'
    """
    spelt = tuple(functions.split())
    return Operator(
        name=name or spelt[0],
        functions=spelt,
        kind=kind,
        work=work,
        ports=tuple(ports.split()),
        output_axis=output_axis,
        macs=macs,
        channels=channels,
        in_float=in_float or (_NO_KERNEL if kind == OTHER else ""),
    )


def rows(
    operations: str, *, kind: str = OTHER, work: Work = "pointwise", channels: str = "pointwise"
) -> tuple[Operator, ...]:
    """Return one row per comma-separated operation, with all names of each function.

    For instance `abs` is named `abs_` if it works in place, and `_abs` inside torch.

    >>> [one.functions for one in rows("neg __neg__, sin")]
    [('neg', 'neg_', '_neg', '__neg__'), ('sin', 'sin_', '_sin')]
    """
    return tuple(
        row(
            " ".join(
                word if word.startswith("_") else f"{word} {word}_ _{word}"
                for word in operation.split()
            ),
            kind=kind,
            work=work,
            channels=channels,
        )
        for operation in operations.split(",")
    )
