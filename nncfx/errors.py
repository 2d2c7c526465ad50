"""Every error that nncfx raises on purpose.

The tree (each class also is the built-in error that a caller would expect)::

    NNCFXError
    ├── ArgumentError (ValueError)        a value passed to a function is not admissible
    ├── ConfigError (ValueError)          a JSON config has faults; all of them are listed
    ├── GraphError (LookupError)          an address, scope or parameter does not exist
    ├── TracingError (RuntimeError)       a model cannot be wrapped or traced
    ├── HookError (RuntimeError)          a hook returned what the operation cannot take
    ├── CompressionError (RuntimeError)   compression or recovery cannot continue
    ├── ThinningError (RuntimeError)      channels cannot be removed exactly
    ├── SearchError (RuntimeError)        a search has no answer, or its journal is not usable
    ├── StorageError (ValueError)         a file is damaged, hostile or of another kind
    ├── ExportError (RuntimeError)        a model cannot be exported
    ├── RuntimeFailure (RuntimeError)     an inference runtime refused a model or an input
    ├── MachineError (OSError)            memory, disk or device failed, not what was tried
    └── MissingExtraError (ImportError)   an optional dependency is not installed
"""

import contextlib
import difflib
import errno
import os
import re
import sysconfig
import traceback
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

__all__ = [
    "ArgumentError",
    "CompressionError",
    "ConfigError",
    "ExportError",
    "GraphError",
    "HookError",
    "MachineError",
    "MissingExtraError",
    "NNCFXError",
    "RuntimeFailure",
    "SearchError",
    "StorageError",
    "ThinningError",
    "TracingError",
    "did_you_mean",
    "error_text",
    "machine_fault",
    "machine_faults_told",
    "needing",
    "require_known",
    "shortened",
    "users_line",
]


class NNCFXError(Exception):
    """The root of all errors of nncfx; catch it to catch them all."""


class ArgumentError(NNCFXError, ValueError):
    """A value passed to a function is not admissible."""


class ConfigError(NNCFXError, ValueError):
    """A config has faults; the message lists each with its JSON path, reason and mend."""


class GraphError(NNCFXError, LookupError):
    """An address, a scope or a parameter that was asked for does not exist."""


class TracingError(NNCFXError, RuntimeError):
    """A model cannot be wrapped or traced; the model is left as it was."""


class HookError(NNCFXError, RuntimeError):
    """A hook returned something that the operation at its site cannot take."""


class CompressionError(NNCFXError, RuntimeError):
    """Compression or recovery of accuracy cannot continue."""


class ThinningError(NNCFXError, RuntimeError):
    """Channels cannot be removed exactly; the model is left as it was."""


class SearchError(NNCFXError, RuntimeError):
    """A search has no answer, or its journal cannot be used."""


class StorageError(NNCFXError, ValueError):
    """A file is damaged, hostile, or of another kind or version."""


class ExportError(NNCFXError, RuntimeError):
    """A model cannot be exported."""


class RuntimeFailure(NNCFXError, RuntimeError):  # noqa: N818 (RuntimeError is taken)
    """An inference runtime refused a model or an input."""


class MachineError(NNCFXError, OSError):
    """Memory, disk or device of the machine failed, which says nothing of what was tried."""


class MissingExtraError(NNCFXError, ImportError):
    """An optional dependency is not installed; the message names the extra."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        """Say that `package`, needed for `purpose`, comes with `extra`."""
        super().__init__(
            f"'{package}' is not installed, and {purpose} needs it. "
            f"Install it with: pip install 'nncfx[{extra}]'"
        )


@contextlib.contextmanager
def needing(package: str, extra: str, purpose: str) -> Iterator[None]:
    """Raise `MissingExtraError` where the body imports what is not installed."""
    try:
        yield
    except ImportError as error:
        raise MissingExtraError(package, extra, purpose) from error


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return " Did you mean 'x'?" for the known name nearest to `name`, or "".

    >>> did_you_mean("sparsity_tarjet", ["sparsity_target", "schedule"])
    " Did you mean 'sparsity_target'?"
    >>> did_you_mean("zzz", ["schedule"])
    ''
    """
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f" Did you mean '{near[0]}'?" if near else ""


def require_known(
    what: str,
    name: str,
    known: Iterable[str],
    mend: str = "",
    *,
    error: type[NNCFXError] = ArgumentError,
) -> None:
    """Refuse a `name` that is none of the `known` ones of what it names; `mend` ends the message.

    Raises:
        ArgumentError: so it is; or the `error` that is given.
    """
    names = list(known)
    if name not in names:
        raise error(
            f"There is no {what} '{name}'.{did_you_mean(str(name), names)} Known are "
            f"{', '.join(names)}.{mend}"
        )


