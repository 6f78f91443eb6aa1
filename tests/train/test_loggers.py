"""What TensorBoard and other loggers are told: the record's figures, by completions."""

from __future__ import annotations

import json
import sqlite3
import struct
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

from crlbench.train.loggers import SCORE, open_loggers
from tests.train.loop import conditions, fit, make


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    folder = tmp_path_factory.mktemp("run")
    recorder = fit(make(conditions(budget__grid="2")), folder, loggers=("tensorboard", "csv"))
    events = EventAccumulator(str(folder / "tb")).Reload()
    return SimpleNamespace(recorder=recorder, folder=folder, events=events)


def read_settings(events: EventAccumulator) -> dict[str, Any]:
    """The row of the table of hyper-parameters, as TensorBoard reads it."""
    content = events.PluginTagToContent("hparams")["_hparams_/session_start_info"]
    found = HParamsPluginData.FromString(content).session_start_info.hparams
    return {name: getattr(value, value.WhichOneof("kind")) for name, value in found.items()}


def points(events: EventAccumulator, name: str) -> list[tuple[int, float]]:
    return [(event.step, event.value) for event in events.Scalars(name)]


def test_the_curve_begins_with_the_start_model_at_no_completions(run: SimpleNamespace) -> None:
    curve = [(point["x"], pytest.approx(point["score"])) for point in run.recorder.curve]
    assert curve[0][0] == 0 and len(curve) == 3
    assert points(run.events, "eval/score") == curve


def test_figures_of_an_iteration_stand_where_it_ends(run: SimpleNamespace) -> None:
    rewards = [figures["reward"] for figures in run.recorder.health]
    steps = run.recorder.totals["completions"] // len(rewards)
    assert points(run.events, "train/reward") == [
        (steps * i, pytest.approx(reward)) for i, reward in enumerate(rewards, 1)
    ]


def test_one_file_and_nothing_beside_the_figures(run: SimpleNamespace) -> None:
    assert len([*(run.folder / "tb").iterdir()]) == 1
    assert "epoch" not in run.events.Tags()["scalars"]
    header = (run.folder / "csv" / "from-0" / "metrics.csv").read_text().splitlines()[0]
    assert "eval/score" in header.split(",") and "epoch" not in header.split(",")


def test_the_table_of_hyper_parameters_has_a_row(run: SimpleNamespace) -> None:
    assert read_settings(run.events) == {"seed": make(conditions()).seed}


def test_hyper_parameters_are_read_back_as_they_were_given(tmp_path: Path) -> None:
    settings = {
        "model": "tiny-llama",
        "optimization.learning_rate": 3e-4,
        "seed": 7,
        "sampling.top_k": True,
    }
    with open_loggers(("tensorboard",), tmp_path, "a run", settings, 0) as (logger,):
        logger.log_metrics({SCORE: 0.25}, 0)
        logger.log_metrics({SCORE: 0.75}, 10)
    events = EventAccumulator(str(tmp_path / "tb")).Reload()
    assert read_settings(events) == settings
    content = events.PluginTagToContent("hparams")["_hparams_/experiment"]
    experiment = HParamsPluginData.FromString(content).experiment
    assert [info.name.tag for info in experiment.metric_infos] == [SCORE]
    assert points(events, SCORE) == [(0, 0.25), (10, 0.75)]


def test_a_continued_run_has_every_point_once(tmp_path: Path) -> None:
    whole = fit(make(conditions(budget__grid="2")), tmp_path / "whole", loggers=("tensorboard",))
    half = whole.curve[1]["x"]
    folder = tmp_path / "continued"
    logs = partial(open_loggers, ("tensorboard",), folder, "a run", {})
    for done, steps in ((0, (0, half, 2 * half)), (half, (2 * half,))):
        with logs(done) as (logger,):
            for step in steps:
                logger.log_metrics({SCORE: float(step)}, step)
    found = points(EventAccumulator(str(folder / "tb")).Reload(), SCORE)
    assert found == [(step, float(step)) for step in (0, half, 2 * half)]


def histories(data: bytes) -> Iterator[dict[str, Any]]:
    """What was logged to a file of Weights & Biases: a log of LevelDB whose records are messages.

    A head of 7 bytes stands in the first block of 32,768; a part has a checksum, a length and a
    kind.
    """
    from wandb.proto.wandb_internal_pb2 import Record

    at, message = 7, b""
    while at + 7 <= len(data):
        left = 32_768 - at % 32_768
        _, size, kind = struct.unpack_from("<IHB", data, at)
        if left < 7 or kind == 0:
            at += left
            continue
        message += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # whole, or the last part
            record = Record.FromString(message)
            message = b""
            if record.HasField("history"):
                items = record.history.item
                yield {i.key or i.nested_key[-1]: json.loads(i.value_json) for i in items}


@pytest.mark.slow
def test_weights_and_biases_keeps_the_curve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    import wandb

    monkeypatch.setenv("WANDB_MODE", "offline")
    recorder = fit(make(conditions(budget__grid="2")), tmp_path, loggers=("wandb",))
    wandb.teardown()  # its service writes the file; `finish` does not wait for the last bytes
    (path,) = tmp_path.rglob("*.wandb")
    logged = [items for items in histories(path.read_bytes()) if SCORE in items]
    assert [(items["trainer/global_step"], items[SCORE]) for items in logged] == [
        (p["x"], pytest.approx(p["score"])) for p in recorder.curve
    ]
    assert capfd.readouterr().out == ""


def test_trackio_keeps_the_curve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    pytest.importorskip("trackio")
    recorder = fit(make(conditions(budget__grid="2")), tmp_path, loggers=("trackio",))
    with sqlite3.connect(tmp_path / "trackio" / "crlbench.db") as base:
        rows = base.execute("select step, metrics from metrics order by id").fetchall()
    points = [(x, json.loads(text)) for x, text in rows]
    scores = [(x, told[SCORE]) for x, told in points if SCORE in told]
    assert scores == [(p["x"], pytest.approx(p["score"])) for p in recorder.curve]
    assert capfd.readouterr().out == ""
