"""What a user's function returns, as one number: `one_number`."""

from typing import Any


def one_number(value: object) -> float:
    """Return a number as a float; of an array or a tensor its only element.

    Raises:
        ValueError: it is no number, or there are more of them.

    >>> import numpy as np
    >>> one_number(np.array([0.5])), one_number(1)
    (0.5, 1.0)
    """
    found: Any = value
    try:
        return float(getattr(found, "item", lambda: found)())
    except (TypeError, RuntimeError) as error:  # the latter from torch
        raise ValueError(str(error)) from error
