"""One table in its forms, against text that was typed by hand."""

from __future__ import annotations

import json

from crlbench.pages.table import Cell, Column, Row, Table, headings, rows_of, tabulate

SCORES = Table(
    headings("Task", "Λ", "Verdict", left=(0, 2)),
    [
        Row(("addition", "0.5", Cell("▲ better", 0.25, "green"))),
        Row(("a|b", "−0.125", "–")),
        Row(("Mean", "0.1875", ""), strong=True),
    ],
    "Two *tasks*",
    (("One note.", "Another."),),
    totals=1,
)


def test_text_has_a_line_below_headings_and_above_totals() -> None:
    assert SCORES.to_text().splitlines() == [
        "Two *tasks*",
        "Task           Λ  Verdict",
        "--------------------------",
        "addition     0.5  ▲ better",
        "a|b       −0.125  –",
        "--------------------------",
        "Mean      0.1875",
        "One note.",
        "Another.",
    ]
    assert SCORES.to_text(loose=True).splitlines()[-3:] == ["", "  One note.", "  Another."]


def test_markdown_escapes_signs_and_sets_rows_bold() -> None:
    assert SCORES.to_markdown().splitlines() == [
        "## Two \\*tasks\\*",
        "",
        "| Task | Λ | Verdict |",
        "|---|--:|---|",
        "| addition | 0.5 | ▲ better |",
        "| a\\|b | −0.125 | – |",
        "| **Mean** | **0.1875** |  |",
        "",
        "One note.  ",
        "Another.",
    ]


def test_files_hold_values_under_keys() -> None:
    columns = (Column("name"), Column("score", "number", title="Λ"), Column("ends", "yes or no"))
    table = Table(columns, [Row(("=1", Cell("about a half", 0.5), True)), Row(("b", None, False))])
    assert table.to_csv().decode() == "name,score,ends\n'=1,0.5,true\nb,,false\n"
    assert json.loads(table.to_json()) == {
        "columns": ["name", "score", "ends"],
        "data": [["=1", 0.5, True], ["b", None, False]],
    }


def test_records_stand_right_where_all_are_numbers() -> None:
    records = [
        {"name": "a", "size": 1200, "mean": 0.25, "tags": ["x", "y"]},
        {"name": "bc", "size": 7},
    ]
    assert tabulate(records, ["name", "size", "mean", "tags"]).to_text().splitlines() == [
        "name   size  mean   tags",
        "a     1,200  0.250  x, y",
        "bc        7  -      -",
    ]
    assert tabulate([], ["name", "size"]).to_text() == "name  size"


def test_a_path_leads_through_keys_attributes_and_places() -> None:
    columns = (Column("n"), Column("low", path="pair.0"), Column("none", path="absent.value"))
    (row,) = rows_of(columns, [{"n": 3, "pair": (0.5, 1.0)}])
    assert row.cells == [3, 0.5, None]


def test_pages_sort_by_six_digits_and_know_no_missing_number() -> None:
    cells = (Cell("x", 0.12345678), Cell("y", 12), Cell("–"), Cell("fp32", "fp32"))
    assert [cell.order for cell in cells] == ["0.123457", "12", "", "fp32"]


def test_latex_reads_no_text_as_a_command():
    table = Table((Column("a_b"), Column("x", "number")), [Row(["50% & \\\\ {Λ}", 0.5])])
    head, rule, heads, _, row, *_ = table.to_latex().decode().split("\n")
    assert (head, rule, heads) == (r"\begin{tabular}{lr}", r"\toprule", r"a\_b & x \\")
    text = r"50\% \& \textbackslash{}\textbackslash{} \{$\Lambda$\} & 0.500 \\"
    assert row == text
