"""The compressed network as a tree of scopes, and the histograms of its weights."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from nncfx.evidence.evidence import Evidence, LayerRow
from nncfx.evidence.network_facts import OperationFacts, WeightFacts
from nncfx.report.axes import Scale
from nncfx.report.format import significant_text

_WIDTH, _HEIGHT = 240, 84
_OPEN = 40
"""Networks with more operations are folded initially."""

_FORMATS = ((4, "bits4"), (8, "bits8"), (16, "bits16"))
"""The largest number of bits, and the class in the style sheet."""


@dataclass(frozen=True, kw_only=True)
class Leaf:
    """One operation: its number and name, its inputs, and the changes of its layer."""

    number: int
    function: str
    reads: tuple[int, ...]
    shape: str
    precision: str
    colour: str
    kept: str
    pruned: str


@dataclass(kw_only=True)
class Scope:
    """One scope with its contents, in execution order."""

    name: str
    items: "list[Scope | Leaf]" = field(default_factory=list)
    count: int = 0
    is_open: bool = True

    def scope(self, name: str) -> "Scope":
        """Return the last item if it is the scope `name`, else a new one."""
        last = self.items[-1] if self.items else None
        if isinstance(last, Scope) and last.name == name:
            return last
        made = Scope(name=name)
        self.items.append(made)
        return made


@dataclass(frozen=True, kw_only=True)
class WeightHistogram:
    """The non-zero weights of one layer, ready to draw."""

    module: str
    precision: str
    zeros: str
    sensitivity: str
    sensitivity_width: str
    bars: str
    ticks: tuple[float, ...]
    low: str
    high: str
    width: int = _WIDTH
    height: int = _HEIGHT


def network_tree(evidence: Evidence) -> Scope | None:
    """Return the scopes of the compressed network; None if its operations are unknown."""
    if not evidence.operations:
        return None
    layers = {row.module: row for row in evidence.layers}
    weights = {one.module: one for one in evidence.weights}
    root = Scope(name=evidence.operations[0].address.partition("/")[0], count=0)
    for number, one in enumerate(evidence.operations):
        *scopes, function = one.address.split("/")
        here = root
        here.count += 1
        for name in scopes[1:]:
            here = here.scope(name)
            here.count += 1
        leaf = _leaf(number, function, one, layers.get(one.module), weights.get(one.module))
        here.items.append(leaf)
    _fold(root, 0, folded=len(evidence.operations) > _OPEN)
    return root


def _fold(scope: Scope, depth: int, *, folded: bool) -> None:
    scope.is_open = depth == 0 or not folded
    for one in scope.items:
        if isinstance(one, Scope):
            _fold(one, depth + 1, folded=folded)


def _leaf(
    number: int,
    function: str,
    operation: OperationFacts,
    row: LayerRow | None,
    weight: WeightFacts | None,
) -> Leaf:
    # other operations of a layer's module, such as additions, have no channels to lose
    name = function.rpartition("_")[0]
    is_layer = row is not None and name not in {"relu", "relu_", "dropout"}
    before, after = (row.channels_before, row.channels_after) if row and is_layer else (0, 0)
    known = weight if is_layer else None
    return Leaf(
        number=number,
        function=name,
        reads=operation.inputs,
        shape=operation.shape,
        precision="" if known is None else known.precision,
        colour="" if known is None else _colour(known.bits),
        kept="" if not before else f"{after / before:.0%}",
        pruned="" if before == after else f"{after} of {before} channels",
    )


def _colour(bits: int) -> str:
    return next((name for most, name in _FORMATS if bits <= most), "bits32")


def histograms(weights: Sequence[WeightFacts]) -> tuple[WeightHistogram, ...]:
    """Return the histogram of each layer, and its sensitivity relative to the others."""
    most = max((one.output_change or 0.0 for one in weights), default=0.0)
    return tuple(_histogram(one, most) for one in weights)


def _histogram(weight: WeightFacts, most: float) -> WeightHistogram:
    bottom, top = _HEIGHT - 18, 4
    tallest = max(weight.counts, default=0)
    width = _WIDTH / max(len(weight.counts), 1)
    bars = "".join(
        f"M{number * width:.1f},{bottom}v{-(bottom - top) * count / tallest:.1f}"
        f"h{width - 0.8:.1f}V{bottom}z"
        for number, count in enumerate(weight.counts)
        if count
    )
    spread = weight.high > weight.low
    scale = Scale(
        low=weight.low, high=weight.high if spread else weight.low + 1, start=0, end=_WIDTH
    )
    change = weight.output_change
    return WeightHistogram(
        module=weight.module,
        precision=weight.precision,
        zeros=f"{weight.zeros:.0%}",
        sensitivity="" if change is None else significant_text(change, 2),
        sensitivity_width="0%" if not (change and most) else f"{change / most:.1%}",
        bars=bars,
        ticks=tuple(round(scale(value), 1) for value in weight.values) if spread else (),
        low=significant_text(weight.low, 2),
        high=significant_text(weight.high, 2),
    )