def shortened(names: Sequence[str], most: int = 3) -> str:
    """Return the first `most` names with commas between them, and how many more there are.

    >>> shortened(["'a'", "'b'", "'c'", "'d'"], 2)
    "'a', 'b' and 2 more"
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def error_text(error: BaseException) -> str:
    """Return the class of an error and what it says, for a message that continues after it.

    >>> error_text(ValueError("the width is 0")), error_text(AssertionError())
    ('ValueError: the width is 0', 'AssertionError without a text')
    """
    kind, text = type(error).__name__, str(error).strip()
    return f"{kind}: {text}" if text else f"{kind} without a text"


_INSTALLED: Final = (
    *(sysconfig.get_path(kind) + os.sep for kind in ("stdlib", "purelib", "platlib")),
    os.path.dirname(__file__) + os.sep,  # noqa: PTH120 (names of files in a traceback are texts)
    "<",  # of no file
)


def users_line(error: BaseException) -> traceback.FrameSummary | None:
    """Return the last line of users' code on the way to `error`, or to what it was raised from.

    Code of nncfx, of Python and of installed packages is none; None where there is no other.
    """
    while error.__cause__ is not None:
        error = error.__cause__
    frames = reversed(traceback.extract_tb(error.__traceback__))
    return next((one for one in frames if not one.filename.startswith(_INSTALLED)), None)


_FAULTY_TYPES: Final = frozenset(
    # by name: torch and pools of processes are not imported here
    {"MemoryError", "OutOfMemoryError", "AcceleratorError", "BrokenProcessPool"}
)
_FAULTY_CODES: Final = (
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS),
    *(errno.ENOMEM, errno.EMFILE, errno.ENFILE),
)
_FAULTY_WORDS: Final = re.compile(
    "|".join(
        [
            # libraries pass on what the system says as text of errors of their own
            *(re.escape(os.strerror(code)) for code in _FAULTY_CODES),
            r"\bout of (host |device |gpu )?memory\b",
            r"(?:cannot|can't|can\u2019t|could not) allocate",
            r"not enough memory",
            r"insufficient (shared )?memory",
            r"(?:failed|unable) to (?:allocate|mmap)",
            r"\bbad[_ ]alloc",
            r"_ALLOC_FAILED",
            r"OUT_OF_(?:HOST_|DEVICE_)?(?:MEMORY|RESOURCES)",
            r"smaller than requested bytes",
            r"\bOutOfMemory\b",
            r"\b(?:CUDA|HIP|XPU|NCCL)(?: driver)? error\b",
            r"STATUS_NOT_INITIALIZED",
            r"DataLoader worker .*(?:killed|exited)",
            r"inline_container\.cc",  # torch.save on a disk that is full
            r"(?:disk I/O error|disk is full)",
        ]
    ),
    re.IGNORECASE,
)


def machine_fault(error: BaseException) -> BaseException | None:
    """Return the fault of the machine that `error` comes from, or None where it has another cause.

    The one place that tells what is wrong with a candidate from what is wrong with the machine:
    any `OSError`, missing memory of host or device, a broken device, a killed worker, whether
    raised as such, told in the words of a library, or behind an error that was raised from it.

    >>> machine_fault(OSError(28, "No space left on device"))
    OSError(28, 'No space left on device')
    >>> machine_fault(ValueError("the loss is NaN")) is None
    True
    """
    seen: set[int] = set()
    link: BaseException | None = error
    is_meant = True
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        if _is_fault(link, is_meant=is_meant):
            return link
        # what merely went before an error, such as a file that was looked for, is seldom its cause
        is_meant = link.__cause__ is not None
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    return None


@contextlib.contextmanager
def machine_faults_told(what: str, mend: str) -> Iterator[None]:
    """Raise faults of the machine in the body as such; other errors pass.

    Args:
        what: was under way, such as "trial 3".
        mend: what to do after the machine is well again.

    Raises:
        MachineError: the body raised an error that comes from a fault of the machine.
    """
    try:
        yield
    except MachineError:
        raise
    except Exception as error:
        fault = machine_fault(error)
        if fault is None:
            raise
        reason = (str(fault).strip() or "no reason given").splitlines()
        if isinstance(fault, OSError) and not _is_fault(fault, is_meant=False):
            # a worker of a DataLoader gives its whole traceback as text
            line, told = users_line(fault), reason[-1].removeprefix(f"{type(fault).__name__}: ")
            place = "" if line is None else f" at {line.filename}, line {line.lineno}"
            raise MachineError(
                f"{type(fault).__name__}{place} ended {what}: {told.rstrip('.')}. This says "
                "nothing about what was tried, so nothing is recorded of it. Mend the file, its "
                f"path or the connection; then {mend}."
            ) from error
        raise MachineError(
            f"A fault of the machine ended {what}: {type(fault).__name__}: {reason[0]} This says "
            "nothing about what was tried, so nothing is recorded of it. Free memory or disk, "
            f"or mend the device; then {mend}."
        ) from error


def _is_fault(error: BaseException, *, is_meant: bool) -> bool:
    if isinstance(error, OSError) and (is_meant or error.errno in _FAULTY_CODES):
        return True
    if not _FAULTY_TYPES.isdisjoint(one.__name__ for one in type(error).__mro__):
        return True
    # our own words are no library's, save where a runtime gives a text and no error
    is_quoted = isinstance(error, RuntimeFailure) or not isinstance(error, NNCFXError)
    return is_quoted and bool(_FAULTY_WORDS.search(str(error)))
