"""Runs the command `nncfx` for `python -m nncfx`."""

from nncfx.cli.main import app

__all__: list[str] = []

if __name__ == "__main__":
    app()
