"""From stored runs to numbers, a terminal table, figures and a page; never imports torch."""

from crlbench.report.ablation import Ablation, summarise_study
from crlbench.report.ablation_page import render_ablation
from crlbench.report.board import Board, paired_axes, summarise_board
from crlbench.report.load import Run, Runs, load_runs
from crlbench.report.page import render_page
from crlbench.report.study_runs import read_study
from crlbench.report.summary import Summary, summarise
from crlbench.report.table import plain_table, terminal_table

__all__ = [
    "Ablation",
    "Board",
    "Run",
    "Runs",
    "Summary",
    "load_runs",
    "paired_axes",
    "plain_table",
    "read_study",
    "render_ablation",
    "render_page",
    "summarise",
    "summarise_board",
    "summarise_study",
    "terminal_table",
]
