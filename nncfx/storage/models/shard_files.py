"""Read and write sharded checkpoints: each process writes its part, any number of processes reads.

A checkpoint is a folder. `nncfx.json` holds what a single file has as metadata, and names the
subfolder in which torch.distributed.checkpoint stores the tensors, as safetensors. It is replaced
once these are on disk, so a reader sees the old checkpoint or the new one. Reading executes no
code from the files.
"""

import contextlib
import json
import math
import re
import shutil
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import safetensors
import torch
from torch import Tensor

from nncfx.errors import NNCFXError, StorageError
from nncfx.storage.formats.whole_file import read_text, sync, write_text
from nncfx.storage.models.checkpoint_file import FORMAT, check_description
from nncfx.storage.models.sharded_models import is_distributed
from nncfx.storage.models.stored_model import StoredModel, StoredTensor
from nncfx.storage.models.torch_bits import DTYPES, NAMES, plain_tensor
from nncfx.untrusted import read_json

_DESCRIPTION: Final = "nncfx.json"
_SHARDS: Final = re.compile(r"shards-(\d{1,9})")
_NEEDED: Final = frozenset({"shards", "sizes", "structure", "tensors"})
_Found = TypeVar("_Found")


def in_first_process(work: Callable[[], _Found]) -> _Found:
    """Return in every process the result of `work` in the first; all processes must call this.

    Raises:
        NNCFXError: in every process, if `work` raised it.
        StorageError: in the other processes, if `work` raised another error.
    """
    if not is_distributed():
        return work()
    told: list[Any] = [None, None]
    if torch.distributed.get_rank() == 0:
        try:
            told[0] = work()
        except Exception as error:
            told[1] = error if isinstance(error, NNCFXError) else StorageError(repr(error))
            torch.distributed.broadcast_object_list(told)
            raise
    torch.distributed.broadcast_object_list(told)
    if told[1] is not None:
        raise told[1]
    found: _Found = told[0]
    return found


def save_shards(
    folder: Path, tensors: Mapping[str, Tensor], description: Mapping[str, Any]
) -> None:
    """Write `tensors` and `description` to `folder`; every process calls this with its own.

    A missing folder is created; a checkpoint in it is replaced. Each process has a part of a
    DTensor, and all have the same other tensors; the description is that of the first process.

    Raises:
        StorageError: in every process: the folder cannot be written.
    """
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
    from torch.distributed.checkpoint.state_dict_saver import save

    rows = {
        name: [NAMES[plain_tensor(name, one).dtype], list(one.shape)]
        for name, one in tensors.items()
    }
    is_new = not folder.exists()
    name = in_first_process(lambda: _begun(folder))
    alone = not is_distributed()
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="torch.distributed is disabled")
            writer = HuggingFaceStorageWriter(str(folder / name), save_distributed=True)
            save(dict(tensors), storage_writer=writer, no_dist=alone)
    except (CheckpointException, OSError) as error:
        in_first_process(lambda: _undone(folder, name, is_new=is_new))
        raise StorageError(
            f"'{folder}' cannot be written ({_causes(error)}). Use a folder that all processes "
            "may write to, on a disk with room."
        ) from error
    content = {**description, "shards": name, "tensors": rows}
    in_first_process(lambda: _ended(folder, name, content, is_new=is_new))


