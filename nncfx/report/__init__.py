"""The report of a run: one self-contained HTML page with charts, tables and proof.

Page and tables need torch and are imported when first used; `nncfx.report.format` does without.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nncfx.report.layer_comparison import LayerComparison, compare_layers
    from nncfx.report.page import render_report, write_report

__all__ = ["LayerComparison", "compare_layers", "render_report", "write_report"]


def __getattr__(name: str) -> object:
    """Import what is asked for (PEP 562)."""
    if name in __all__:
        from nncfx.report import layer_comparison, page

        return getattr(page if name in page.__all__ else layer_comparison, name)
    raise AttributeError(f"module 'nncfx.report' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
