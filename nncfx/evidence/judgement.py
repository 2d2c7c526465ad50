"""What data that chose nothing say of the model that was chosen."""

from dataclasses import dataclass

from nncfx.evidence.formatting import number

# a loss of exactly the budget is inside it, whatever the last bit says
_ROUNDING = 1e-9


def is_within(loss: float, budget: float) -> bool:
    """Return whether a `loss` of the metric is inside its `budget`, but for the last bit.

    >>> is_within(0.95 - 0.93, 0.02)
    True
    """
    return loss <= budget + _ROUNDING


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """The loss of the chosen model, and on what it was counted.

    Attributes:
        loss: The metric of the dense model less that of the chosen one.
        interval: What the loss on all such data lies in, with `confidence`; None where that
            cannot be told from single batches.
        confidence: Of the interval, in (0, 1). Of several models that were judged in turn, each
            shares what is left to 1.
        budget: How much loss is allowed.
        examples: How many were judged on.
        held_out: Whether these data chose nothing.
        data: What they are, in words, such as "testloader".
        judged: How many models were judged in turn, the last being the chosen one, since those
            before it were outside of the budget.
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
        """Whether the whole interval is on that side of the budget where the loss is."""
        if self.interval is None:
            return False
        low, high = self.interval
        return is_within(high, self.budget) if self.is_inside else low > self.budget

    @property
    def where(self) -> str:
        """On what the loss was counted, and whether that had a part in the choice."""
        chose = "which chose nothing" if self.held_out else "which chose the model too: optimistic"
        if self.held_out and self.judged > 1:
            refused = self.judged - 1
            chose = f"which refused {refused} better trial{'s' if refused > 1 else ''}"
        return f"{self.examples:,} examples of {self.data}, {chose}"

    def words(self, metric: str) -> str:
        """Return the loss with its interval, the budget, and on what it was counted."""
        interval = ""
        if self.interval is not None:
            low, high = map(number, self.interval)
            interval = f" ({low} to {high} with {100 * self.confidence:.3g} %)"
        side = "within" if self.is_inside else "more than"
        return (
            f"{metric} lost: {number(self.loss)}{interval}, {side} the budget of "
            f"{number(self.budget)}; on {self.where}"
        )
