"""The study "Does RL teach or elicit?": its rules on records with a known truth, and its runner."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import teach
from scipy import stats
from teaching import hypotheses
from teaching.design import DESIGN, Design, Start, expected_seconds
from teaching.estimates import Contrast, contrast, learned, learned_new, passed
from teaching.records import StartRecords, collect, read_records, write_records
from teaching.running import Study

from crlbench.disk.rowfiles import packed
from crlbench.disk.toml import read_toml
from crlbench.errors import Incomplete, UsageError, ValidationError
from tests.benchmarks import teach_worlds as worlds
from tests.support.simulate import Plan, write_board

PAGE = Path(__file__).parents[2] / "docs" / "studies" / "teach-or-elicit.md"
TRACK = Path(__file__).parents[2] / "leaderboard" / "tracks" / "mini.toml"
SMALL = Design(
    version=read_toml(TRACK)["version"],
    noises=(0.0, 0.1),
    moments=(1200, 2400),
    tasks=("addition", "counting"),
    seeds=2,
    settings=(),
)


def calls(records: hypotheses.Records) -> dict[str, str]:
    return {one.name: one.call for one in hypotheses.judge(records, worlds.DESIGN)}


@pytest.fixture(scope="module")
def eliciting() -> dict[Start, StartRecords]:
    return worlds.make(worlds.ELICITING)


def test_where_training_only_elicits(eliciting: dict[Start, StartRecords]) -> None:
    assert calls(eliciting) == {
        "H1": "holds", "H2": "not tested", "H3": "holds", "H4": "holds"
    }


def test_where_labels_teach() -> None:
    found = calls(worlds.make(worlds.TEACHING))
    assert found == {"H1": "refuted", "H2": "not tested", "H3": "refuted", "H4": "refuted"}


def test_little_latent_and_nothing_new() -> None:
    world = replace(worlds.narrow(worlds.ELICITING), gain=lambda start, arm: (0.3, 0.0))
    (verdict,) = [one for one in judge(worlds.make(world)) if one.name == "H2"]
    assert verdict.call == "holds" and verdict.note.startswith("48 of 48")


def test_little_latent_and_much_new() -> None:
    """New answers come from nowhere: what H2 says cannot be."""
    world = worlds.narrow(worlds.ELICITING)

    def everywhere(records: dict[Start, StartRecords]) -> dict[Start, StartRecords]:
        for one in records.values():
            for key, cell in one.cells.items():
                if key[1] == "real":
                    late = cell.curve.copy()
                    late[5:, -80:] = True
                    one.cells[key] = replace(cell, curve=late)
        return records

    (verdict,) = [one for one in judge(everywhere(worlds.make(world))) if one.name == "H2"]
    assert verdict.call == "refuted"


def judge(records: hypotheses.Records) -> list[hypotheses.Verdict]:
    return hypotheses.judge(records, worlds.DESIGN)


def test_pass_at_64_that_rises_with_noise_too() -> None:
    world = replace(worlds.ELICITING, rise=lambda start: 0.1)
    assert calls(worlds.make(world))["H3"] == "refuted"


def test_without_a_clean_pretraining_h3_is_not_tested() -> None:
    design = replace(worlds.DESIGN, noises=(0.25,), moments=(1200,))
    verdicts = hypotheses.judge(worlds.make(worlds.ELICITING, design=design), design)
    assert [one.call for one in verdicts if one.name == "H3"] == ["not tested"]


def test_nothing_learned_is_nothing_to_divide() -> None:
    world = worlds.same_gains(dict.fromkeys(worlds.DESIGN.arms, (0.0, 0.0)))
    assert calls(worlds.make(world))["H1"] == "not tested"


def test_areas_are_those_of_the_trapezoid_rule(eliciting: dict[Start, StartRecords]) -> None:
    one = eliciting[Start(0.0, 1200)]
    start, cell = one.starts["addition"], one.cells["addition", "real", 1]
    floored = replace(start, floor=0.1, ceiling=0.9)
    scores = (cell.curve.mean(axis=1) - 0.1) / 0.8
    head = (start.draws.mean() - 0.1) / 0.8
    by_hand = np.trapezoid(scores, dx=1 / worlds.GRID) - head
    assert learned(floored, cell).mean() == pytest.approx(by_hand, abs=1e-12)
    known = learned(floored, cell)[start.greedy].sum() / worlds.N
    assert learned_new(floored, cell).mean() + known == pytest.approx(by_hand, abs=1e-12)


def test_a_failed_run_falls_to_the_floor_and_solves_nothing(
    eliciting: dict[Start, StartRecords],
) -> None:
    one = eliciting[Start(0.0, 1200)]
    start, whole = one.starts["addition"], one.cells["addition", "real", 1]
    cell = replace(whole, state="failed", curve=whole.curve[:6], greedy=None, passes={})
    weights = np.full(worlds.GRID + 1, 1 / worlds.GRID)
    weights[[0, -1]] /= 2
    by_hand = weights[:6] @ cell.curve.mean(axis=1) - start.draws.mean()
    assert learned(start, cell).mean() == pytest.approx(by_hand, abs=1e-12)
    low = replace(start, floor=0.45)  # new items begin below the floor, and known ones above it
    head = (start.draws.mean(axis=0) - 0.45) / 0.55
    rest = weights[6:].sum() * min(0.0, head[~start.greedy].mean())
    measured = weights[:6] @ ((cell.curve[:, ~start.greedy] - 0.45) / 0.55)
    expected = (measured - head[~start.greedy] + rest).sum() / worlds.N
    assert learned_new(low, cell).mean() == pytest.approx(expected, abs=1e-12)
    assert passed(start, cell, 64, 64).mean() == pytest.approx(-(start.passes["id"] > 0).mean())


def test_a_contrast_by_hand() -> None:
    values = {
        "a": [np.array([[0.0, 2.0], [2.0, 4.0], [4.0, 6.0]])],
        "b": [np.array([[1.0, 1.0], [1.0, 1.0], [1.0, 4.0]])],
    }
    found = contrast(values)
    assert found.estimate == pytest.approx((3.0 + 1.5) / 2)
    within = (4.0 / 3, 0.75 / 3)
    between = (2.0 / 2, 0.5 / 2)
    error = np.sqrt(sum(within) + sum(between)) / 2
    reach = stats.t.ppf(0.975, 4) * error
    assert found.these().low == pytest.approx(found.estimate - reach)
    assert found.others() is None


def test_intervals_cover() -> None:
    """Seeds of a task share its items; 600 boards, four tasks, three seeds."""
    rng, n, covered = np.random.default_rng(5), 60, [0, 0]
    for _ in range(600):
        tasks = rng.normal(0.0, 0.05, 4)
        rows = {}
        for k in range(4):
            items, seeds = rng.normal(0, 0.3, n), rng.normal(0, 0.02, (3, 1))
            rows[str(k)] = [tasks[k] + items + seeds + rng.normal(0, 0.2, (3, n))]
        found: Contrast = contrast(rows)
        these, others = found.these(), found.others()
        assert others is not None
        covered[0] += these.low < tasks.mean() < these.high
        covered[1] += others.low < 0.0 < others.high
    assert covered[0] / 600 > 0.93 and 0.92 < covered[1] / 600 < 0.98


def test_records_are_read_as_they_were_written(
    eliciting: dict[Start, StartRecords], tmp_path: Path
) -> None:
    one = eliciting[Start(0.5, 2400)]
    write_records(tmp_path / "one.jsonl.zst", one)
    again = read_records(tmp_path / "one.jsonl.zst")
    write_records(tmp_path / "two.jsonl.zst", again)
    assert (tmp_path / "one.jsonl.zst").read_bytes() == (tmp_path / "two.jsonl.zst").read_bytes()
    assert set(again.cells) == set(one.cells)
    key = ("chains", "real", 2)
    assert np.array_equal(again.cells[key].curve, one.cells[key].curve)
    assert np.array_equal(again.cells[key].passes["hard"], one.cells[key].passes["hard"])
    (tmp_path / "one.jsonl.zst").write_bytes(packed(b'{"kind": "cell"}\n'))
    with pytest.raises(ValidationError, match=r"one.jsonl.zst:1: no line of this study"):
        read_records(tmp_path / "one.jsonl.zst")
    (tmp_path / "two.jsonl.zst").write_bytes(b"no archive")
    with pytest.raises(ValidationError, match=r"two.jsonl.zst: .* Take the file"):
        read_records(tmp_path / "two.jsonl.zst")


def test_the_records_of_the_whole_study_have_at_most_1_mb(tmp_path: Path) -> None:
    """A start at the size of the study, whose draws are independent bits."""
    big = worlds.make(worlds.ELICITING)[Start(0.0, 1200)]
    write_records(tmp_path / "one.jsonl.zst", big)
    starts = len(DESIGN.noises) * len(DESIGN.moments)
    assert starts * (tmp_path / "one.jsonl.zst").stat().st_size < 1e6


class Runs:
    """In place of the real commands: writes weights and simulated runs, and counts its calls."""

    def __init__(self, work: Path, dies: int = 0) -> None:
        self.work, self.calls, self.dies = work, [], dies

    def __call__(self, command: Sequence[str]) -> None:
        self.calls.append(command)
        if self.dies and len(self.calls) == self.dies:
            raise KeyboardInterrupt
        given = dict(zip(command, command[1:], strict=False))
        if "evaluate" not in command:
            for moment in (1200, 2400):
                folder = Path(given["--out"]) / f"tiny-llama-i0o0-{moment}"
                folder.mkdir(parents=True)
                (folder / "model.safetensors").write_bytes(b"x")
            return
        plan = Plan(
            tasks=("addition", "counting"), seeds=2, placebo=2, mode=2, wrong=2, items=64,
            protocol="CRL-2", pass_draws=64, model=Path(given["--model"]).name,
        )
        shutil.rmtree(given["--out"], ignore_errors=True)
        write_board(Path(given["--out"]), plan)


def study(tmp_path: Path, runs: Runs) -> Study:
    return Study(SMALL, tmp_path / "work", tmp_path / "records", execute=runs)


def evaluations(runs: Runs) -> int:
    return sum("evaluate" in command for command in runs.calls)


def test_a_stopped_study_goes_on_and_repeats_nothing(tmp_path: Path) -> None:
    runs = Runs(tmp_path / "work", dies=4)
    one = study(tmp_path, runs)
    with pytest.raises(KeyboardInterrupt):
        one.run()
    assert evaluations(runs) == 2  # the second died; pretrainings are the first and the third call
    kept = one.path(Start(0.0, 1200)).read_bytes()
    again = Runs(tmp_path / "work")
    two = study(tmp_path, again)
    two.run()
    assert evaluations(again) == 3 and len(again.calls) == 3
    assert one.path(Start(0.0, 1200)).read_bytes() == kept
    assert all(two.missing(start) == [] for m in SMALL.moments for start in SMALL.starts(m))
    shutil.rmtree(tmp_path / "work")
    third = Runs(tmp_path / "work")
    study(tmp_path, third).run()
    assert third.calls == []
    one_cell = read_records(one.path(Start(0.1, 2400))).cells["counting", "real", 1]
    assert one_cell.passes["id"].shape == (64,) and one_cell.passes["id"].max() <= 64


def test_runs_of_other_weights_are_not_mixed(tmp_path: Path) -> None:
    runs = Runs(tmp_path / "work")
    one = study(tmp_path, runs)
    one.run()
    start = Start(0.0, 1200)
    kept = one.read(start)
    del kept.cells["addition", "real", 0]
    kept.starts["addition"] = replace(kept.starts["addition"], weights="00" * 32)
    with pytest.raises(ValidationError, match="its start or its conditions are not those"):
        collect(tmp_path / "work" / "runs" / start.name, kept)


def test_a_command_that_leaves_nothing_is_named(tmp_path: Path) -> None:
    one = study(tmp_path, lambda command: None)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="the pretraining left no weights"):
        one.run()


def test_moments_for_which_the_time_does_not_reach_are_left_out_before_they_run(
    tmp_path: Path,
) -> None:
    runs = Runs(tmp_path / "work")
    one = study(tmp_path, runs)
    one.note(what="slow", processor_s=3600 * 6.5)
    one.run()
    assert one.left_out == (2400,) and one.moments == (1200,)
    assert evaluations(runs) == 2
    one.run()
    assert evaluations(runs) == 2
    two = study(tmp_path / "other", Runs(tmp_path / "other" / "work"))
    two.note(what="fast", processor_s=3600 * 5.5)
    two.run()
    assert two.left_out == ()


def test_a_study_whose_time_is_over_begins_nothing_and_goes_on_later(tmp_path: Path) -> None:
    runs = Runs(tmp_path / "work")
    late = Study(SMALL, tmp_path / "work", tmp_path / "records", end=time.monotonic(), execute=runs)
    assert not late.run() and runs.calls == []
    soon = replace(late, end=time.monotonic() + 3600)
    assert soon.run()
    times = [one for one in runs.calls if "evaluate" in one]
    assert all(0.9 < float(one[one.index("--max-hours") + 1]) <= 1 for one in times)
    assert all(soon.missing(start) == [] for m in SMALL.moments for start in SMALL.starts(m))


def test_time_that_is_over_amid_a_start_is_no_error(tmp_path: Path) -> None:
    runs = Runs(tmp_path / "work")
    one = Study(SMALL, tmp_path / "work", tmp_path / "records", execute=runs)
    one.pretrain(Start(0.0, 1200))

    def stopped(command: Sequence[str]) -> None:
        """The time ends while cells run; none has a record yet."""
        object.__setattr__(two, "end", time.monotonic())

    two = replace(one, end=time.monotonic() + 3600, execute=stopped)
    assert not two.run()
    assert len(two.missing(Start(0.0, 1200))) == SMALL.cells_of_start


def test_a_dry_run_prints_every_command_and_runs_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--work", str(tmp_path / "w"), "--records", str(tmp_path / "r")]
    assert teach.main(["run", "--dry-run", *where]) == 0
    out = capsys.readouterr().out
    assert out.count("moments.py") == len(DESIGN.noises)
    assert out.count("-m crlbench evaluate") == len(DESIGN.noises) * len(DESIGN.moments)
    assert "--arm real,mode,placebo,wrong" in out and "10.9 processor hours" in out
    assert [*tmp_path.iterdir()] == []
    assert teach.main(["run", "--max-hours", "0", *where]) == UsageError.exit_code


@pytest.mark.slow
@pytest.mark.full
def test_every_step_runs_once_and_the_page_says_that_it_is_a_trial(tmp_path: Path) -> None:
    """The real commands: two pretrainings of four updates, 32 cells of three iterations."""
    assert teach.main(["try", "--work", str(tmp_path)]) == 0
    page = (tmp_path / "try/docs/studies/teach-or-elicit-results.md").read_text(encoding="utf-8")
    assert "**A trial at another size than the study's." in page
    assert "from 32 records of 2 starts" in page
    assert (tmp_path / "try/docs/images/teach-h1.svg").is_file()


def test_another_version_of_the_track_is_refused(tmp_path: Path) -> None:
    one = Study(replace(SMALL, version=99), tmp_path / "work", tmp_path / "records")
    with pytest.raises(UsageError, match="the study was planned for version 99"):
        one.run()


def test_nobody_looks_before_the_end(
    tmp_path: Path, eliciting: dict[Start, StartRecords], capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--records", str(tmp_path / "r"), "--docs", str(tmp_path / "docs")]
    one = Study(worlds.DESIGN, tmp_path / "work", tmp_path / "r")
    for start, records in eliciting.items():
        write_records(one.path(start), records)
    last = one.path(Start(0.5, 2400))
    less = read_records(last)
    del less.cells["chains", "wrong", 2]
    write_records(last, less)
    assert teach.main(["report", *where], worlds.DESIGN) == Incomplete.exit_code
    assert "1 of 576 cells have no record" in capsys.readouterr().err
    write_records(last, eliciting[Start(0.5, 2400)])
    assert teach.main(["report", *where], worlds.DESIGN) == 0
    page = (tmp_path / "docs" / "studies" / "teach-or-elicit-results.md").read_text()
    assert "| H1 | At noise of 0.1 and more, L(mode) is at least 0.9 L. | ■ holds |" in page
    assert page.count("| chains |") == 12
    assert (tmp_path / "docs" / "images" / "teach-h3.svg").read_text().startswith("<svg")


def test_the_size_fits_and_the_page_states_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert expected_seconds(DESIGN) <= 3600 * DESIGN.hours
    starts = len(DESIGN.noises) * len(DESIGN.moments)
    page = PAGE.read_text(encoding="utf-8")
    assert f"{starts * DESIGN.cells_of_start} runs of {starts} starts" in page
    for value in (*DESIGN.tasks, *DESIGN.arms, *map(str, DESIGN.noises[1:])):
        assert f"`{value}`" in page or value in page
    for moment in DESIGN.moments:
        assert f"{moment:,}" in page
    assert teach.main(["size"]) == 0
    assert f"{starts} starts, {starts * DESIGN.cells_of_start} cells" in capsys.readouterr().out


@pytest.mark.slow
def test_the_pages_of_this_checkout_are_those_of_the_records(tmp_path: Path) -> None:
    assert teach.main(["report", "--docs", str(tmp_path)]) == 0
    made = {path.relative_to(tmp_path): path for path in tmp_path.rglob("*") if path.is_file()}
    assert len(made) == 5
    for name, path in made.items():
        assert path.read_bytes() == (PAGE.parents[1] / name).read_bytes(), name
    said, found = PAGE.read_text(encoding="utf-8"), made[Path("studies/teach-or-elicit-results.md")]
    verdicts = {line[2:4]: line for line in found.read_text("utf-8").splitlines() if "| H" in line}
    calls = {"H1": "refuted", "H2": "not tested", "H3": "refuted", "H4": "holds"}
    for name, words in calls.items():
        line = next(one for one in said.splitlines() if one.startswith(f"| {name} |"))
        assert words in verdicts[name] and words in line
