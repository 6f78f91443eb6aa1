"""From stored runs to numbers, a terminal table, figures and a page; never imports torch."""

from crlbench.report.load import Run, Runs, load_runs
from crlbench.report.page import render_page, write_page
from crlbench.report.summary import Summary, summarise
from crlbench.report.table import plain_table, terminal_table

__all__ = [
    "Run",
    "Runs",
    "Summary",
    "load_runs",
    "plain_table",
    "render_page",
    "summarise",
    "terminal_table",
    "write_page",
]
