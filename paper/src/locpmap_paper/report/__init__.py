"""Reports of recorded runs: a self-contained HTML page, or Markdown.

Figures are drawn with matplotlib, a dependency of this package, which is imported when a report is written.
"""

from locpmap_paper.report.writing import write_markdown, write_report

__all__ = ["write_markdown", "write_report"]
