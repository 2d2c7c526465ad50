"""The entry point of the command line; it prints a clear error if typer is missing."""

import errno
import importlib.util
import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from nncfx._version import __version__
from nncfx.cli.faults import FAULT, fault_text
from nncfx.errors import MissingExtraError, NNCFXError


def app() -> None:
    """Run the command line on `sys.argv`, then exit.

    Exit codes: 0 done; 2 a mistake in the command, a file or the set-up, reported in one paragraph
    on standard error; 3 `nncfx benchmark` found a regression, or `nncfx compress` produced a model
    that exceeds its budget; 130 interrupted; 1 anything else, such as a closed standard output,
    reported in one line.
    """
    with _output_written():
        if sys.argv[1:] == ["--version"]:  # base dependencies suffice
            sys.stdout.write(f"nncfx {__version__}\n")
            return
        warnings.showwarning = _show_warning
        try:
            _application()()
        except NNCFXError as error:
            sys.stderr.write(fault_text(error))
            raise SystemExit(FAULT) from error


@contextmanager
def _output_written() -> Iterator[None]:
    """Flush standard output at the end, or report in one line why it is impossible."""
    if sys.__stdout__ is None:
        sys.stderr.write("nncfx: standard output is closed. Send it to /dev/null instead.\n")
        raise SystemExit(1)
    try:
        yield
    except OSError:
        _write_out("\n")  # fails again if standard output was the cause
        raise
    finally:
        _write_out("")


def _write_out(text: str) -> None:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        # Python would write the rest, and report the error, again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if error.errno != errno.EPIPE:  # the reader stopped early, such as `head`
            sys.stderr.write(f"nncfx: standard output takes nothing: {error.strerror}.\n")
        raise SystemExit(1) from None


def _show_warning(
    message: Warning | str,
    category: type[Warning],  # noqa: ARG001 (as Python passes them)
    filename: str,  # noqa: ARG001
    lineno: int,  # noqa: ARG001
    file: TextIO | None = None,  # noqa: ARG001
    line: str | None = None,  # noqa: ARG001
) -> None:
    """Print a warning between lines of progress, without the line of code that caused it."""
    logging.getLogger("nncfx").warning("%s", message)


def _application() -> Callable[[], object]:
    if importlib.util.find_spec("typer") is None:
        raise MissingExtraError("typer", "cli", "the command 'nncfx'")
    from nncfx.cli.commands import application

    return application
