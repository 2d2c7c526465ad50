"""Every error that nncfx raises on purpose.

The tree (each class also inherits the built-in error that a caller would expect)::

    NNCFXError
    ├── ArgumentError (ValueError)        a value passed to a function is invalid
    ├── ConfigError (ValueError)          a JSON config has faults; all of them are listed
    ├── GraphError (LookupError)          an address, scope or parameter does not exist
    ├── TracingError (RuntimeError)       a model cannot be wrapped or traced
    ├── HookError (RuntimeError)          a hook returned what the operation cannot accept
    ├── CompressionError (RuntimeError)   compression or recovery cannot continue
    ├── ThinningError (RuntimeError)      channels cannot be removed exactly
    ├── SearchError (RuntimeError)        a search has no result or an unusable journal
    ├── StorageError (ValueError)         a file is damaged, hostile or of another kind
    ├── ExportError (RuntimeError)        a model cannot be exported
    ├── RuntimeFailure (RuntimeError)     an inference runtime rejected a model or an input
    ├── MachineError (OSError)            memory, disk or a device failed, not the candidate
    └── MissingExtraError (ImportError)   an optional dependency is not installed
"""

import contextlib
import dataclasses
import difflib
import errno
import os
import re
import sysconfig
import traceback
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

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
    "is_installed",
    "machine_fault",
    "machine_faults_told",
    "needing",
    "require_known",
    "require_truth",
    "require_truths",
    "shortened",
    "users_line",
]


class NNCFXError(Exception):
    """The base class of all errors of nncfx; catch it to catch them all."""


class ArgumentError(NNCFXError, ValueError):
    """A value passed to a function is invalid."""


class ConfigError(NNCFXError, ValueError):
    """A config has faults; the message lists each with its JSON path, reason and fix."""


class GraphError(NNCFXError, LookupError):
    """A requested address, scope or parameter does not exist."""


class TracingError(NNCFXError, RuntimeError):
    """A model cannot be wrapped or traced; the model is not changed."""


class HookError(NNCFXError, RuntimeError):
    """A hook returned something that the operation at its site cannot accept."""


class CompressionError(NNCFXError, RuntimeError):
    """Compression or recovery of accuracy cannot continue."""


class ThinningError(NNCFXError, RuntimeError):
    """Channels cannot be removed exactly; the model is not changed."""


class SearchError(NNCFXError, RuntimeError):
    """A search has no result, or its journal cannot be used."""


class StorageError(NNCFXError, ValueError):
    """A file is damaged, hostile, or of another kind or version."""


class ExportError(NNCFXError, RuntimeError):
    """A model cannot be exported."""


class RuntimeFailure(NNCFXError, RuntimeError):  # noqa: N818 (RuntimeError is taken)
    """An inference runtime rejected a model or an input."""


class MachineError(NNCFXError, OSError):
    """Memory, disk or a device of the machine failed, independently of the candidate."""


class MissingExtraError(NNCFXError, ImportError):
    """An optional dependency is not installed; the message names the extra."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        """Create a message that `extra` installs `package`, which is needed for `purpose`."""
        super().__init__(
            f"'{package}' is not installed, and {purpose} needs it. "
            f"Install it with: pip install 'nncfx[{extra}]'"
        )


@contextlib.contextmanager
def needing(package: str, extra: str, purpose: str) -> Iterator[None]:
    """Raise `MissingExtraError` if the body imports a package that is not installed."""
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
    fix: str = "",
    *,
    error: type[NNCFXError] = ArgumentError,
) -> None:
    """Refuse a `name` that is not in `known`; `what` is its kind, and `fix` ends the message.

    Raises:
        ArgumentError: it is not in `known`; or the given `error`.
    """
    names = list(known)
    if name not in names:
        raise error(
            f"There is no {what} '{name}'.{did_you_mean(str(name), names)} Known are "
            f"{', '.join(names)}.{fix}"
        )


TRUTHS: Final = frozenset({bool, bool | None})
"""The annotations of what is true or false."""


def require_truth(name: str, value: object) -> None:
    """Refuse a string for `name`, which is true or false: "no" would count as true.

    Raises:
        ArgumentError: `value` is a string.
    """
    if isinstance(value, str):
        raise ArgumentError(
            f"{name} is {value!r}, and every string counts as true. Write {name}=True or "
            f"{name}=False."
        )


def require_truths(options: Any) -> None:  # noqa: ANN401 (any dataclass)
    """Refuse strings in the fields of the dataclass `options` that are true or false.

    Raises:
        ArgumentError: a value is a string.
    """
    for one in dataclasses.fields(options):
        if one.type in TRUTHS:
            require_truth(one.name, getattr(options, one.name))


def shortened(names: Sequence[str], most: int = 3) -> str:
    """Return the first `most` names separated by commas, and how many more there are.

    >>> shortened(["'a'", "'b'", "'c'", "'d'"], 2)
    "'a', 'b' and 2 more"
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def error_text(error: BaseException) -> str:
    """Return the class and text of an error, for a message that continues after it.

    >>> error_text(ValueError("the width is 0")), error_text(AssertionError())
    ('ValueError: the width is 0', 'AssertionError without a text')
    """
    kind, text = type(error).__name__, str(error).strip()
    return f"{kind}: {text}" if text else f"{kind} without a text"


