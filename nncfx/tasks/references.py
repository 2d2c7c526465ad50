"""Loads the Python objects that a config refers to by name."""

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from nncfx.errors import ConfigError, NNCFXError, did_you_mean, error_text, users_line
from nncfx.tasks.config import CODE

_LOADED: Final[dict[Path, ModuleType]] = {}


def load_reference(text: str, folder: Path, key: str) -> object:
    """Return the object named by `text`; its module is executed.

    Args:
        text: `"package.module:name"` or `"file.py:name"`, where the file is in `folder`.
        folder: The folder of the config; packages in it are found, too.
        key: The config key with this name, for messages.

    Raises:
        ConfigError: `text` has another form, its module cannot be run, or has no such name.
    """
    problem = reference_problem(text, folder)
    if problem:
        raise ConfigError(f"{key}: {problem}")
    home, _, name = text.rpartition(":")
    module = load_module(folder / home, key) if home.endswith(".py") else _imported(home, key)
    found: object = module
    for part in name.split("."):
        if not hasattr(found, part):
            known = [one for one in vars(module) if not one.startswith("_")]
            raise ConfigError(
                f"{key}: '{home}' has no '{name}'.{did_you_mean(name, known)} It has "
                f"{', '.join(sorted(known)[:20]) or 'nothing'}."
            )
        found = getattr(found, part)
    return found


def reference_problem(text: str, folder: Path) -> str:
    """Return what is wrong with `text`, without running code; "" if nothing.

    Args:
        text: As for `load_reference`.
        folder: The folder of the config.
    """
    home, colon, name = text.rpartition(":")
    if not colon or not home or not name:
        file = " A file is read by a function of yours." if (folder / text).is_file() else ""
        return f"'{text}' names no Python object.{file} Write {CODE}."
    if home.endswith(".py") and not (folder / home).is_file():
        return f"there is no file '{folder / home}'. Check the path."
    return ""


def call_reference(
    function: Callable[..., Any], text: str, key: str, arguments: Mapping[str, Any] | None = None
) -> Any:  # noqa: ANN401 (the result of a user's function)
    """Return the result of a user's function.

    Args:
        function: From `load_reference`.
        text: Its name.
        arguments: By keyword; optional.
        key: The config key, or the option, that names it, for messages.

    Raises:
        ConfigError: it raises an error.
        NNCFXError: raised by the function itself.
    """
    try:
        return function(**(arguments or {}))
    except NNCFXError:
        raise
    except Exception as error:
        fix = "Fix it, or its arguments." if arguments else "Fix it."
        raise ConfigError(
            f"{key}: '{text}' raised {error_text(error)}{_place(error)}. {fix}"
        ) from error


def load_module(path: Path, key: str) -> ModuleType:
    """Return the module in the file at `path`, which is executed once per process.

    Raises:
        ConfigError: there is no such file, or it raises an error.
    """
    path = path.resolve()
    if path in _LOADED:
        return _LOADED[path]
    if not path.is_file():
        raise ConfigError(f"{key}: there is no file '{path}'. Check the path.")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None  # noqa: S101, PT018 (a file ending in .py)
    module = importlib.util.module_from_spec(spec)
    # workers of a loader find pickled objects by the name of their module
    known = sys.modules.get(path.stem)
    if known is None:
        sys.modules[path.stem] = module
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    except NNCFXError:
        raise
    except Exception as error:
        if known is None:
            del sys.modules[path.stem]
        raise ConfigError(
            f"{key}: '{path}' cannot be run: {error_text(error)}{_place(error)}. Fix it there."
        ) from error
    _LOADED[path] = module
    return module


def _imported(name: str, key: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except NNCFXError:
        raise
    except Exception as error:
        raise ConfigError(
            f"{key}: the module '{name}' cannot be imported: {error_text(error)}. "
            "Install its package, or name a file: 'file.py:function'."
        ) from error


def _place(error: BaseException) -> str:
    """Return the file and the line of user code that raised `error`."""
    line = users_line(error)
    return "" if line is None else f" ({Path(line.filename).name}, line {line.lineno})"
