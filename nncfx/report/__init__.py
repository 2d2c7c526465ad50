"""The report of a run: one self-contained HTML page with charts, tables and proof.

The page needs torch and is imported when it is first used; `nncfx.report.format` does without.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nncfx.report.page import render_report, write_report

__all__ = ["render_report", "write_report"]


def __getattr__(name: str) -> object:
    """Import the page when it is asked for (PEP 562)."""
    if name in __all__:
        from nncfx.report import page

        return getattr(page, name)
    raise AttributeError(f"module 'nncfx.report' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
