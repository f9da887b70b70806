"""Reports: the record of a run becomes one HTML page that stands by itself, or a page of markdown.

Drawing needs matplotlib (a dependency of this package), which is loaded when a report is written.
"""

from locpmap_paper.report.writing import write_markdown, write_report

__all__ = ["write_markdown", "write_report"]
