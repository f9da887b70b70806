"""Reports: the record of a run becomes one HTML page that stands by itself, or a page of markdown.

Drawing needs matplotlib (``pip install 'locpmap[demo]'``), which is loaded when a report is written.
"""

from locpmap.report.writing import write_markdown, write_report

__all__ = ["write_markdown", "write_report"]
