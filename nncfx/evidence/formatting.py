"""Formats schemes, recovery methods and numbers for people."""

import dataclasses
import re
from collections.abc import Mapping
from types import FunctionType

from nncfx.json_codec import is_default

_LARGE = 1000


def number(value: float) -> str:
    """Return `value` without an exponent: as an integer from 1000 on, else with four digits.

    >>> [number(x) for x in (299114, 253690.4, 1.67461, 0.0)]
    ['299,114', '253,690', '1.675', '0']
    """
    return f"{value:,.0f}" if abs(value) >= _LARGE else f"{value:.4g}"


def candidate_words(candidate: Mapping[str, float | int | str]) -> str:
    """Return a candidate of a search in readable form.

    >>> candidate_words({"level": 0.48204321, "bits": 4})
    'level 0.482, bits 4'
    """
    return ", ".join(
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in candidate.items()
    )


def spelt(value: object) -> str:
    """Return `value` as the shortest call that creates it, without defaults.

    The first field of a dataclass is written without its name, and always if it is a word; a
    function is written as its name. Anything else is written as its `repr`, without the memory
    address, which differs between processes.

    >>> from nncfx.schemes import Compose, Prune, Quantize
    >>> spelt(Compose([Prune(), Quantize("float16")]))
    "Compose([Prune(), Quantize('float16')])"
    """
    if isinstance(value, list | tuple):
        return f"[{', '.join(spelt(one) for one in value)}]"
    if isinstance(value, FunctionType):
        return value.__name__
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))
    written = []
    for position, field in enumerate(dataclasses.fields(value)):
        present = getattr(value, field.name)
        is_first = position == 0 and not field.kw_only
        if (is_first and isinstance(present, str)) or not is_default(field, present):
            written.append(spelt(present) if is_first else f"{field.name}={spelt(present)}")
    return f"{type(value).__name__}({', '.join(written)})"
