"""``crlbench verify``: honest results pass, and each way of changing one is named."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from crlbench import __version__, cli
from crlbench.catalog.find import Catalog
from crlbench.contract.records import RunRecord
from crlbench.disk.hashing import canonical_json
from crlbench.disk.linked_lines import linked
from crlbench.proof.checkout import RELEASES
from crlbench.run.board import load_track
from crlbench.run.mend import curve_csv
from crlbench.verdict.badges import read_badges
from crlbench.verdict.load import load_runs
from tests.support import tampering
from tests.support.checkpoints import write_checkpoint
from tests.support.commands import command, terse
from tests.support.confined import attacking

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
NEXT = load_track(Catalog(), "mini").version + 1


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an entry with two seeds of four updates each."""
    model = terse(write_checkpoint(tmp_path_factory.mktemp("models") / "very-tiny"))
    out = tmp_path_factory.mktemp("out") / "runs"
    assert cli.main(command(model, out, "-q", "--seeds", "2", budget__grid=4)) == 0
    (plan,) = out.rglob("plan.json")
    return plan.parent


@pytest.fixture
def entry(honest: Path, tmp_path: Path) -> Path:
    """A copy of the entry, to be changed."""
    return Path(shutil.copytree(honest, tmp_path / "runs" / honest.parent.name / honest.name))


