"""The config of a compression run, in NNCF's format."""

import dataclasses
import difflib
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, Self, TypeAlias

from typing_extensions import override

from nncfx.config.accuracy_aware import AccuracyAwareTraining
from nncfx.config.faults import Fault, config_error
from nncfx.config.option import Limits, option, options_of, required
from nncfx.config.registry import AlgorithmConfig, algorithm_configs
from nncfx.config.search import SearchConfig
from nncfx.config.section import Section, read_section
from nncfx.errors import ConfigError
from nncfx.untrusted import read_json

_NOT_BUILT = "it is not implemented"


@dataclasses.dataclass(frozen=True, kw_only=True)
class InputInfo(Section):
    """One input of the model, from which an example is made if none is given."""

    sample_size: tuple[int, ...] = required(
        "the shape of the input, with the batch axis", limits=Limits(minimum=1)
    )
    type: Literal["float", "half", "double", "int", "long", "bool"] = option(
        "float", "the type of the input's entries"
    )
    filler: Literal["ones", "zeros", "random"] = option("ones", "what the example is filled with")
    keyword: str | None = option(None, "the name of the input in the model's forward")


@dataclasses.dataclass(frozen=True, kw_only=True)
class NNCFConfig(Section):
    """A whole config: inputs, target device, algorithms, and scopes for all of them.

    Valid by construction. `from_dict` and `from_json` read the format of NNCF 2.19; features of
    NNCF that nncfx does not support are refused with the reason, and an unknown key is an error.

    >>> config = NNCFConfig.from_dict({"compression": {"algorithm": "magnitude_sparsity"}})
    >>> config.compression[0].params.sparsity_target
    0.5
    """

    refused: ClassVar[Mapping[str, str]] = {
        "bootstrapNAS": _NOT_BUILT,
        "hw_config_type": "it chose the device in NNCF 1. Write 'target_device', such as 'CPU'",
    }

    input_info: tuple[InputInfo, ...] = option((), "the model's inputs, in order", single=True)
    target_device: Literal["ANY", "CPU", "GPU", "NPU", "TRIAL", "CPU_SPR"] = option(
        "ANY",
        "the device the model will run on; it decides the rules of quantization and nothing else",
    )
    compression: tuple[AlgorithmConfig, ...] = option(
        (),
        "the algorithms, in any order",
        single=True,
        tagged=algorithm_configs,
        refused_tags={
            "binarization": _NOT_BUILT,
            "experimental_quantization": "it is not implemented. Use 'quantization'",
        },
    )
    ignored_scopes: tuple[str, ...] = option(
        (),
        "addresses, scopes or {re} patterns of operations that every algorithm leaves alone",
        single=True,
    )
    target_scopes: tuple[str, ...] | None = option(
        None,
        "the only operations to work on, for algorithms without target_scopes of their own",
        single=True,
    )
    validate_scopes: bool = option(
        default=True, doc="whether one of these scopes that matches nothing is an error"
    )
    accuracy_aware_training: AccuracyAwareTraining | None = option(
        None, "how nncfx.controllers.train_to_accuracy trains"
    )
    search: SearchConfig | None = option(
        None, "a search for the level, which nncfx.Compressor.from_config runs"
    )
    compression_lr_multiplier: float | None = option(
        None,
        "the multiplier for algorithms that train parameters and have no multiplier of their own",
        limits=Limits(minimum=0),
    )
    disable_shape_matching: bool = option(
        default=False,
        doc="whether shapes are ignored when operations are matched; nncfx always ignores them",
    )
    scopes_without_shape_matching: tuple[str, ...] = option(
        (),
        "operations that are matched without their shapes; nncfx matches all of them so",
        single=True,
    )
    user: Mapping[str, Any] = dataclasses.field(default_factory=dict, hash=False)

    @property
    def user_keys(self) -> tuple[str, ...]:
        """The top-level keys that nncfx does not use, such as `model` or `optimizer`.

        NNCF's sample configs contain settings of their scripts next to those of NNCF; `user` is
        for yours. A key that is similar to one of ours is a fault, not a user key.
        """
        return tuple(self.user)

    @classmethod
    @override
    def schema(cls) -> dict[str, Any]:
        """Return the JSON Schema (draft 2020-12); other top-level keys belong to the user."""
        schema = super().schema()
        schema["$defs"][cls.__name__]["additionalProperties"] = True
        return schema

    @classmethod
    @override
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the config that `data` describes; absent keys take their defaults.

        Raises:
            ConfigError: `data` has faults; the message lists every one with its JSON path.

        >>> NNCFConfig.from_dict({"model": "resnet50"}).user_keys
        ('model',)
        """
        return cls._read(data, "The config")

    @override
    def to_dict(self) -> dict[str, Any]:
        """Return all keys, including the user's own, as JSON values."""
        return super().to_dict() | dict(self.user)

    @classmethod
    def _read(cls, data: object, source: str) -> Self:
        if not isinstance(data, Mapping):
            return read_section(cls, data, source)
        known = [*(field.name for field in options_of(cls)), *cls.refused]
        user = {key: data[key] for key in data if _is_users(key, known)}
        ours = {key: value for key, value in data.items() if key not in user}
        config = read_section(cls, ours, source)
        object.__setattr__(config, "user", user)
        return config

    @classmethod
    def from_json(cls, path: str | os.PathLike[str]) -> Self:
        """Return the config in the JSON file at `path`.

        Comments (`//`, `/* */`) and commas before a closing bracket are allowed, as in NNCF.

        Raises:
            ConfigError: there is no such file, it is not JSON, names a key twice, or has faults;
                the message lists every fault with its JSON path.
        """
        return cls._read(read_config_file(path), _source(path))

    @classmethod
    def of(cls, config: "AnyConfig") -> "NNCFConfig":
        """Return `config` itself, or the config in a mapping or in the JSON file at a path.

        Raises:
            ConfigError: as `from_dict` and `from_json`.
        """
        if isinstance(config, NNCFConfig):
            return config
        if isinstance(config, str | os.PathLike):
            return cls.from_json(config)
        return cls.from_dict(config)


