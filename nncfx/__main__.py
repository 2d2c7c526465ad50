"""`python -m nncfx` is the command `nncfx`."""

from nncfx.cli.main import app

__all__: list[str] = []

if __name__ == "__main__":
    app()
