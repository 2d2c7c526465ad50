"""Formats numbers for people: few digits, a unit, a true minus sign."""

import datetime as dt
import math
from collections.abc import Sequence

MINUS = "\N{MINUS SIGN}"
_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def significant_text(value: float, digits: int = 3) -> str:
    """Return `value` with `digits` significant digits, without an exponent if legible.

    Integer digits are never dropped; below 1e-4 and from 1e9 on there is an exponent.

    >>> [significant_text(x) for x in (0.0, 0.04126, 12.346, 98765.4, 3.1e-07)]
    ['0', '0.0413', '12.3', '98,765', '3.1e-07']
    """
    if not math.isfinite(value):
        return "not a number" if math.isnan(value) else _signed(value, "infinite")
    if value == 0:
        return "0"
    size = abs(value)
    if size < 1e-4 or size >= 1e9:  # noqa: PLR2004 (stated in the docstring)
        return _signed(value, f"{size:.{digits}g}")
    # exponent after rounding, so that 9.996 has as many digits as 10.0
    exponent = int(f"{size:.{digits - 1}e}".partition("e")[2])
    return _signed(value, f"{size:,.{max(digits - 1 - exponent, 0)}f}")


def count_text(value: int) -> str:
    """Return an integer with thousands separators.

    >>> count_text(269722)
    '269,722'
    """
    return f"{value:,}"


def prefix_text(value: float, unit: str = "") -> str:
    """Return `value` with three digits and an SI prefix of `unit`.

    >>> prefix_text(40_813_184), prefix_text(999), prefix_text(2130.0, "images/s")
    ('40.8 M', '999', '2.13 k images/s')
    """
    for size, prefix in _PREFIXES:
        # 999,600 has three digits of a million, not four of a thousand
        if abs(value) >= size * 0.9995:
            return f"{significant_text(value / size)} {prefix} {unit}".rstrip()
    return f"{significant_text(value)} {unit}".rstrip()


def prefix_texts(values: Sequence[float]) -> list[str]:
    """Return round `values`, such as the ticks of an axis, with a common SI prefix.

    >>> prefix_texts([8000.0, 10000.0, 12000.0]), prefix_texts([0.0, 0.5])
    (['8 k', '10 k', '12 k'], ['0', '0.5'])
    """
    top = max(map(abs, values), default=0.0)
    size, prefix = next(((s, p) for s, p in _PREFIXES if top >= s * 2), (1.0, ""))
    return [
        _signed(value, f"{abs(value) / size:.6g} {prefix}".rstrip()) if value else "0"
        for value in values
    ]


def bytes_text(value: float) -> str:
    """Return a size in bytes with a decimal prefix: 1 kB is 1000 B.

    >>> bytes_text(1_078_888), bytes_text(512)
    ('1.08 MB', '512 B')
    """
    text = prefix_text(value)
    return f"{text}B" if " " in text else f"{text} B"


def quantity_text(value: float, unit: str) -> str:
    """Return `value` with three digits, a prefix and its unit; bytes are written as B.

    >>> quantity_text(2130.0, "examples/s"), quantity_text(0.5, ""), quantity_text(2e6, "bytes")
    ('2.13 k examples/s', '0.500', '2.00 MB')
    """
    return bytes_text(value) if unit == "bytes" else prefix_text(value, unit)


def milliseconds_text(value: float) -> str:
    """Return a time in milliseconds with three significant digits.

    >>> milliseconds_text(0.41234)
    '0.412 ms'
    """
    return f"{significant_text(value)} ms"


def interval_text(ends: tuple[float, float]) -> str:
    """Return an interval of milliseconds."""
    return f"{significant_text(ends[0])} to {significant_text(ends[1])} ms"


def seconds_text(value: float) -> str:
    """Return a duration in seconds: three digits, and no decimals from a hundred on.

    >>> seconds_text(3.14159), seconds_text(1754.2)
    ('3.14 s', '1,754 s')
    """
    return f"{significant_text(value)} s"


def ratio_text(value: float) -> str:
    """Return a factor with three significant digits and a multiplication sign.

    >>> ratio_text(2.2177)[:-1], ratio_text(239.98)[:-1]
    ('2.22', '240')
    """
    return f"{significant_text(value)}\N{MULTIPLICATION SIGN}"


def level_text(value: float) -> str:
    """Return a level with three decimals.

    >>> level_text(0.72)
    '0.720'
    """
    return _signed(value, f"{abs(value):.3f}")


def is_fraction_metric(metric: str) -> bool:
    """Return whether `metric` is a share of the examples, which is shown as a percentage.

    >>> is_fraction_metric("top-1 accuracy"), is_fraction_metric("perplexity")
    (True, False)
    """
    return "accuracy" in metric.lower()


def metric_text(value: float, metric: str) -> str:
    """Return a value of `metric`: accuracy as a percentage with two decimals, else four digits.

    >>> metric_text(0.9173, "accuracy"), metric_text(71.2345, "perplexity")
    ('91.73 %', '71.23')
    """
    if math.isfinite(value) and is_fraction_metric(metric):
        return _signed(value, f"{abs(value) * 100:.2f} %")
    return significant_text(value, 4)


def metric_change_text(change: float, metric: str) -> str:
    """Return a change of `metric` with its sign: accuracy in percentage points.

    >>> metric_change_text(0.006, "accuracy"), metric_change_text(-1e-9, "accuracy")
    ('+0.60 points', '0.00 points')
    """
    if not (math.isfinite(change) and is_fraction_metric(metric)):
        return ("+" if change > 0 else "") + significant_text(change, 4)
    size = f"{abs(change) * 100:.2f}"
    if float(size) == 0:
        return "0.00 points"
    return f"{'+' if change > 0 else MINUS}{size} points"


def moment_text(moment: str) -> str:
    """Return an ISO 8601 time to the minute, in its own time zone; other text unchanged.

    >>> moment_text("2026-03-04T15:22:31+00:00"), moment_text("yesterday")
    ('2026-03-04 15:22 UTC', 'yesterday')
    """
    try:
        return dt.datetime.fromisoformat(moment).strftime("%Y-%m-%d %H:%M %Z").rstrip()
    except ValueError:
        return moment


def titled(text: str) -> str:
    """Return `text` with its first letter in upper case and the rest unchanged.

    >>> titled("MACs"), titled("footprint")
    ('MACs', 'Footprint')
    """
    return text[:1].upper() + text[1:]


def _signed(value: float, size: str) -> str:
    return f"{MINUS}{size}" if value < 0 else size


def shortened(title: str, most: int) -> str:
    """Return the title of an axis, "name (unit)", in `most` characters; shortens the name first.

    >>> shortened("accuracy (%)", 12), shortened("mean_accuracy (%)", 12)
    ('accuracy (%)', 'mean_ac… (%)')
    >>> shortened("energy (picojoule/inference)", 20)
    'energy (picojoule/i…'
    """
    name, bracket, unit = title.partition(" (")
    unit = _cut(bracket + unit, most - most // 3)
    return _cut(name, most - len(unit)) + unit


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}\N{HORIZONTAL ELLIPSIS}"
