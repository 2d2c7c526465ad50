"""The judgement of the chosen model on held-out data."""

from dataclasses import dataclass

from nncfx.evidence.formatting import number

# a loss equal to the budget is inside it, despite rounding
_ROUNDING = 1e-9


def is_within(loss: float, budget: float) -> bool:
    """Return whether a `loss` of the metric is within its `budget`, up to rounding.

    >>> is_within(0.95 - 0.93, 0.02)
    True
    """
    return loss <= budget + _ROUNDING


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """The loss of the chosen model, and the data on which it was measured.

    Attributes:
        loss: The metric of the dense model minus that of the chosen one.
        interval: An interval that contains the loss on all such data, with `confidence`; None if
            it cannot be computed from single batches.
        confidence: Of the interval, in (0, 1). If several models were judged, the remainder to 1
            is divided among them.
        budget: The allowed loss.
        examples: Number of examples.
        held_out: Whether these data chose nothing.
        data: Description of the data, such as "testloader".
        judged: How many models were judged one after the other; the last is the chosen one, since
            those before it exceeded the budget.
    """

    loss: float
    interval: tuple[float, float] | None
    confidence: float
    budget: float
    examples: int
    held_out: bool
    data: str
    judged: int = 1

    @property
    def is_inside(self) -> bool:
        """Whether the loss is inside the budget."""
        return is_within(self.loss, self.budget)

    @property
    def is_sure(self) -> bool:
        """Whether the whole interval is on the same side of the budget as the loss."""
        if self.interval is None:
            return False
        low, high = self.interval
        return is_within(high, self.budget) if self.is_inside else low > self.budget

    @property
    def where(self) -> str:
        """The data of the loss, and whether they took part in the choice, in words."""
        chose = "which chose nothing" if self.held_out else "which chose the model too: optimistic"
        if self.held_out and self.judged > 1:
            refused = self.judged - 1
            chose = f"which refused {refused} better trial{'s' if refused > 1 else ''}"
        return f"{self.examples:,} examples of {self.data}, {chose}"

    def words(self, metric: str) -> str:
        """Return the loss with its interval, the budget, and the data, in words."""
        interval = ""
        if self.interval is not None:
            low, high = map(number, self.interval)
            interval = f" ({low} to {high} with {100 * self.confidence:.3g} %)"
        side = "within" if self.is_inside else "more than"
        return (
            f"{metric} lost: {number(self.loss)}{interval}, {side} the budget of "
            f"{number(self.budget)}; on {self.where}"
        )
