"""Every error that nncfx raises on purpose.

The tree (each class also is the built-in error that a caller would expect)::

    NNCFXError
    ├── ArgumentError (ValueError)        a value passed to a function is not admissible
    ├── ConfigError (ValueError)          a JSON config has faults; all of them are listed
    ├── GraphError (LookupError)          an address, scope or parameter does not exist
    ├── TracingError (RuntimeError)       a model cannot be wrapped or traced
    ├── HookError (RuntimeError)          a hook returned what the operation cannot take
    ├── CompressionError (RuntimeError)   compression or recovery cannot go on
    ├── ThinningError (RuntimeError)      channels cannot be removed exactly
    ├── SearchError (RuntimeError)        a search has no answer, or its journal is not usable
    ├── StorageError (ValueError)         a file is damaged, hostile or of another kind
    ├── ExportError (RuntimeError)        a model cannot be exported
    ├── RuntimeFailure (RuntimeError)     an inference runtime refused a model or an input
    └── MissingExtraError (ImportError)   an optional dependency is not installed
"""

import difflib
from collections.abc import Iterable

__all__ = [
    "ArgumentError",
    "CompressionError",
    "ConfigError",
    "ExportError",
    "GraphError",
    "HookError",
    "MissingExtraError",
    "NNCFXError",
    "RuntimeFailure",
    "SearchError",
    "StorageError",
    "ThinningError",
    "TracingError",
    "did_you_mean",
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
    """Compression or recovery of accuracy cannot go on."""


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


class MissingExtraError(NNCFXError, ImportError):
    """An optional dependency is not installed; the message names the extra."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        """Say that `package`, needed for `purpose`, comes with `extra`."""
        super().__init__(
            f"'{package}' is not installed, and {purpose} needs it. "
            f"Install it with: pip install 'nncfx[{extra}]'",
        )


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return " Did you mean 'x'?" for the known name nearest to `name`, or "".

    >>> did_you_mean("sparsity_tarjet", ["sparsity_target", "schedule"])
    " Did you mean 'sparsity_target'?"
    >>> did_you_mean("zzz", ["schedule"])
    ''
    """
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f" Did you mean '{near[0]}'?" if near else ""