_INSTALLED: Final = (
    *(sysconfig.get_path(kind) + os.sep for kind in ("stdlib", "purelib", "platlib")),
    os.path.dirname(__file__) + os.sep,  # noqa: PTH120 (file names in a traceback are strings)
    "<",  # not a file
)


def is_installed(filename: str) -> bool:
    """Return whether code of `filename` belongs to nncfx, Python or an installed package."""
    return filename.startswith(_INSTALLED)


def users_line(error: BaseException) -> traceback.FrameSummary | None:
    """Return the last line of user code in the traceback of `error`, or of its causes.

    Code of nncfx, of Python and of installed packages is not user code; None if there is no other.
    """
    while error.__cause__ is not None:
        error = error.__cause__
    frames = reversed(traceback.extract_tb(error.__traceback__))
    return next((one for one in frames if not is_installed(one.filename)), None)


_FAULTY_TYPES: Final = frozenset(
    # by name, because torch and process pools are not imported here
    {"MemoryError", "OutOfMemoryError", "AcceleratorError", "BrokenProcessPool"}
)
_FAULTY_CODES: Final = (
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS),
    *(errno.ENOMEM, errno.EMFILE, errno.ENFILE),
)
_FAULTY_WORDS: Final = re.compile(
    "|".join(
        [
            # libraries quote system messages in errors of their own
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
            r"inline_container\.cc",  # torch.save on a full disk
            r"(?:disk I/O error|disk is full)",
        ]
    ),
    re.IGNORECASE,
)


def machine_fault(error: BaseException) -> BaseException | None:
    """Return the machine fault that caused `error`, or None if it has another cause.

    This is the only place that distinguishes faults of a candidate from faults of the machine: any
    `OSError`, missing memory of host or device, a broken device, or a killed worker, whether
    raised as such, reported in a library's message, or found as the cause of another error.

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
        # an error that merely preceded another, such as a file lookup, is rarely its cause
        is_meant = link.__cause__ is not None
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    return None


@contextlib.contextmanager
def machine_faults_told(what: str, fix: str) -> Iterator[None]:
    """Raise machine faults in the body as `MachineError`; other errors propagate.

    Args:
        what: what was running, such as "trial 3".
        fix: what to do once the machine works again.

    Raises:
        MachineError: the body raised an error caused by a machine fault.
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
            # a worker of a DataLoader returns its whole traceback as text
            line, told = users_line(fault), reason[-1].removeprefix(f"{type(fault).__name__}: ")
            place = "" if line is None else f" at {line.filename}, line {line.lineno}"
            raise MachineError(
                f"{type(fault).__name__}{place} ended {what}: {told.rstrip('.')}. This says "
                "nothing about what was tried, so nothing is recorded of it. Fix the file, its "
                f"path or the connection; then {fix}."
            ) from error
        raise MachineError(
            f"A fault of the machine ended {what}: {type(fault).__name__}: {reason[0]} This says "
            "nothing about what was tried, so nothing is recorded of it. Free memory or disk, "
            f"or fix the device; then {fix}."
        ) from error


def _is_fault(error: BaseException, *, is_meant: bool) -> bool:
    if isinstance(error, OSError) and (is_meant or error.errno in _FAULTY_CODES):
        return True
    if not _FAULTY_TYPES.isdisjoint(one.__name__ for one in type(error).__mro__):
        return True
    # our own messages are not a library's, unless a runtime reports a text without an error
    is_quoted = isinstance(error, RuntimeFailure) or not isinstance(error, NNCFXError)
    return is_quoted and bool(_FAULTY_WORDS.search(str(error)))
