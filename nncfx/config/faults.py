"""Faults of a config: where, what, why, and how to fix them."""

import dataclasses
from collections.abc import Iterable, Sequence

from typing_extensions import override

from nncfx.errors import ConfigError


@dataclasses.dataclass(frozen=True, kw_only=True, order=True)
class Fault:
    """One fault of a config.

    Attributes:
        path: JSON path such as `compression[0].params.sparsity_target`; "" is the whole config.
        problem: What is wrong, why it is a fault, and the fix, in sentences.
    """

    path: str
    problem: str

    def below(self, prefix: str) -> "Fault":
        """Return the same fault, with its path below `prefix`."""
        return Fault(path=join(prefix, self.path), problem=self.problem)

    @override
    def __str__(self) -> str:
        return f"{self.path or 'the config'}: {self.problem}"


def join(prefix: str, path: str) -> str:
    """Return `path` below `prefix`.

    >>> join("compression[0]", "params.power"), join("", "input_info"), join("a", "[1]")
    ('compression[0].params.power', 'input_info', 'a[1]')
    """
    if not prefix or not path or path.startswith("["):
        return prefix + path
    return f"{prefix}.{path}"


def json_path(keys: Iterable[str | int]) -> str:
    """Return `keys` as a JSON path.

    >>> json_path(["compression", 0, "params"])
    'compression[0].params'
    """
    path = ""
    for key in keys:
        path = join(path, f"[{key}]" if isinstance(key, int) else str(key))
    return path


def config_error(faults: Sequence[Fault], source: str = "The config") -> ConfigError:
    """Return one error that lists `faults`, sorted by path; `source` names the faulty object.

    >>> print(config_error([Fault(path="a", problem="unknown key.")]))
    The config has 1 fault:
      a: unknown key.
    """
    lines = [f"  {fault}" for fault in sorted(set(faults))]
    count = f"{len(lines)} fault{'s' * (len(lines) != 1)}"
    return ConfigError(f"{source} has {count}:\n" + "\n".join(lines))
