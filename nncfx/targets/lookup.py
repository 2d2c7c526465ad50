"""Finds a target by its name, by a file that describes it, or by the device of a config."""

from pathlib import Path
from typing import Final, Literal

from nncfx.errors import ArgumentError, require_known
from nncfx.targets.hardware import Hardware
from nncfx.targets.known import TARGETS
from nncfx.targets.target import PARTS, Target

_FORMER: Final = {"onnxruntime_avx2": "onnxruntime-avx2"}
"""Former names, which are still accepted."""


def names(part: Literal["alignment", "copies", "kernels", "opset"] | None = None) -> list[str]:
    """Return the names of all targets, or of those with a certain part, sorted.

    >>> names("copies")
    ['onnxruntime', 'onnxruntime-avx2', 'openvino', 'torch']
    """
    return sorted(one.name for one in TARGETS.values() if not part or getattr(one, part))


def target_named(
    target: str | Target, part: Literal["alignment", "copies", "kernels", "opset"] | None = None
) -> Target:
    """Return the target of this name; a `Target` is returned unchanged.

    Args:
        target: a name, or the path of a file that ends in `.json` and contains `Target.to_json()`.
        part: a required part.

    Raises:
        ArgumentError: there is no such target, its file cannot be read, or it lacks the part.

    >>> target_named("onnxruntime").opset
    21
    """
    if isinstance(target, Target):
        found = target
    elif target.endswith(".json"):
        found = _read(Path(target))
    else:
        name = _FORMER.get(target, target)
        if name not in TARGETS:
            fix = " Describe another with nncfx.targets.Target."
            require_known(f"target{_with(part)}", target, names(part), fix)
        found = TARGETS[name]
    if part and getattr(found, part) is None:
        reason = found.missing.get(part, "nobody has described them")
        raise ArgumentError(
            f"The target '{found.name}' has no {PARTS[part]}: {reason}. Use one of "
            f"{', '.join(names(part))}, or describe another with nncfx.targets.Target."
        )
    return found


def hardware_named(target: str | Target | Hardware) -> Hardware:
    """Return the integer kernels of a target; a `Hardware` is returned unchanged.

    Raises:
        ArgumentError: there is no such target, or it has no integer kernels.

    >>> hardware_named("onnxruntime").quantized("conv")
    Descriptor(inputs=('uint8', 'int8'), output='uint8')
    """
    if isinstance(target, Hardware):
        return target
    kernels = target_named(target, "kernels").kernels
    assert kernels is not None  # noqa: S101 (requested above)
    return kernels


def target_with(kernels: str | Target | Hardware) -> Target | None:
    """Return the target of a name, a `Target` or its own `Hardware`; None for another one."""
    if not isinstance(kernels, Hardware):
        return target_named(kernels)
    return next((one for one in TARGETS.values() if one.kernels == kernels), None)


def target_of_device(device: str) -> str:
    """Return the name of the target for a `target_device` of a config.

    CPUs and TRIAL use the rules of ONNX Runtime, GPU those of TensorRT, and NPU those of OpenVINO,
    which runs it.

    >>> target_of_device("GPU")
    'tensorrt'
    """
    return next(one.name for one in TARGETS.values() if device in one.devices)


def _read(path: Path) -> Target:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ArgumentError(
            f"The target '{path}' cannot be read: {error}. Write it with Target.to_json()."
        ) from error
    return Target.from_json(text)


def _with(part: str | None) -> str:
    return f" with {PARTS[part]}" if part else ""
