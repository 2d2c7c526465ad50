"""Parses the options of `nncfx benchmark`."""

from collections.abc import Sequence

from nncfx.cli.signature import Shape
from nncfx.errors import ArgumentError


def parse_shapes(texts: Sequence[str]) -> dict[str, Shape]:
    """Return shapes by input name from texts such as "x=1x3x224x224" or "1,3,9".

    The name can be omitted if a model has one input; it is `""` then.

    Raises:
        ArgumentError: a text has another format.

    >>> parse_shapes(["x=1x3x32x32"])
    {'x': (1, 3, 32, 32)}
    >>> parse_shapes(["1,3,32,32"])
    {'': (1, 3, 32, 32)}
    """
    shapes = {}
    for text in texts:
        name, equals, sizes = text.rpartition("=")
        parts = sizes.replace(",", "x").split("x")
        if (equals and not name) or not all(part.isdecimal() and int(part) for part in parts):
            raise ArgumentError(
                f"--input-shape {text!r} does not name an input and its sizes, each 1 or "
                "more. Write --input-shape x=1x3x224x224."
            )
        shapes[name] = tuple(map(int, parts))
    return shapes


def parse_settings(texts: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return settings from texts such as "computeCapability=8.9".

    Raises:
        ArgumentError: a text has another format.

    >>> parse_settings(["mode=max-autotune"])
    (('mode', 'max-autotune'),)
    """
    for text in texts:
        if "=" not in text[1:]:
            raise ArgumentError(f"--setting {text!r} is not NAME=VALUE.")
    return tuple((name, value) for name, _, value in (text.partition("=") for text in texts))


def parse_cpus(text: str | None) -> tuple[int, ...]:
    """Return the processors in a text such as "0,2"; empty for None.

    Raises:
        ArgumentError: the text is not a list of numbers.

    >>> parse_cpus("0,2")
    (0, 2)
    """
    if text is None:
        return ()
    parts = text.split(",")
    if not all(part.isdecimal() for part in parts):
        raise ArgumentError(f"--cpus {text!r} is not a list of processors. Write --cpus 0,1.")
    return tuple(map(int, parts))
