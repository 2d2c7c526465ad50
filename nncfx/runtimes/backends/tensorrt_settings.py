"""The settings of a TensorRT build, parsed from text."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from nncfx.errors import RuntimeFailure, did_you_mean, require_known
from nncfx.runtimes.protocol.named_inputs import InputSpec

Shape = tuple[int, ...]

_SHAPES: Final = ("minShapes", "optShapes", "maxShapes")
_KNOWN: Final = (
    *_SHAPES,
    "computeCapability",
    "builderOptimizationLevel",
    "timingCacheFile",
    "int8",
)
_INT8: Final = ("paired", "all", "any")
_LEVELS: Final = range(6)
_DEFAULT_BATCHES: Final = (1, 8, 32)


@dataclass(frozen=True, kw_only=True)
class TensorRtSettings:
    """The settings of an engine; see `TensorRt` for the meaning of each."""

    shapes: Mapping[str, Mapping[str, Shape]] = field(default_factory=dict)
    compute_capability: str = ""
    level: int | None = None
    timing_cache: Path | None = None
    int8: str = "paired"

    def check_names(self, inputs: Sequence[str]) -> None:
        """Refuse shapes for an input that the model does not have.

        Raises:
            RuntimeFailure: there is one.
        """
        for setting, shapes in self.shapes.items():
            for name in shapes:
                if name not in inputs:
                    raise RuntimeFailure(
                        f"'{setting}' names input '{name}', which the model does not have; its "
                        f"inputs are {', '.join(inputs)}.{did_you_mean(name, inputs)}"
                    )

    def shapes_of(self, spec: InputSpec) -> tuple[Shape, Shape, Shape]:
        """Return the minimum, the optimum and the maximum shape of an input with open axes.

        If some of the three are given, the others are set to the nearest of them.

        Raises:
            RuntimeFailure: they are not ordered, do not fit the model's shape, or an axis other
                than 0 is open and its length is not given.
        """
        given = [self.shapes.get(setting, {}).get(spec.name) for setting in _SHAPES]
        usual = given[1] or given[2] or given[0]
        low, high = given[0] or usual, given[2] or usual
        if usual is None or low is None or high is None:
            return _by_batch(spec)
        for shape in (low, usual, high):
            _check_fits(shape, spec)
        if not all(a <= b <= c for a, b, c in zip(low, usual, high, strict=True)):
            raise RuntimeFailure(
                f"The shapes of input '{spec.name}' are not in order: min {low}, opt {usual}, "
                f"max {high}. Every axis needs min <= opt <= max."
            )
        return low, usual, high


def tensorrt_settings(settings: Iterable[tuple[str, str]], runtime: str) -> TensorRtSettings:
    """Return the settings for `(name, text)` pairs.

    Raises:
        RuntimeFailure: a name is unknown, or its text is invalid.

    >>> settings = tensorrt_settings([("optShapes", "x:8x3x32x32")], "tensorrt")
    >>> settings.shapes["optShapes"]
    {'x': (8, 3, 32, 32)}
    """
    texts = dict(settings)
    for name in texts:
        require_known(f"{runtime} setting", name, _KNOWN, error=RuntimeFailure)
    cache = texts.get("timingCacheFile")
    if cache is not None and runtime != "tensorrt":
        raise RuntimeFailure(
            "TensorRT for RTX times nothing while it builds, so it has no timing cache. "
            "Leave 'timingCacheFile' out."
        )
    return TensorRtSettings(
        shapes={name: _shapes(name, texts[name]) for name in _SHAPES if name in texts},
        compute_capability=_capability(texts.get("computeCapability", "")),
        level=_level(texts.get("builderOptimizationLevel")),
        timing_cache=None if cache is None else Path(cache),
        int8=_int8(texts.get("int8", "paired")),
    )


def _shapes(setting: str, text: str) -> dict[str, Shape]:
    found = {}
    for part in text.split(","):
        name, _, sizes = part.rpartition(":")
        if not name or not all(size.isdecimal() for size in sizes.split("x")):
            raise RuntimeFailure(
                f"'{setting}' is {text!r}, which does not name inputs and their sizes. "
                "Write 'x:8x3x224x224', and several with commas between them."
            )
        found[name] = tuple(map(int, sizes.split("x")))
    return found


def _capability(text: str) -> str:
    digits = text.upper().removeprefix("SM").replace(".", "")
    if text and not digits.isdecimal():
        raise RuntimeFailure(f"computeCapability is {text!r}; write it as '8.9' or 'SM89'.")
    return f"SM{digits}" if digits else ""


def _level(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isdecimal() or int(text) not in _LEVELS:
        raise RuntimeFailure(
            f"builderOptimizationLevel is {text!r}; it is a whole number, 0 to {_LEVELS[-1]}."
        )
    return int(text)


def _int8(text: str) -> str:
    require_known("value of int8", text, _INT8, error=RuntimeFailure)
    return text


def _by_batch(spec: InputSpec) -> tuple[Shape, Shape, Shape]:
    rest = spec.shape[1:]
    if any(size is None for size in rest):
        raise RuntimeFailure(
            f"Input '{spec.name}' has open axes besides the batch: {spec.shape}. Say how long "
            f"they are: settings=(('optShapes', '{spec.name}:8x...'),), and minShapes, maxShapes."
        )
    low, usual, high = ((batch, *(size or 0 for size in rest)) for batch in _DEFAULT_BATCHES)
    return low, usual, high


def _check_fits(shape: Shape, spec: InputSpec) -> None:
    if len(shape) != len(spec.shape) or any(
        wanted not in (None, size) for size, wanted in zip(shape, spec.shape, strict=True)
    ):
        raise RuntimeFailure(
            f"Input '{spec.name}' cannot have shape {shape}; the model takes "
            f"{tuple('?' if size is None else size for size in spec.shape)} (? is open)."
        )
