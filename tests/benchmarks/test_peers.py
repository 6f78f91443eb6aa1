"""Comparing with peers: one real process of ours, pairing, and what is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import ours
import pytest
import torch
from clock import Clock, UnequalWork, figures
from floor import Operations
from peer.compare import FIGURES, MEMORY, SAMPLES, SECONDS, paired_ratios, table, values
from peer.environments import environment
from peer.work import Model, Work, find_model, prompts_for
from peers import (
    PEERS,
    Store,
    command_line,
    compare,
    counts,
    devices,
    one_process,
    parser,
    settings,
    without_gpu,
)

from crlbench.errors import EnvironmentUnfit, RunFailed, UsageError
from tests.support.checkpoints import write_checkpoint

PEER_ENVIRONMENTS = os.environ.get("CRLBENCH_PEERS")


def small(folder: Path, **changes) -> Work:
    """A little work on a random model of a folder."""
    model = Model("random", str(folder), folder)
    return Work(model, prompts=2, completions=3, tokens=4, iterations=1, **changes)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("model") / "random-llama")


def here(plan, monkeypatch, capsys) -> dict:
    """The figures of our runner, run in this process."""
    monkeypatch.setattr(sys, "argv", ["ours.py", json.dumps(plan)])
    ours.main()
    return json.loads(capsys.readouterr().out.splitlines()[-1])


@pytest.mark.parametrize("kind", ["grpo", "ppo"])
def test_our_runner_does_the_work_and_times_its_parts(kind, checkpoint, monkeypatch, capsys):
    found = here(small(checkpoint).plan(kind, {}), monkeypatch, capsys)
    assert found["tokens"] == [2 * 3 * 4]
    parts = (found["decode_s"][0], found["score_s"][0], found["update_s"][0])
    assert all(part > 0 for part in parts)
    assert sum(parts) == pytest.approx(found["iteration_s"][0])
    assert found["cpu_s"][0] > 0
    assert found["peak_rss_bytes"] > 50e6
    assert found["peak_device_bytes"] is None
    assert {"torch", "transformers", "lightning"} <= set(found["versions"])


@pytest.mark.slow
def test_a_process_of_ours_prints_its_figures(checkpoint):
    found = one_process(Path(sys.executable), "ours.py", small(checkpoint).plan("grpo", {}))
    assert len(found["iteration_s"]) == 1


def test_a_prompt_that_reads_otherwise_ends_the_process(checkpoint, monkeypatch, capsys):
    plan = small(checkpoint).plan("grpo", {})
    plan["prompts"][1] += "!"
    with pytest.raises(UnequalWork, match="none of the work's prompts"):
        here(plan, monkeypatch, capsys)


def test_a_process_without_figures_says_why(tmp_path):
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho no memory >&2\nexit 9\n")
    program.chmod(0o755)
    with pytest.raises(RunFailed, match="ended with 9 and no figures.*no memory"):
        one_process(program, "ours.py", {"threads": 1, "device": "cpu", "model": "m"})


def test_a_process_killed_for_memory_names_the_way_out(tmp_path):
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\nkill -9 $$\n")
    program.chmod(0o755)
    with pytest.raises(RunFailed, match="killed by the system.*--rows"):
        one_process(program, "trl_ppo.py", {"threads": 1, "device": "cpu", "model": "m"})


def test_prompts_are_texts_that_give_their_ids(checkpoint):
    from transformers import AutoTokenizer

    model = small(checkpoint).model
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    rows = prompts_for(model, 8)
    assert [tokenizer(text)["input_ids"] for text, _ in rows] == [ids for _, ids in rows]
    assert len({text for text, _ in rows}) == 8


def test_the_clock_refuses_shorter_completions_and_missing_iterations():
    clock = Clock({"rows": 6, "tokens": 4, "device": "cpu", "warmup": 1, "iterations": 1})
    clock.count_tokens(6, 3)
    with pytest.raises(UnequalWork, match="decoded 18 tokens; the work asks for 24"):
        clock.end_iteration()
    clock.count_tokens(6, 1)
    clock.end_iteration()
    with pytest.raises(UnequalWork, match="1 iterations ran; the work asks for 2"):
        figures(clock)


def test_the_clock_counts_only_timed_iterations(capsys):
    clock = Clock({"rows": 1, "tokens": 1, "device": "cpu", "warmup": 2, "iterations": 2})
    for mark, decode in ((3.0, 4.0), (10.0, 5.0), (12.0, 0.5), (15.0, 1.0)):
        clock.now = lambda mark=mark: mark
        clock.add_decoding(decode, 1, 1)
        clock.end_iteration()
    figures(clock)
    line = json.loads(capsys.readouterr().out)
    assert line["iteration_s"] == [2.0, 3.0]
    assert line["decode_s"] == [0.5, 1.0]
    assert line["update_s"] == [1.5, 2.0]


PROCESS = {
    "iteration_s": [4.0, 2.0, 3.0],
    "decode_s": [1.0, 0.5, 1.0],
    "update_s": [3.0, 1.5, 2.0],
    "tokens": [48, 48, 48],
    "peak_rss_bytes": 2_000_000_000,
    "peak_device_bytes": None,
}


def test_values_are_medians_over_iterations():
    found = values(PROCESS, 6, Operations(decode=10, reference=10, update=30), peak=50.0)
    assert found["seconds an iteration"] == 3.0
    assert found["samples a second"] == 2.0
    assert found["decode tokens a second"] == 48.0
    assert found["update tokens a second"] == 24.0
    assert found["peak resident memory"] == 2.0
    assert found["share of time in decode"] == pytest.approx(1 / 3)
    assert found["ratio to the FLOP floor"] == 3.0
    assert found["MFU of the update"] == pytest.approx(40 / 2.0 / 50)
    assert "peak device memory" not in found


def test_ratios_are_paired_by_round():
    ours = [{SECONDS.name: 1.0, SAMPLES.name: 10.0, MEMORY.name: 1.0}] * 2
    peer = [
        {SECONDS.name: 2.0, SAMPLES.name: 5.0, MEMORY.name: 4.0},
        {SECONDS.name: 3.0, SAMPLES.name: 2.5, MEMORY.name: 2.0},
    ]
    assert paired_ratios(SECONDS, ours, peer) == [2.0, 3.0]
    assert paired_ratios(SAMPLES, ours, peer) == [2.0, 4.0]
    assert paired_ratios(MEMORY, ours, peer) == [0.25, 0.5]


def test_the_table_says_what_was_not_measured():
    run = values(PROCESS, 6, Operations(10, 10, 30), peak=50.0)
    slow = values(PROCESS | {"iteration_s": [6.0]}, 6, Operations(10, 10, 30), peak=50.0)
    lines = table([run, run], {"TRL": [slow, slow], "other": [slow]})
    assert len(lines) == 2 + len(FIGURES)
    assert {line.count("|") for line in lines} == {6}
    found = {line.split(" | ")[0].strip("| "): line for line in lines}
    assert "2.00 (2.00 to 2.00) times" in found["seconds an iteration"]
    assert "1.00 (1.00 to 1.00) of the peer's" in found["peak resident memory, GB"]
    assert found["peak device memory, GB"].count("not measured") == 4


def test_a_machine_without_gpu_says_so():
    lines = without_gpu(("grpo",))
    assert sum(line.count("not measured") for line in lines) == 5 * 2 + 3
    if not torch.cuda.is_available():
        assert devices("auto") == [("cpu", None)]
        with pytest.raises(UsageError, match="sees no GPU here"):
            devices("cuda")


def test_unknown_models_name_the_nearest():
    with pytest.raises(UsageError, match="smollm2-135m-instruct"):
        find_model("smollm2-135m-instuct")
    with pytest.raises(UsageError, match="without the network"):
        find_model("some/model@" + "0" * 40)


def test_a_missing_environment_without_network_says_what_helps(tmp_path, monkeypatch):
    monkeypatch.setenv("CRLBENCH_OFFLINE", "1")
    with pytest.raises(EnvironmentUnfit, match=r"trl-1\.16\.0.*not installed.*--envs"):
        environment(PEERS["grpo"], tmp_path, print)
    assert not [*tmp_path.iterdir()]


@pytest.mark.slow
def test_an_environment_that_cannot_be_made_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    with pytest.raises(EnvironmentUnfit, match="could not be installed: .*--envs"):
        environment(PEERS["ppo"], tmp_path, lambda line: None)
    assert not [*tmp_path.iterdir()]


def test_an_environment_of_another_version_is_refused(tmp_path):
    place = tmp_path / "trl-1.16.0" / "bin"
    place.mkdir(parents=True)
    (place / "python").write_text("#!/bin/sh\necho 1.2.3\n")
    (place / "python").chmod(0o755)
    with pytest.raises(EnvironmentUnfit, match=r"holds TRL 1\.2\.3, not 1\.16\.0"):
        environment(PEERS["grpo"], tmp_path, print)


def test_the_command_line_is_read_and_shown_without_folders(monkeypatch):
    words = ["--work", "ppo", "--envs", "/some/where", "--out=/a/b.json", "--rounds", "5"]
    options = parser().parse_args(words)
    assert (options.work, options.rounds, options.sweep) == ("ppo", 5, None)
    assert counts("8,64") == (8, 64)
    monkeypatch.setattr(sys, "argv", ["peers.py", *words])
    assert command_line() == "python benchmarks/peers.py --work ppo --rounds 5"
    with pytest.raises(SystemExit):
        parser().parse_args(["--rounds", "0"])


@pytest.mark.slow
def test_errors_leave_with_their_exit_code():
    done = subprocess.run(
        [sys.executable, "benchmarks/peers.py", "--model", "no-such"],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": "."},
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: unknown model 'no-such'")


def test_autocast_rollouts_are_compared_in_bf16_only():
    assert len([*settings("ppo", "fp32")]) == 1
    assert len([*settings("ppo", "bf16")]) == 2
    assert len([*settings("grpo", "fp32")]) == 2


@pytest.mark.slow
def test_the_peers_fastest_setting_is_compared_round_by_round(checkpoint, monkeypatch):
    started = []

    def process(python, runner, plan):
        side = "ours" if runner == "ours.py" else plan["options"]["gradient_checkpointing"]
        started.append(side)
        return PROCESS | {"iteration_s": [{"ours": 1.0, True: 2.0, False: 5.0}[side]]}

    monkeypatch.setattr("peers.one_process", process)
    options = parser().parse_args(["--rounds", "2"])
    runs = compare("grpo", small(checkpoint), Path("python"), options, Store(None))
    assert started == [False, True, "ours", True, "ours", True]
    sides = [side.removeprefix("TRL 1.16.0 GRPOTrainer").strip() for side in runs]
    assert sides == ["ours", "with gradient checkpointing", ""]
    assert [len(found) for found in runs.values()] == [2, 2, 1]


@pytest.mark.slow
@pytest.mark.skipif(not PEER_ENVIRONMENTS, reason="CRLBENCH_PEERS names no folder")
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("kind", ["grpo", "ppo"])
def test_a_peer_does_the_same_work(kind, precision):
    peer = PEERS[kind]
    python = environment(peer, Path(PEER_ENVIRONMENTS), print)
    work = Work(find_model("tiny"), precision=precision, iterations=1)
    for _, setting in settings(kind, precision):
        found = one_process(python, peer.runner, work.plan(kind, setting | {"rows_per_pass": 16}))
        assert found["tokens"] == [8 * 8 * 32]
        assert found["versions"]["trl"] == peer.version
        assert found["iteration_s"][0] > found["decode_s"][0] > 0
