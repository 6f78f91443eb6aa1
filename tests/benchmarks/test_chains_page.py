"""The page of the study of chains is that of the stored runs."""

from __future__ import annotations

from pathlib import Path

import chains_page
import pytest

from crlbench.errors import UsageError


@pytest.mark.slow
@pytest.mark.full
def test_the_page_is_that_of_the_stored_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert chains_page.main(["--check"]) == 0
    page = tmp_path / "page.md"
    page.write_text(chains_page.PAGE.read_text(encoding="utf-8").replace("▲", "▼", 1), "utf-8")
    assert chains_page.main(["--check", "--page", str(page)]) == 1
    assert chains_page.COMMAND in capsys.readouterr().out
    assert chains_page.main(["--page", str(page)]) == 0
    assert page.read_bytes() == chains_page.PAGE.read_bytes()


def test_every_comparison_of_the_study_is_there() -> None:
    text = chains_page.PAGE.read_text(encoding="utf-8")
    assert text.count("**floor**") == text.count("**ppo-dpo**") == text.count("**online**")
    assert "not run" not in text


def test_results_that_are_not_there_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert chains_page.main(["--results", str(tmp_path / "none")]) == UsageError.exit_code
    assert "no folder" in capsys.readouterr().err
