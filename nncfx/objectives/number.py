"""Converts the result of a user's function to a number: `one_number`."""

from typing import Any


def one_number(value: object) -> float:
    """Return a number as a float; for an array or a tensor, its only element.

    Raises:
        ValueError: it is not a number, or has several elements.

    >>> import numpy as np
    >>> one_number(np.array([0.5])), one_number(1)
    (0.5, 1.0)
    """
    found: Any = value
    try:
        return float(getattr(found, "item", lambda: found)())
    except (TypeError, RuntimeError) as error:  # torch raises the latter
        raise ValueError(str(error)) from error
