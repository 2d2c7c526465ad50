"""What one row of the operator table says, and how rows are written down."""

from dataclasses import dataclass
from typing import Final, Literal

OTHER: Final = "other"
"""The kind of what descriptions of targets have no word for."""

FIXES: Final = "fixes"
"""The channel rule of what is not followed: the channels that it reads must stay."""

ROLES: Final = frozenset(
    {"activation", "addend", "bias", "factor", "index", "left", "like", "right", "weight"}
)
"""What an input port is for. Of a matrix product `left` and `right` are the two matrices, a
`factor` is either; any of the three may be a weight. Of what is `like` the result, only the shape,
type or device is read."""

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
        functions: The functions that it is, as addresses spell them.
        kind: The word of hardware descriptions for it; `OTHER` if these have none.
        work: What it does. A contraction sums products; the outputs of a movement are elements of
            its input.
        ports: What each input port is for, in the words of `ROLES`; further ones are activations.
        output_axis: The axis of its weight that makes output channels; None where that depends.
        macs: The rule that counts its multiply-accumulates; "none" if it has none.
        channels: The rule that follows channels through it, or `FIXES`.
        in_float: Why it is never quantized; "" where the target says.
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
        """The first two ports of what is multiplied, or looked up in.

        The third of a bilinear layer is none: no runtime multiplies three integers.
        """
        return tuple(port for port, role in enumerate(self.ports) if role in _FACTORS)[:2]

    @property
    def has_weight(self) -> bool:
        """Whether one of its operands may be a matrix, a filter bank or a table of parameters.

        A recurrent layer reads a list of them; how many depends on its layers and directions.
        """
        return self.work == "recurrence" or not _WEIGHTS.isdisjoint(self.ports)

    def role(self, port: int) -> str:
        """Return what an input port is for.

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
    """Return a row; functions and roles of ports are words, the name is the first function's.

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
    """Return one row for each operation between commas, with all spellings of each function.

    `abs` is also spelt `abs_` where it changes its argument, and `_abs` inside torch.

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
