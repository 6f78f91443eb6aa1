"""Chains as a user meets them: evaluated, compared, verified, submitted, and shown on the site."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from crlbench import cli
from crlbench.contract.record_files import read_record

SMALL = (
    *("budget.prompts=8", "budget.completions=4", "budget.grid=3", "optimization.minibatches=1"),
    *("evaluation.retain=[]", "evaluation.curve_items=32", "evaluation.end_items=32"),
    *("evaluation.end_draws=1", "preference.demos=32", "preference.prompts=160"),
    *("preference.labels=1280", "preference.flops=28000"),
)


def evaluate(out: Path, recipe: str) -> Path:
    """A small chain; the folder of its entry."""
    settings = [part for one in SMALL for part in ("--set", one)]
    command = ["evaluate", "--recipe", recipe, "--model", "tiny-llama", "--track", "preference"]
    command += ["--tasks", "addition", "--seeds", "1", "--jobs", "1", "--out", str(out)]
    assert cli.main([*command, *settings]) == 0
    return next(path.parent for path in out.rglob("plan.json") if path.parent.name == recipe)


@pytest.mark.slow
def test_two_chains_from_the_command_to_the_site(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [evaluate(tmp_path / "runs", recipe) for recipe in ("rlhf", "sft-dpo")]
    assert "Λ_F" in capsys.readouterr().out
    records = [read_record(next(folder.rglob("record.json"))) for folder in folders]
    shared = [[stage.sha256 for stage in one.lineage or () if stage.shared] for one in records]
    assert shared[0] == shared[1] and len(shared[0]) == 2
    assert all(one.charges is not None for one in records)

    assert cli.main(["compare", *map(str, folders), "--format", "json"]) == 0
    said = json.loads(capsys.readouterr().out)
    effect = said["pairs"][0]["axes"]["efficiency"]["effect"]
    assert all(side["axes"]["efficiency"]["charged"] for side in said["sides"])
    values = [side["axes"]["efficiency"]["value"] for side in said["sides"]]
    assert effect["value"] == pytest.approx(values[1] - values[0])
    report = (folders[0] / "report.html").read_text(encoding="utf-8")
    assert "shared by all chains of the track" in report and shared[0][0][:12] in report

    results = tmp_path / "results"
    results.mkdir()
    submit = ["submit", *map(str, folders), "--submitter", "@someone", "--to", str(results)]
    assert cli.main([*submit, "--no-pr"]) == 0
    assert cli.main(["verify", str(results), "--recompute-only"]) == 0
    capsys.readouterr()
    site = tmp_path / "site"
    build = ["leaderboard", "build", "--results", str(results), "--out", str(site), "--no-cache"]
    assert cli.main(build) == 0
    pages = {path: path.read_text(encoding="utf-8") for path in site.rglob("*.html")}
    entries = [text for text in pages.values() if "shared by all chains of the track" in text]
    assert len(entries) >= 2
    assert any(shared[0][1][:12] in text for text in entries)
    assert any("Λ_F" in text for text in pages.values())
