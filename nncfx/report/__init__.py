"""The report of a run: one self-contained HTML page with charts, tables and proof.

Page and tables need torch and are imported on first use; `nncfx.report.format` does not need it.
"""

from typing import TYPE_CHECKING

from nncfx.lazy import names_of

if TYPE_CHECKING:
    from nncfx.report.layer_comparison import LayerComparison, compare_layers
    from nncfx.report.page import render_report, write_report

__all__ = ["LayerComparison", "compare_layers", "render_report", "write_report"]


__getattr__ = names_of(__name__, "page", "layer_comparison")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
