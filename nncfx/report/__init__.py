"""The report of a run: one self-contained HTML page with charts, tables and proof."""

from nncfx.report.page import render_report, write_report

__all__ = ["render_report", "write_report"]
