"""The state of an unfinished recovery, in one safetensors file, to continue after a kill."""

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, final

import torch
from torch import Tensor, nn

from nncfx.errors import StorageError
from nncfx.json_codec import decode, encode
from nncfx.lc.lagrangian import Lagrangian
from nncfx.lc.projection import Best, Projection
from nncfx.lc.recovery import StepRecord
from nncfx.schemes.code_digest import code_digest
from nncfx.storage.formats.whole_file import writing
from nncfx.tracing.calls.model_copy import copy_of
from nncfx.untrusted import read_json

_FORMAT: Final = "1"
_ADDRESS: Final = re.compile(r" at 0x[0-9a-f]+")
_PARTS: Final = ("learner", "compressed", "model")


def identity(model: nn.Module, settings: Mapping[str, object]) -> str:
    """Return a digest of a model's values and of `settings`, the same in every process.

    Functions are identified by their names and their code.
    """
    digest = hashlib.sha256(_ADDRESS.sub("", repr(sorted(settings.items()))).encode())
    digest.update(code_digest(*(settings[name] for name in sorted(settings))).encode())
    for name, tensor in _tensors(model).items():
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.cpu().flatten().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]


@final
class Unfinished:
    """Saves and restores the state of a recovery in a file.

    Args:
        folder: Where the file is kept; created if missing. None: nothing is ever saved.
        name: File name without extension; recoveries with the same name are the same.
    """

    def __init__(self, folder: str | Path | None, name: str) -> None:
        self._path = None if folder is None else Path(folder) / f"recovery-{name}.safetensors"

    def save(self, learner: nn.Module, lagrangian: Lagrangian, best: Best) -> None:
        """Write everything that the next iteration depends on.

        Raises:
            StorageError: the folder cannot be written to.
        """
        if self._path is None:
            return
        from safetensors.torch import save_file

        found, metric = best.found
        parts = zip(_PARTS, (learner, found.compressed, found.model), strict=True)
        tensors = {f"{part}:{n}": t for part, m in parts for n, t in _tensors(m).items()}
        tensors |= lagrangian.state() | _generators(learner)
        about = {"mu": lagrangian.mu, "metric": metric, "history": encode(best.history)}
        # cloned, because safetensors rejects tensors that share memory
        clones = {name: tensor.cpu().contiguous().clone() for name, tensor in tensors.items()}
        with writing(self._path) as draft:
            save_file(clones, draft, {"format": _FORMAT, "state": json.dumps(about)})

    def restore(self, learner: nn.Module, lagrangian: Lagrangian, best: Best) -> int:
        """Load the saved state into the arguments; return the number of finished iterations.

        Without a file nothing happens, and 0 is returned.

        Raises:
            StorageError: the file is damaged, or has another version.
        """
        if self._path is None or not self._path.exists():
            return 0
        about, tensors = self._read(self._path)
        device = next(learner.parameters()).device
        projection = Projection(
            compressed=_filled(learner, tensors, "compressed", device),
            model=_filled(learner, tensors, "model", device),
        )
        _fill(learner, tensors, "learner", device)
        lagrangian.restore(tensors, about["mu"])
        history = decode(tuple[StepRecord, ...], about["history"], finite=False)
        best.restore(projection, about["metric"], list(history))
        _set_generators(learner, tensors)
        return len(history)

    def discard(self) -> None:
        """Remove the file when the recovery has finished."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    @staticmethod
    def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
        import safetensors

        try:
            with safetensors.safe_open(path, framework="pt") as file:
                written = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
            if written.get("format") != _FORMAT:
                raise StorageError(
                    f"'{path}' is of format {written.get('format')!r}, and this nncfx reads "
                    f"{_FORMAT!r}. Delete it to start the recovery again."
                )
            state: Any = read_json(written["state"])
            return dict(state), tensors
        except (OSError, KeyError, TypeError, ValueError, safetensors.SafetensorError) as error:
            raise StorageError(
                f"'{path}' is not the state of a recovery ({error}). Delete it to start again."
            ) from error


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return all parameters and buffers by name, including non-persistent ones."""
    found = (*model.named_parameters(), *model.named_buffers())
    return {name: tensor.detach() for name, tensor in found}


def _filled(
    like: nn.Module, tensors: Mapping[str, Tensor], part: str, device: torch.device
) -> nn.Module:
    model = copy_of(like).eval()
    _fill(model, tensors, part, device)
    return model


def _fill(
    model: nn.Module, tensors: Mapping[str, Tensor], part: str, device: torch.device
) -> None:
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        # the dtype can differ: compressed weights have a narrower one
        tensor.data = tensors[f"{part}:{name}"].to(device)


def _generators(model: nn.Module) -> dict[str, Tensor]:
    states = {"generator:cpu": torch.get_rng_state()}
    if next(model.parameters()).device.type == "cuda":
        states["generator:cuda"] = torch.cuda.get_rng_state(next(model.parameters()).device)
    return states


def _set_generators(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    torch.set_rng_state(tensors["generator:cpu"])
    if "generator:cuda" in tensors:
        torch.cuda.set_rng_state(tensors["generator:cuda"], next(model.parameters()).device)
