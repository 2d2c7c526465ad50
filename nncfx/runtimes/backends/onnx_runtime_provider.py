"""Selects the execution provider of ONNX Runtime."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from nncfx.errors import MissingExtraError, RuntimeFailure, did_you_mean
from nncfx.runtimes.protocol.runtime import BuildOptions

CPU_PROVIDER: Final = "CPUExecutionProvider"
_OPENVINO: Final = "OpenVINOExecutionProvider"
_NAMES: Final = {
    "cpu": CPU_PROVIDER,
    "cuda": "CUDAExecutionProvider",
    "tensorrt": "TensorrtExecutionProvider",
    "openvino": _OPENVINO,
}
# Each of these packages is another build of ONNX Runtime that replaces the plain one.
_EXTRAS: Final = {
    "CUDAExecutionProvider": "onnxruntime-gpu",
    "TensorrtExecutionProvider": "onnxruntime-gpu",
    _OPENVINO: "onnxruntime-openvino",
}
_PREFIX: Final = "provider."


@dataclass(frozen=True)
class Provider:
    """An execution provider.

    Attributes:
        name: ONNX Runtime's own.
        options: of the provider.
        session_entries: the settings of the session.
    """

    name: str
    options: tuple[tuple[str, str], ...]
    session_entries: tuple[tuple[str, str], ...]

    def with_fallback(self) -> list[tuple[str, dict[str, str]]]:
        """Return it for a session, with the CPU after it for unsupported operations."""
        asked = [(self.name, dict(self.options))]
        return asked if self.name == CPU_PROVIDER else [*asked, (CPU_PROVIDER, {})]


def chosen_provider(options: BuildOptions, available: Sequence[str]) -> Provider:
    """Return the provider among `available` that the settings name; by default the CPU.

    `provider` and `provider.KEY` in the settings are the provider's.

    Raises:
        MissingExtraError: another build of ONNX Runtime has the provider.
        RuntimeFailure: this build does not have it, and no extra of nncfx provides it; or a
            setting belongs neither to the provider nor to the session.
    """
    asked = dict(options.settings).get("provider", "cpu")
    name = _NAMES.get(asked, asked)
    if name not in available:
        if name in _EXTRAS:
            purpose = f"{name} (this ONNX Runtime has {', '.join(available)})"
            raise MissingExtraError(_EXTRAS[name], _EXTRAS[name], purpose)
        raise RuntimeFailure(
            f"ONNX Runtime has no execution provider '{asked}' here; it has "
            f"{', '.join(available)}.{did_you_mean(asked, [*_NAMES, *available])}"
        )
    own = [
        (key.removeprefix(_PREFIX), value)
        for key, value in options.settings
        if key.startswith(_PREFIX)
    ]
    if own and name == CPU_PROVIDER:
        raise RuntimeFailure(
            f"ONNX Runtime's CPU provider has no option '{own[0][0]}'; leave "
            f"'{_PREFIX}{own[0][0]}' out, or name the provider that has it."
        )
    if name == _OPENVINO and options.threads is not None:
        own.insert(0, ("num_of_threads", str(options.threads)))
    entries = [
        (key, value)
        for key, value in options.settings
        if key != "provider" and not key.startswith(_PREFIX)
    ]
    # ONNX Runtime accepts entries of any name, and ignores unknown ones
    if plain := [key for key, _ in entries if "." not in key]:
        known = ["provider", f"{_PREFIX}KEY"]
        raise RuntimeFailure(
            f"Runtime 'onnxruntime' has no setting '{plain[0]}'; its settings are "
            f"{', '.join(known)}, an option of that provider, and entries of the session's "
            "config, whose names have a dot, such as 'session.intra_op.allow_spinning'."
            f"{did_you_mean(plain[0], known)}"
        )
    return Provider(name, tuple(own), tuple(entries))


def check_started(provider: Provider, running: Sequence[str]) -> None:
    """Refuse a session that ONNX Runtime started without `provider`, as it does on failure.

    Raises:
        RuntimeFailure: the provider is not running.
    """
    if provider.name not in running:
        raise RuntimeFailure(
            f"ONNX Runtime could not start {provider.name} and would run on "
            f"{', '.join(running)} instead. Its libraries (CUDA, cuDNN, TensorRT, OpenVINO) or "
            "its device are missing; ONNX Runtime told the reason on standard error."
        )