@pytest.mark.slow
@pytest.mark.parametrize("updates", ["1", pytest.param("all", marks=pytest.mark.full)])
def test_no_code_of_a_task_runs_where_a_result_is_verified(
    tmp_path: Path, updates: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same code does run where its owner evaluates."""
    home, mark, out = tmp_path / "home", tmp_path / "mark", tmp_path / "runs"
    attacking(home, f"open({str(mark)!r}, 'w').write('x')", "import", "letters")
    model = terse(write_checkpoint(tmp_path / "models" / "very-tiny"))
    evaluate = [part if part != "addition" else "letters" for part in command(model, out, "-q")]
    assert cli.main(["--catalog", str(home), *evaluate]) == 0
    assert mark.exists()
    mark.unlink()
    capsys.readouterr()
    assert cli.main(["--catalog", str(home), "verify", str(out), "--updates", updates, "-q"]) == 0
    assert "equal to the last bit" in capsys.readouterr().out
    assert not mark.exists()


@pytest.fixture
def run(entry: Path) -> Path:
    return entry / "addition" / "real" / "seed-00"


def verify(result: Path, *extra: str) -> int:
    return cli.main(["verify", str(result), "-q", *extra])


def findings(result: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What a result is refused for, without a replay: all of it, however much is shown."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("crlbench.commands.verify.SHOWN", 1000)
        assert verify(result, "--recompute-only") == 5
    said = capsys.readouterr()
    assert said.err == "" and said.out.startswith("MISMATCH")
    return said.out


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_an_honest_entry_is_proven_and_left_as_it_is(
    honest: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    before = contents(honest)
    assert verify(honest) == 0
    said = capsys.readouterr().out
    assert "recomputed: 2 runs" in said and "verified again: 32 stored completions" in said
    assert "drawn at random; --seed-index" in said
    assert "3 updates, 4 evaluations: equal to the last bit" in said
    assert "not proven: what came after" in said
    assert contents(honest) == before and not list(tmp_path.iterdir())


def test_an_edited_score(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tampering.edit_record(run, lambda r: r["curve"][2].update(score=1.0))
    said = findings(run, capsys)
    assert "record.json: curve[2].score: stored 1.0, expected 0.0 (the mean of curve/16" in said


def test_edited_items_do_not_fit_the_samples(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def flip(vectors: dict[str, np.ndarray]) -> None:
        vectors["end/id"][0, :] = 1

    tampering.edit_items(run, flip)
    tampering.edit_record(run, lambda r: r["splits"]["id"].update(end=1.0))
    said = findings(run, capsys)
    assert "samples.jsonl.zst: line 9: score: stored 0.0, expected 1.0 (end/id[0, 0]" in said
    assert "the verifier of the completion" in said


def test_the_last_known_release_is_this_one() -> None:
    assert RELEASES[-1] == __version__


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"completion": "7"}, "line 1: score: stored 0.0, expected 1.0 (the verifier"),
        ({"score": 1.0}, "line 1: score: stored 1.0, expected 0.0 (start/id[0, 0]"),
        ({"answer": "1"}, "line 1: answer: stored 1, expected"),
        ({"uid": "addition/id/id-00005"}, "line 1: uid: stored addition/id/id-00005, expected"),
        ({"x": 8}, "line 1: x: stored 8, expected 0"),
        ({"prompt": "2+2="}, "line 1: prompt: stored 2+2=, expected"),
    ],
)
def test_edited_samples(
    run: Path, change: dict, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def edit(rows: list[dict]) -> None:
        if "completion" in change:
            change["completion"] = rows[0]["answer"]
        rows[0] |= change

    tampering.edit_samples(run, edit)
    assert expected in findings(run, capsys)


@pytest.mark.slow
def test_losses_that_keep_their_mean_are_caught_by_the_replay_alone(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def swap(rows: list[dict]) -> None:
        first = rows[1]["losses"]
        first[0], first[1] = first[1], first[0]

    tampering.edit_digests(run, swap)
    assert verify(run, "--recompute-only") == 0
    capsys.readouterr()
    assert verify(run) == 5
    said = capsys.readouterr().out
    assert "MISMATCH" in said and "first difference: update 2: losses[0]: stored" in said
    assert "the machines differ in nothing that explains it" in said


@pytest.mark.slow
@pytest.mark.full
def test_a_curve_that_was_made_up_is_caught_by_the_replay_alone(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def right(vectors: dict[str, np.ndarray]) -> None:
        vectors["curve/16"][:] = 1

    tampering.edit_items(run, right)
    tampering.edit_record(run, lambda r: r["curve"][2].update(score=1.0))
    curve = RunRecord.model_validate_json((run / "record.json").read_text()).curve
    (run / "curve.csv").write_bytes(curve_csv(curve))
    tampering.seal(run)
    assert verify(run, "--recompute-only") == 0
    capsys.readouterr()
    assert verify(run) == 5
    assert "update 2: items of curve/16, 8 of 8: stored 1.0" in capsys.readouterr().out


@pytest.fixture(scope="module")
def rarely_scored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of eight updates with an evaluation after each four."""
    model = terse(write_checkpoint(tmp_path_factory.mktemp("models") / "very-tiny"))
    out = tmp_path_factory.mktemp("out") / "runs"
    grid = {"budget__grid": 2, "budget__iterations_per_point": 4}
    assert cli.main(command(model, out, "-q", "--seeds", "1", **grid)) == 0
    (plan,) = out.rglob("plan.json")
    return plan.parent


@pytest.mark.slow
def test_a_replay_compares_a_score_after_the_start_unless_it_says_otherwise(
    rarely_scored: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(rarely_scored, entry := tmp_path / "runs" / "board" / rarely_scored.name)
    run = entry / "addition" / "real" / "seed-00"
    assert verify(run) == 0
    said = capsys.readouterr().out
    assert "4 updates, 2 evaluations: equal to the last bit" in said and "any score" not in said
    (ref,) = (point["items_ref"] for point in record_of(run)["curve"][1:2])
    tampering.edit_items(run, lambda vectors: vectors[ref].fill(1))
    tampering.edit_record(run, lambda r: r["curve"][1].update(score=1.0))
    curve = RunRecord.model_validate(record_of(run)).curve
    (run / "curve.csv").write_bytes(curve_csv(curve))
    tampering.seal(run)
    capsys.readouterr()
    assert verify(run, "--updates", "3") == 0
    said = capsys.readouterr().out
    assert "not proven: any score after the start of 1 replayed run, whose first evaluation" in said
    assert "comes after update 4 (--updates 4 makes it)" in said
    assert verify(run) == 5
    assert f"update 4: items of {ref}" in capsys.readouterr().out


def record_of(run: Path) -> dict:
    return json.loads((run / "record.json").read_text())


def test_losses_of_another_mean_or_number(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tampering.edit_digests(run, lambda rows: rows[1]["losses"].append((8.0).hex()))
    said = findings(run, capsys)
    assert "losses of iteration 2: stored 5, expected at most 4" in said
    assert "health.loss[1]: stored" in said and "curve, x = 16: updates: stored 8" in said


def test_a_run_whose_record_is_gone(entry: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(entry / "addition" / "real" / "seed-01")
    said = findings(entry, capsys)
    assert "/ppo/ledger.jsonl: runs: stored no record of 1 declared run, expected a record" in said
    assert "(real arm: ended, says the ledger, and left no record: addition seed-01)" in said
    assert verify(entry / "addition", "--recompute-only") == 0  # a part of it is no entry


def test_an_entry_under_way_says_what_it_has_not_run(
    entry: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(entry / "addition" / "real" / "seed-01")
    ledger = entry / "ledger.jsonl"
    events: list[dict] = []
    for line in ledger.read_text().splitlines():
        event = json.loads(line)
        if not (event["cell"] or "").endswith("/addition/real/seed-01"):
            body = {k: v for k, v in event.items() if k not in ("n", "previous", "hash")}
            events.append(linked(events, body))
    ledger.write_text("".join(canonical_json(event) + "\n" for event in events))
    assert verify(entry, "--recompute-only") == 0
    said = capsys.readouterr().out
    assert f"not checked: {entry}: real arm: planned and not there: addition seed-01." in said


def test_swapped_seeds(entry: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = entry / "addition" / "real"
    for index in (0, 1):
        path = folder / f"seed-{index:02d}" / "record.json"
        record = json.loads(path.read_text())
        record["seed"]["index"] = 1 - index
        path.write_text(json.dumps(record))
        tampering.seal(path.parent)
    assert "seed.value: stored" in findings(entry, capsys)


def status(state: str, rule: str | None, at: int) -> dict:
    return {"state": state, "rule": rule, "at": at}


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        (status("failed", "kl_cap", 4), "expected no kl_cap at 4"),
        (status("failed", "bad_luck", 4), "status.rule: stored bad_luck"),
        (status("failed", "score_drop", 4), "stored failed by score_drop at 4, expected completed"),
        (status("completed", None, 3), "status.at: stored 3, expected 4"),
        (status("partial", None, 4), "plan.json says so"),
    ],
)
def test_another_status(
    run: Path, stated: dict, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    tampering.edit_record(run, lambda r: r.update(status=stated))
    assert expected in findings(run, capsys)


def test_health_that_breaks_a_rule(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def drift(record: dict) -> None:
        record["fingerprint"]["leaves"]["conditions.rules.patience"] = 2
        record["health"]["reference_kl"] = [0.0, 1.5, 1.5, 0.5]

    tampering.edit_record(run, drift)
    said = findings(run, capsys)
    assert "status: stored completed at 4, expected failed by kl_cap at 3" in said
    assert "conditions.rules.patience" in said  # plan and configuration say otherwise


def test_health_that_the_curve_does_not_add_up_to(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tampering.edit_record(run, lambda r: r["health"]["bytes"].__setitem__(0, 9999.0))
    assert "curve[1].bytes: stored" in findings(run, capsys)


def test_a_badge_of_its_own(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tampering.edit_record(run, lambda r: r.update(verification=[{"kind": "reproduced"}]))
    assert "a record never brings a badge of its own" in findings(run, capsys)


def test_another_configuration_of_the_recipe(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tampering.edit_record(run, lambda r: r["algo"]["config"]["clip"].update(high=0.28))
    said = findings(run, capsys)
    assert "algo.config.clip.high: stored 0.28, expected 0.2 (recipe 'ppo')" in said


def test_another_verifier(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def other(record: dict) -> None:
        record["fingerprint"]["leaves"]["tasks.counting.verifier"] = "0" * 64

    tampering.edit_record(run, other)
    assert "fingerprint.leaves.tasks.counting.verifier: stored 0000" in findings(run, capsys)


def test_a_closed_division_that_is_open(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tampering.edit_record(run, lambda r: r["protocol"].update(division="closed"))
    assert "protocol.division: stored closed, expected open" in findings(run, capsys)


@pytest.mark.parametrize("version", [0, NEXT, 99])
def test_a_version_of_a_track_that_never_stood_is_refused(
    run: Path, version: int, capsys: pytest.CaptureFixture[str]
) -> None:
    def other(record: dict) -> None:
        record["protocol"]["track_version"] = version
        record["fingerprint"]["leaves"]["track_version"] = version
        del record["files"]["config.toml"]

    tampering.edit_record(run, other)
    assert verify(run, "--recompute-only") == 3
    said = capsys.readouterr().err
    assert f"track mini version {version} cannot be checked here: this checkout has" in said


def test_a_run_alone_is_recomputed(
    entry: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alone = entry.parents[3] / "alone"
    shutil.copytree(run, alone)
    assert verify(alone, "--recompute-only") == 0
    assert "no folder above these runs has a plan" in capsys.readouterr().out


def test_a_newer_crlbench_is_refused(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tampering.edit_record(run, lambda r: r["crlbench"].update(version="9.0.0"))
    assert verify(run, "--recompute-only") == 3
    assert "made by crlbench '9.0.0', and this checkout is" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"hardware_class": "gpu-9000"}, "environment.hardware_class: stored gpu-9000"),
        ({"cpu_capability": "AVX1024"}, "environment.cpu_capability: stored AVX1024"),
        ({"device": "Imagined H900"}, "environment.device: stored Imagined H900"),
        ({"machine": "aarch64", "cpu_capability": "AVX2"}, "environment.machine: stored aarch64"),
        ({"cpu": "Apple M9", "cpu_capability": "AVX2"}, "environment.machine: stored x86_64"),
    ],
)
def test_a_machine_that_cannot_be(
    run: Path, change: dict, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def other(record: dict) -> None:
        record["environment"] |= {"machine": "x86_64"} | change
        record["files"].pop("env.json")

    tampering.edit_record(run, other)
    assert expected in findings(run, capsys)


def test_badges_are_written_on_demand_and_chained(
    entry: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify(entry, "--recompute-only", "--badge", "the maintainers") == 0
    runs = load_runs(entry)
    badges = read_badges(entry)
    assert badges.of_entry(runs) == "recomputed"
    lines = [json.loads(line) for line in (entry / "verification.jsonl").read_text().splitlines()]
    assert [line["record_id"] for line in lines] == [run.record.record_id for run in runs]
    assert {line["by"] for line in lines} == {"the maintainers"} and lines[0]["updates"] == 0
    first = runs.runs[0].record.record_id
    tampering.edit_record(run, lambda r: r["health"]["bytes"].__setitem__(0, 9999.0))
    assert verify(entry, "--badge", "the maintainers") == 5
    badges = read_badges(entry)
    assert badges.of_run(first) == "recomputed"  # of the record that stood there before
    assert badges.of_run(load_runs(run).runs[0].record.record_id) is None
    assert badges.of_entry(load_runs(entry)) is None
    text = (entry / "verification.jsonl").read_text()
    (entry / "verification.jsonl").write_text(text.replace("mismatch", "equal"))
    capsys.readouterr()
    assert verify(entry, "--recompute-only", "--badge", "the maintainers") == 3
    assert "verification.jsonl:3: changed or damaged" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (["--updates", "0"], "--updates 0: a whole number from 1, or all"),
        (["--seed-index", "7"], "--seed-index 7: stored are 0, 1; or random"),
        (["--tolerance", "loose"], "bitwise"),
    ],
)
def test_wrong_usage(
    entry: Path, extra: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verify(entry, *extra) == 2
    assert message in capsys.readouterr().err


def test_a_model_that_is_not_here(
    entry: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder in (entry / "addition" / "real").iterdir():
        config = folder / "config.toml"
        lines = config.read_text().splitlines()
        config.write_text("\n".join(['model = "/nowhere/very-tiny"', *lines[1:]]))
        tampering.seal(folder)
    assert verify(entry) == 6
    said = capsys.readouterr()
    assert "recomputed: 2 runs" in said.out and "cannot be replayed here" in said.err


@pytest.mark.slow
def test_a_whole_run_is_reproduced(entry: Path, capsys: pytest.CaptureFixture[str]) -> None:
    extra = ["--seed-index", "1", "--updates", "all", "--badge", "ci"]
    assert verify(entry, *extra) == 0
    assert "the whole run, 5 evaluations: equal to the last bit" in capsys.readouterr().out
    runs = load_runs(entry)
    badges = [read_badges(entry).of_run(run.record.record_id) for run in runs]
    assert badges == ["recomputed", "reproduced"]
    assert read_badges(entry).of_entry(runs) == "reproduced"


@pytest.mark.slow
@pytest.mark.full
def test_another_class_of_machine_has_a_band(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "default")
    assert verify(run, "--json") == 0
    (replay,) = json.loads(capsys.readouterr().out)["replays"]
    assert replay["outcome"] == "within" and "ATEN_CPU_CAPABILITY" in replay["other_class"]
    assert verify(run, "--tolerance", "bitwise") == 5
    assert "first difference: update 1:" in capsys.readouterr().out
    tampering.edit_digests(run, lambda rows: rows[0].update(prompts="0" * 64))
    assert verify(run) == 5
    assert "first difference: update 1: prompt ids: stored 000000000000" in capsys.readouterr().out


@pytest.mark.slow
def test_runs_that_failed_and_placebo_runs_are_honest_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = terse(write_checkpoint(tmp_path / "very-tiny"))
    strict = {"rules__truncated_share": 0.01, "rules__patience": 1, "budget__grid": 4}
    arms = ["-q", "--arm", "real,placebo", "--recipe", "dapo"]
    assert cli.main(command(model, tmp_path / "runs", *arms, **strict)) == 7
    capsys.readouterr()
    (board,) = (tmp_path / "runs").iterdir()
    assert verify(board) == 0
    said = capsys.readouterr().out
    assert said.count("1 update, 1 evaluation: equal to the last bit") == 2
    record = next(board.rglob("real/seed-00/record.json")).parent
    tampering.edit_record(record, lambda r: r["health"].update(truncated=[0.0]))
    assert "expected no truncated_share at 1" in findings(record, capsys)