def _begun(folder: Path) -> str:
    """Create a new folder in `folder` and return its name."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        taken = [
            int(found[1]) for one in folder.iterdir() if (found := _SHARDS.fullmatch(one.name))
        ]
        name = f"shards-{max(taken, default=0) + 1}"
        (folder / name).mkdir()
    except OSError as error:
        raise StorageError(
            f"'{folder}' cannot be written ({error}). Name a folder that you may write to."
        ) from error
    return name


def _undone(folder: Path, name: str, *, is_new: bool) -> None:
    """Remove the tensors called `name`, and a folder that is new."""
    shutil.rmtree(folder / name, ignore_errors=True)
    if is_new:
        with contextlib.suppress(OSError):  # another program has written to it
            folder.rmdir()


def _ended(folder: Path, name: str, content: Mapping[str, Any], *, is_new: bool) -> None:
    """Make the tensors called `name` those of the checkpoint; remove all other shards."""
    try:
        sync(folder / name)
        write_text(folder / _DESCRIPTION, json.dumps(content))
    except (OSError, StorageError):
        _undone(folder, name, is_new=is_new)
        raise
    for one in folder.iterdir():
        if _SHARDS.fullmatch(one.name) and one.name != name:
            shutil.rmtree(one, ignore_errors=True)


def _causes(error: BaseException) -> str:
    failures: Mapping[int, tuple[BaseException, object]] = getattr(error, "failures", {})
    told = [f"process {rank}: {one[0]!r}" for rank, one in sorted(failures.items())]
    return "; ".join(told) or str(error)


def read_folder_description(folder: Path) -> dict[str, Any]:
    """Return the JSON object of the checkpoint in `folder`.

    Raises:
        StorageError: there is none, it is not a checkpoint of nncfx, or of a later version.
    """
    path = folder / _DESCRIPTION
    if not path.exists() and (folder / "config.json").exists():
        raise StorageError(
            f"'{folder}' is not a checkpoint of nncfx.save, but the folder of a model that "
            "transformers reads, quantized or not: it has a config.json. Load it there: "
            f"transformers.AutoModelForCausalLM.from_pretrained({str(folder)!r})."
        )
    text = read_text(path)
    try:
        found = read_json(text)
    except ValueError as error:
        raise StorageError(f"'{path}' is not JSON: {error}. Write it again.") from error
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise StorageError(
            f"'{path}' does not belong to a checkpoint of nncfx. Give a folder that "
            "nncfx.save(..., shards=True) wrote."
        )
    return check_description(found, path, needed=_NEEDED)


def stored_shards(folder: Path, description: Mapping[str, Any]) -> StoredModel:
    """Return the model in `folder`; its tensors are read on demand, each of them whole.

    Raises:
        StorageError: the checkpoint is damaged.
    """
    name = description["shards"]
    if not isinstance(name, str) or not _SHARDS.fullmatch(name):
        raise StorageError(f"'{folder}' is damaged: {name!r:.80} is not a name of shards.")
    rows = {key: _row(folder, key, row) for key, row in description["tensors"].items()}
    shared = description["shared"]
    lost = [of for of in shared.values() if not isinstance(of, str) or of not in rows]
    if lost:
        raise StorageError(f"'{folder}' is damaged: it lacks {lost[0]!r:.80}. Write it again.")

    def read() -> dict[str, Tensor]:
        found = _read(folder / name, rows)
        return found | {key: found[of] for key, of in shared.items()}

    structure = dict(description["structure"])
    structure["example_inputs"] = description.get("example_inputs", {})
    return StoredModel(
        tensors=rows | {key: rows[of] for key, of in shared.items()},
        read=read,
        sizes=description["sizes"],
        structure=structure,
    )


def _row(folder: Path, name: str, row: Any) -> StoredTensor:  # noqa: ANN401 (JSON)
    match row:
        case [str(dtype), [*shape]] if dtype in DTYPES and all(
            type(one) is int and one >= 0 for one in shape
        ):
            return StoredTensor(dtype, tuple(shape))
    raise StorageError(
        f"'{folder}' is damaged: {row!r:.80} is not a format and shape of '{name}'. Write it "
        "again."
    )


def _read(shards: Path, rows: Mapping[str, StoredTensor]) -> dict[str, Tensor]:
    """Return whole tensors, assembled from all files of a folder."""
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
    from torch.distributed.checkpoint.state_dict_loader import load

    try:
        reader = HuggingFaceStorageReader(str(shards))
        found = reader.read_metadata().state_dict_metadata
        for name, row in rows.items():
            _check_parts(shards, name, row, found.get(name))
        # zeros take no memory until they are written
        tensors = {
            name: torch.zeros(row.shape, dtype=DTYPES[row.dtype], device="cpu")
            for name, row in rows.items()
        }
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="torch.distributed is disabled")
            load(dict(tensors), storage_reader=reader, no_dist=True)
    except (
        *(AttributeError, IndexError, KeyError, OSError, RuntimeError, TypeError, ValueError),
        safetensors.SafetensorError,
        CheckpointException,
    ) as error:
        raise StorageError(f"'{shards}' is damaged: {error!r}. Write it again.") from error
    return tensors


def _check_parts(shards: Path, name: str, row: StoredTensor, found: Any) -> None:  # noqa: ANN401 (of torch)
    """Check that the files hold every element of a tensor.

    Raises:
        StorageError: they do not.
    """
    parts = 0 if found is None else sum(math.prod(one.sizes) for one in found.chunks)
    wanted = math.prod(row.shape)
    is_right = found is not None and (
        (tuple(found.size), found.properties.dtype) == (row.shape, DTYPES[row.dtype])
    )
    if not is_right or parts != wanted:
        raise StorageError(
            f"'{shards}' holds {parts} of the {wanted} elements of '{name}', or others: files are "
            "missing, or of another checkpoint. Copy the whole folder, or write it again."
        )
