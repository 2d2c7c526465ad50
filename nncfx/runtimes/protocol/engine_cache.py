"""A cache of engines on disk, keyed by their sources, versions and settings."""

import hashlib
import json
import platform
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from nncfx.errors import RuntimeFailure
from nncfx.storage.formats.whole_file import write_whole

_MAGIC: Final = b"nncfx engine 1\n"


def kept_engine(
    folder: Path | None, facts: Mapping[str, str], build: Callable[[], bytes]
) -> tuple[bytes, bool]:
    """Return the engine for `facts`, and whether it was found in `folder`.

    The facts are everything that it depends on: runtime, version, content of the model, settings.
    The file name is a digest of them, so another engine has another file. A missing engine is
    built and stored, and the folder is created; without a folder it is only built. Two processes
    can share a folder.

    Raises:
        RuntimeFailure: the file is damaged, or contains another engine.
        StorageError: the engine cannot be written.
    """
    if folder is None:
        return build(), False
    header = json.dumps(dict(sorted(facts.items()))).encode() + b"\n"
    path = folder / f"{facts['runtime']}-{hashlib.sha256(header).hexdigest()[:32]}.engine"
    if path.exists():
        return _read(path, header), True
    engine = build()
    write_whole(path, [_MAGIC, header, hashlib.sha256(engine).digest(), engine])
    return engine, False


def content_digest(path: Path) -> str:
    """Return a digest of the file at `path` and of weight files next to it.

    ONNX stores weights above 2 GB in separate files; those whose names start with the model's
    (`model.onnx.data`) count.
    """
    digest = hashlib.sha256()
    beside = path.parent.glob(f"{path.name}.*")
    for file in (path, *sorted(one for one in beside if one.is_file())):
        with file.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()


def processor_digest(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Return a digest of the processor's model and instructions, for compiled code."""
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.exists() else []
    wanted = ("model name", "flags", "Features")
    told = [line for line in lines if line.startswith(wanted)][: len(wanted)]
    facts = [platform.machine(), platform.processor(), *told]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()


def _read(path: Path, header: bytes) -> bytes:
    start = _MAGIC + header
    size = hashlib.sha256().digest_size
    content = path.read_bytes()
    engine = content[len(start) + size :]
    if not content.startswith(start):
        raise RuntimeFailure(
            f"The kept engine '{path}' is not the one that its name stands for: it was built "
            "from something else or by another version. Delete it; it is built again."
        )
    if hashlib.sha256(engine).digest() != content[len(start) : len(start) + size]:
        raise RuntimeFailure(f"The kept engine '{path}' is damaged. Delete it; it is built again.")
    return engine
