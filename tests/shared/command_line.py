"""Commands of `nncfx`, run in this process."""

from pathlib import Path

from typer.testing import CliRunner

from nncfx.cli.commands import application


def run(*arguments: str | Path) -> str:
    """Return what the command prints; an error of ours is raised as it is."""
    result = CliRunner().invoke(application, list(map(str, arguments)), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output