AnyConfig: TypeAlias = NNCFConfig | Mapping[str, Any] | str | os.PathLike[str]
"""Anything accepted as a config: a config, a mapping of its keys, or a path of a JSON file."""


_MISPLACED: Final = (
    "algorithm",
    "params",
    "initializer",
    "pruning_init",
    "sparsity_init",
    "sample_size",
)
"""Keys of algorithms and inputs that no script uses itself: at the top they are mistakes."""


def _is_users(key: object, known: Iterable[str]) -> bool:
    """Return whether `key` is none of ours, not even misspelt or misplaced."""
    if key in _MISPLACED:
        return False
    nearly = 0.8
    is_text = isinstance(key, str)
    return is_text and not difflib.get_close_matches(
        str(key).lower(), [one.lower() for one in known], cutoff=nearly
    )


_COMMENT = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_LAST_COMMA = re.compile(r'("(?:\\.|[^"\\])*")|,(?=\s*[}\]])')


def _source(path: str | os.PathLike[str]) -> str:
    return f"The config '{Path(path)}'"


def read_config_file(path: str | os.PathLike[str]) -> object:
    """Return the content of the JSON file at `path`; comments and trailing commas are allowed.

    Raises:
        ConfigError: it cannot be read, is not JSON, or an object names a key twice.
    """
    source = _source(path)
    try:
        text = Path(path).read_text(encoding="utf-8-sig")  # Windows editors write a BOM
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{source} cannot be read: {error}. Give the path of a JSON file in UTF-8."
        ) from error
    # replace comments by blanks, so lines and columns in errors match the file
    bare = _COMMENT.sub(lambda m: m[1] or re.sub(r"[^\n]", " ", m[0]), text)
    bare = _LAST_COMMA.sub(lambda m: m[1] or " ", bare)
    twice: list[Fault] = []

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = [key for key, _ in pairs]
        repeated = sorted({key for key in keys if keys.count(key) > 1})
        twice.extend(
            Fault(
                path=key, problem="the key is given twice in one object, and only one can count."
            )
            for key in repeated
        )
        return dict(pairs)

    try:
        data = read_json(bare, object_pairs_hook=unique, finite=False)
    except ValueError as error:
        raise ConfigError(f"{source} is not JSON: {error}. Fix it there.") from error
    if twice:
        raise config_error(twice, source)
    return data
