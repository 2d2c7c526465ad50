"""Early stopping of trials that can no longer become good enough."""

from collections.abc import Sequence

_OPTIMISM = 2.0


def should_stop_early(
    metrics: Sequence[float],
    finished: Sequence[Sequence[float]],
    *,
    threshold: float,
    reference: float,
) -> bool:
    """Return whether a running trial has no prospect of reaching `threshold`.

    Finished trials show which part of its distance from the reference a trial still gains after a
    given step. A running trial is hopeless if it has done at least half of the steps, and would
    stay below the threshold even if it gained twice the largest such part.

    Args:
        metrics: the metric after each step so far, direct compression first.
        finished: the same of earlier trials; trials shorter than the longest were stopped early,
            and are ignored.
        threshold: the required metric.
        reference: the metric of the dense model, which no trial is expected to exceed.

    >>> steps = [0.5, 0.7, 0.88, 0.885, 0.89]
    >>> should_stop_early([0.1, 0.2, 0.3], [steps], threshold=0.9, reference=0.92)
    True
    >>> should_stop_early([0.1, 0.2], [steps], threshold=0.9, reference=0.92)
    False
    """
    done, best = len(metrics), max(metrics)
    whole = max(map(len, finished), default=0)
    if best >= threshold or not done < whole <= 2 * done:
        return False
    parts = [
        (max(one) - max(one[:done])) / (reference - max(one[:done]))
        for one in finished
        if len(one) == whole and max(one[:done]) < reference
    ]
    if not parts:
        return False
    return best + min(1.0, _OPTIMISM * max(parts)) * (reference - best) < threshold
