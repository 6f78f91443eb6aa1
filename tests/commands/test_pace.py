"""What is said of the time of a model whose weights are not here."""

from __future__ import annotations

from pathlib import Path

import pytest

from crlbench import cli
from crlbench.catalog.find import Catalog
from crlbench.commands.pace import FARTHEST, Pace, nearest_pace
from crlbench.verdict.resources import leaderboard_folder

RESULTS = leaderboard_folder() / "results"


def test_time_is_in_proportion_to_parameters_and_completions() -> None:
    pace = Pace("a", parameters=500_000_000, completions=10_000, seconds=1_200.0, runs=3)
    assert pace.seconds_of(500_000_000, 10_000) == 1_200
    assert pace.seconds_of(1_000_000_000, 5_000) == pytest.approx(1_200)
    assert pace.sentence("b", 1_000_000_000, 10_000).startswith("b: about 40 min a run.")


def test_the_stored_model_nearest_in_size_is_taken(tmp_path: Path) -> None:
    pace = nearest_pace(596_049_920, Catalog(), RESULTS)
    assert pace is not None
    assert (pace.model, pace.parameters) == ("qwen2.5-coder-0.5b-instruct", 502_830_976)
    assert pace.runs >= 2 and 300 < pace.seconds < 7_200
    assert nearest_pace(int(503e6 * FARTHEST * 1.01), Catalog(), RESULTS) is None
    assert nearest_pace(596_049_920, Catalog(), tmp_path) is None


OFFLINE = ("evaluate", "--model", "qwen3-0.6b", "--track", "small", "--offline")


def test_a_model_of_the_hub_is_estimated_offline_and_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    out = ("--out", str(tmp_path / "runs"), "--ignore-memory")
    assert cli.main([*OFFLINE, *out, "--dry-run"]) == 0
    printed = capsys.readouterr()
    first, second = printed.out.splitlines()[:2]
    assert "10 runs, 10 to run" in first and second.startswith("qwen3-0.6b: about ")
    assert "absent" not in printed.out and "calibrating" not in printed.err
    assert cli.main([*OFFLINE, *out, "--dry-run", "--verbose"]) == 0
    assert capsys.readouterr().out.count("absent") == 10
    assert cli.main([*OFFLINE, *out]) == 6
    assert "hf download Qwen/Qwen3-0.6B --revision c1899de" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_a_file_that_is_no_recipe_is_named_and_the_others_are_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "recipes").mkdir()
    bad = tmp_path / "recipes" / "bad_one.toml"
    bad.write_text('base = "grop"\n')
    code = cli.main(["list", "recipes", "--catalog", str(tmp_path)])
    printed = capsys.readouterr()
    assert code == 3 and str(bad) in printed.err and "unknown recipe 'grop'" in printed.err
    assert "grpo" in printed.out and "bad-one" not in printed.out


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("tiny-lama", ["unknown model 'tiny-lama'. Did you mean tiny-llama", "All "]),
        ("./nofolder", ["model './nofolder': no such folder."]),
        ("weights.gguf", ["model 'weights.gguf': no such file."]),
    ],
)
def test_an_unknown_model_takes_a_few_lines(
    name: str, lines: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["show", "model", name]) == 2
    text = capsys.readouterr().err
    assert text.startswith("crlbench: " + lines[0]) and len(text.splitlines()) <= 3
    assert all(line in text for line in lines) and "crlbench list models" in text
