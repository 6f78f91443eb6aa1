"""The command line as a person meets it: speed, names, messages, exit codes."""

from __future__ import annotations

import json
import os
import re
import resource
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from crlbench import __version__, cli
from crlbench.catalog.find import Catalog
from crlbench.commands import running
from crlbench.commands.console import short_path
from crlbench.commands.flags import INSTALLED_APART
from crlbench.commands.job import read_request
from crlbench.commands.settings import Settings, resolve
from crlbench.errors import UsageError, ValidationError
from crlbench.run.archive import open_track
from crlbench.run.board import load_track
from tests.support.commands import examples_of_help
from tests.support.entries import copied, plain, without
from tests.support.tracks import MINI_1

ROOT = Path(__file__).parents[2]
EXAMPLES = examples_of_help()
BASE = ["evaluate", "--model", "smollm2-135m-instruct"]


def call(*arguments: str, **options) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, as from a shell."""
    return subprocess.run(
        [sys.executable, "-m", "crlbench", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        **({"cwd": ROOT} | options),
    )


def seconds(*arguments: str) -> float:
    """The least processor time of three calls, so that what else the machine does is left out."""
    times = []
    for _ in range(3):
        begun = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert call(*arguments).returncode == 0
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(ended.ru_utime + ended.ru_stime - begun.ru_utime - begun.ru_stime)
    return min(times)


# -- speed ---------------------------------------------------------------------------------


def test_help_is_instant() -> None:
    assert seconds("--help") < 0.3
    assert seconds("evaluate", "--help") < 0.3


@pytest.mark.slow
def test_listing_models_is_fast() -> None:
    assert seconds("list", "models") < 1.0


@pytest.mark.parametrize("arguments", [["--help"], ["list", "models"], ["list", "tasks"]])
def test_no_heavy_library_is_imported_for_reading(arguments: list[str]) -> None:
    script = (
        "import sys; from crlbench.cli import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'transformers', 'lightning', 'numpy', 'peft'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_only_the_command_that_is_called_is_imported() -> None:
    script = (
        "import sys; from crlbench import cli\n"
        "def help(*words):\n"
        "    try: cli.main([*words, '--help'])\n"
        "    except SystemExit: pass\n"
        "def imported():\n"
        "    files = {n: 'crlbench.commands.' + n.replace('-', '_') for n in cli.COMMANDS}\n"
        "    return {name for name, file in files.items() if file in sys.modules}\n"
        "help()\n"
        "assert not imported()\n"
        "for number, name in enumerate(cli.COMMANDS):\n"
        "    assert len(imported()) == number\n"
        "    help(name)\n"
        "    assert name in imported()\n"
        "heavy = {'torch', 'transformers', 'lightning', 'numpy', 'pydantic'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# -- help ----------------------------------------------------------------------------------


def test_evaluate_shows_nine_flags_first(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["evaluate", "--help"])
    text = capsys.readouterr().out
    first, rest = text[text.index("options:") :].split("Advanced:")
    shown = [line.split()[0] for line in first.splitlines() if line.startswith("  --")]
    nine = "--model --track --recipe --tasks --seeds --out --dry-run --smoke --short"
    assert shown == nine.split()
    assert all(flag in rest for flag in ("--jobs", "--set", "--config", "--shard", "--home"))


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["--version"])
    assert capsys.readouterr().out == f"crlbench {__version__}\n"


@pytest.mark.parametrize("arguments", [["--json", "list", "tracks"], ["list", "tracks", "--json"]])
def test_global_flags_stand_before_or_after_the_command(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(arguments) == 0
    assert "mini" in [track["name"] for track in json.loads(capsys.readouterr().out)]


# -- wrong input ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        ([], 2, "no command"),
        (["evalute"], 2, "Did you mean evaluate"),
        (["list", "modls"], 2, "Did you mean models?"),
        (["list", "models", "extra"], 2, "unexpected argument 'extra'"),
        (["evaluate", "--modle", "x"], 2, "Did you mean --model"),
        (["evaluate"], 2, "evaluate needs --model"),
        (["evaluate", "--model", "smollm-135m-instruct"], 2, "Did you mean smollm2-135m-instruct"),
        (["evaluate", "--model", "org/name"], 2, "Pin the commit"),
        ([*BASE, "--track", "mimi"], 2, "Did you mean mini?"),
        ([*BASE, "--recipe", "step-poo"], 2, "Did you mean step-ppo"),
        ([*BASE, "--tasks", "adition"], 2, "Did you mean addition"),
        ([*BASE, "--seeds", "none"], 2, "--seeds"),
        ([*BASE, "--seeds", "0"], 2, "at least 1"),
        ([*BASE, "--limit", "0"], 2, "at least 1"),
        ([*BASE, "--max-hours", "-1"], 2, "above 0"),
        ([*BASE, "--max-hours", "nan"], 2, "above 0"),
        ([*BASE, "--jobs", "many"], 2, "whole number"),
        ([*BASE, "--jobs", "0"], 2, "whole number"),
        ([*BASE, "--shard", "3/2"], 2, "1 <= i <= N"),
        ([*BASE, "--arm", "plasebo"], 2, "Did you mean placebo?"),
        ([*BASE, "--arm", ","], 2, "--arm: name at least one"),
        ([*BASE, "--logger", "mlflow"], 2, "tensorboard"),
        ([*BASE, "--device", "tpu"], 2, "unknown device"),
        ([*BASE, "--set", "optimization.epoch=2"], 2, "Did you mean optimization.epochs"),
        ([*BASE, "--set", "optimization.epochs"], 2, "NAME=VALUE"),
        ([*BASE, "--set", "optimization.epochs=zero"], 2, "optimization.epochs"),
        ([*BASE, "--set", "optimization.minibatches=5"], 2, "multiple of"),
        ([*BASE, "--set", "rules.kl_cap=Infinity"], 2, "rules.kl_cap: Input should be a finite"),
        ([*BASE, "--set", "rules.kl_cap=NaN"], 2, "rules.kl_cap"),
        ([*BASE, "--set", "evaluation.end_items=100000"], 2, "has "),
        ([*BASE, "--config", "/nowhere.toml"], 3, "/nowhere.toml"),
        ([*BASE, "--catalog", "/nowhere"], 2, "/nowhere"),
        (["show", "model", "smollm2"], 2, "unknown model"),
        (["show", "track", "mini", "--prompts", "2"], 2, "belongs to tasks"),
        (["report", "/nowhere"], 2, "/nowhere"),
        (["fingerprint"], 2, "RUN or --track"),
        (["fingerprint", "/nowhere"], 2, "/nowhere"),
        (["fetch", "smollm3"], 2, "unknown model"),
        (["freeze", "adition", "--check"], 2, "Did you mean addition"),
        (["ablate", "--modle", "x"], 2, "Did you mean --model"),
        (["show", "recipe", "grop"], 2, "Did you mean grpo"),
        (["add", "task", "--to", "x", ""], 2, "task name '' is not allowed"),
        (["leaderboard"], 2, "no action given: crlbench leaderboard build|serve|export|retract"),
        (["leaderboard", "biuld"], 2, "unknown action 'biuld'. Did you mean build?"),
        (["leaderboard", "build", "--chek"], 2, "See: crlbench leaderboard build --help"),
        (["leaderboard", "build", "extra"], 2, "unexpected argument 'extra'"),
        (["leaderboard", "build", "--url", "example.org"], 2, "give the whole address"),
        (["leaderboard", "serve", "--port", "99999"], 2, "--port"),
        (["leaderboard", "export"], 2, "--out"),
        (["leaderboard", "export", "--out", "a.xls"], 2, "csv, json, parquet, tex"),
        (["leaderboard", "export", "--out", "a.csv", "--what", "run"], 2, "Did you mean runs"),
    ],
)
def test_wrong_input_is_one_clear_message(
    arguments: list[str],
    code: int,
    expected: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(arguments) == code
    captured = capsys.readouterr()
    assert expected in captured.err
    assert captured.out == "" and "Traceback" not in captured.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("logger", INSTALLED_APART)
def test_a_logger_whose_package_is_absent_is_refused_before_anything_runs(
    logger: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, logger, None)  # Python's own way to say that it is absent
    monkeypatch.chdir(tmp_path)
    assert cli.main([*BASE, "--logger", f"csv,{logger}"]) == 2
    said = capsys.readouterr().err
    assert f"--logger {logger}: its package is not installed. Run: pip install {logger}" in said
    assert "Traceback" not in said and list(tmp_path.iterdir()) == []


def test_v_adds_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["show", "task", "adition", "-v"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_an_internal_error_says_so_and_where_to_look(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("crlbench.commands.list.run")
    assert cli.main(["list", "tasks"]) == 1
    text = capsys.readouterr().err
    assert "internal error" in text and "-v" in text and "Traceback" not in text


def test_ctrl_c_anywhere_is_130(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(options: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_handle", interrupted)
    assert cli.main(["list", "tasks"]) == 130
    assert capsys.readouterr().err.strip() == "crlbench: interrupted"


@pytest.mark.slow
def test_a_reader_that_leaves_is_no_error() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "crlbench", "show", "task", "addition", "--prompts", "2000"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout and process.stderr
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(timeout=60) == 0


# -- the catalogue -------------------------------------------------------------------------


@pytest.mark.slow
def test_lists_and_shows_speak_json(capsys: pytest.CaptureFixture[str]) -> None:
    for what in ("models", "tasks", "recipes", "tracks", "runs"):
        assert cli.main(["list", what, "--json", "--out", "/nowhere"]) == 0
        assert isinstance(json.loads(capsys.readouterr().out), list)
    cli.main(["list", "tasks", "--json"])
    first = json.loads(capsys.readouterr().out)[0]
    assert {"name", "version", "tags", "floor"} <= set(first)
    for what, name in (("model", "smollm2-135m-instruct"), ("track", "mini"), ("recipe", "ppo")):
        assert cli.main(["show", what, name, "--json"]) == 0
        assert isinstance(json.loads(capsys.readouterr().out), dict)


def test_models_are_listed_by_family_and_kind(capsys: pytest.CaptureFixture[str]) -> None:
    def names(*flags: str) -> list[str]:
        assert cli.main(["list", "models", *flags, "--json"]) == 0
        return [row["name"] for row in json.loads(capsys.readouterr().out)]

    assert names("--family", "qwen3") == ["qwen3-0.6b", "qwen3-1.7b", "qwen3-8b-nf4"]
    assert names("--family", "qwen2.5", "--kind", "base") == ["qwen2.5-0.5b"]
    assert cli.main(["list", "models", "--family", "qwen3"]) == 0
    text = capsys.readouterr().out
    assert "596,049,920" in text and "nf4" in text and "c1899de2" in text
    for flags, said in (
        (["models", "--family", "qwen"], "Did you mean qwen"),
        (["models", "--kind", "chat"], "Known: base, instruct, reasoning"),
        (["tasks", "--kind", "base"], "--kind belongs to models"),
    ):
        assert cli.main(["list", *flags]) == 2
        assert said in capsys.readouterr().err


def test_show_prints_prompts_with_answers(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["show", "task", "addition", "--prompts", "1"]) == 0
    text = capsys.readouterr().out
    assert text.count("answer: ") == 5 and "id-00000" in text


def test_show_recipe_names_the_source_of_every_part(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["show", "recipe", "ppo"]) == 0
    text = capsys.readouterr().out
    assert "Gae(" in text and "crlbench/algo/advantage.py:" in text


def test_a_private_catalogue_comes_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tracks = tmp_path / "leaderboard" / "tracks"
    tracks.mkdir(parents=True)
    text = (ROOT / "leaderboard" / "tracks" / "mini.toml").read_text()
    (tracks / "mine.toml").write_text(text.replace('id = "mini"', 'id = "mine"'))
    assert cli.main(["list", "tracks", "--catalog", str(tmp_path)]) == 0
    assert "mine" in capsys.readouterr().out


def test_a_ranked_track_with_a_calibration_task_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tracks = tmp_path / "leaderboard" / "tracks"
    tracks.mkdir(parents=True)
    text = MINI_1.read_text()
    text = text.replace('id = "mini"', 'id = "mine"')
    (tracks / "mine.toml").write_text(text)
    catalogue = ["--catalog", str(tmp_path)]
    assert cli.main([*BASE, "--track", "mine", *catalogue]) == 3
    assert "'list-ops' is a calibration task" in capsys.readouterr().err
    (tracks / "mine.toml").write_text(text.replace("ranked = true", "ranked = false"))
    assert cli.main(["show", "track", "mine", "-q", *catalogue]) == 0


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("grid = 20", "grid = 10", ""),
        (', "chains"]', "]", "field tasks: there are 3, and under CRL-2"),
        ("curve_items = 64", "curve_items = 63", "conditions.evaluation.curve_items: there are 63"),
        ("pass_draws = 32", "pass_draws = 31", "conditions.evaluation.pass_draws: there are 31"),
        ("pass_draws = 32", "", "conditions.evaluation.pass_draws: there are 0"),
    ],
)
def test_a_ranked_track_has_what_its_protocol_needs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, said: str
) -> None:
    tracks = tmp_path / "leaderboard" / "tracks"
    tracks.mkdir(parents=True)
    text = MINI_1.read_text().replace('id = "mini"', 'id = "mine"\nprotocol = "CRL-2"')
    text = text.replace('"list-ops"', '"modular"').replace(', "key-value"]', ', "chains"]')
    text = text.partition("[pilot]")[0]
    text = text.replace("curve_items = 256", "curve_items = 64\npass_draws = 32")
    assert old in text
    show = ["show", "track", "mine", "-q", "--catalog", str(tmp_path)]
    (tracks / "mine.toml").write_text(text.replace(old, new))
    assert cli.main(show) == (3 if said else 0)
    assert said in capsys.readouterr().err
    for left, right in (("ranked = true", "ranked = false"), ('protocol = "CRL-2"', "")):
        (tracks / "mine.toml").write_text(text.replace(old, new).replace(left, right))
        assert cli.main(show) == 0, "what nothing is ranked by is not needed"


def test_a_malformed_track_names_the_field(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tracks = tmp_path / "leaderboard" / "tracks"
    tracks.mkdir(parents=True)
    text = (ROOT / "leaderboard" / "tracks" / "mini.toml").read_text()
    (tracks / "mine.toml").write_text(
        text.replace('id = "mini"', 'id = "mine"').replace("epochs = 1", "epochs = 0")
    )
    assert cli.main(["show", "track", "mine", "--catalog", str(tmp_path)]) == 3
    message = capsys.readouterr().err
    assert "mine.toml" in message and "conditions.optimization.epochs" in message


# -- settings ------------------------------------------------------------------------------


def resolved(*arguments: str) -> tuple[Settings, dict[str, str]]:
    return resolve(cli.parse(["evaluate", *arguments]))


def test_precedence_is_flag_set_config_environment_track(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "c.toml"
    config.write_text(
        'model = "a"\nseeds = 7\ndevice = "auto"\ntasks = ["x", "y"]\n'
        "[conditions.optimization]\nepochs = 3\nminibatches = 2\n"
    )
    monkeypatch.setenv("CRLBENCH_DEVICE", "cuda")
    assert resolved()[0].device == "cuda"
    settings, conditions = resolved("--config", str(config))
    assert (settings.model, settings.seeds, settings.device) == (("a",), 7, "auto")
    assert settings.tasks == ("x", "y") and settings.track == "mini"
    assert conditions == {"optimization.epochs": "3", "optimization.minibatches": "2"}
    settings, conditions = resolved(
        *("--config", str(config), "--seeds", "2", "--set", "optimization.epochs=4"),
        *("--device", "cpu", "--tasks", "z", "--model", "b", "--model", "c"),
    )
    assert (settings.model, settings.seeds, settings.device) == (("b", "c"), 2, "cpu")
    assert settings.tasks == ("z",)
    assert conditions == {"optimization.epochs": "4", "optimization.minibatches": "2"}


def test_the_short_form_is_one_seed_whatever_a_file_says(tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text('seeds = 20\ntasks = ["x"]\nsmoke = true\ntrack = "small"\n')
    settings, _ = resolved("--config", str(config), "--short")
    assert (settings.seeds, settings.tasks, settings.smoke) == (1, (), False)
    assert settings.track == "small"


@pytest.mark.parametrize("flags", [["--seeds", "2"], ["--tasks", "addition"], ["--smoke"]])
def test_the_short_form_stands_alone(flags: list[str]) -> None:
    with pytest.raises(UsageError, match=f"--short .* Leave {flags[0]} out, or --short"):
        resolved("--short", *flags)


def test_the_short_form_is_no_key_of_a_config(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text("short = true\n")
    with pytest.raises(UsageError, match="unknown key .* 'short'"):
        resolved("--config", str(tmp_path / "c.toml"))


@pytest.mark.parametrize("spec", ["mini", "mini@1", "small"])
def test_the_short_form_names_the_first_tasks_of_its_track(
    spec: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """And its runs stay on the track's board, so that the whole form goes on from them."""
    track, _ = open_track(Catalog(), spec)
    found = read_request(cli.parse(["evaluate", "--track", spec, "--short"]))
    whole = read_request(cli.parse(["evaluate", "--track", spec]))
    assert tuple(found.tasks) == found.settings.tasks == track.tasks[:3]
    assert found.board.fingerprint == whole.board.fingerprint
    assert found.board.division == "closed" and not found.board.partial
    printed = ["evaluate", "--track", spec, "--short", "--print-config"]
    assert cli.main(printed) == 0
    assert tomllib.loads(capsys.readouterr().out)["tasks"] == list(track.tasks[:3])


def test_the_short_form_leaves_out_what_can_only_be_measured(tmp_path: Path) -> None:
    root = copied(tmp_path, "addition", without("train", "train_fixed", "hard", "format"))
    found = read_request(cli.parse(["--catalog", str(root), "evaluate", "--short"]))
    assert "addition" not in found.tasks and len(found.tasks) == 3


def test_unknown_keys_of_a_config_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "c.toml").write_text("sedes = 3\n")
    assert cli.main([*BASE, "--config", str(tmp_path / "c.toml")]) == 2
    assert "Did you mean seeds" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("model = 5", "model = 5: must be a text or a list of texts"),
        ('smoke = "no"', "smoke = no: must be true or false"),
        ("seeds = 2.5", "seeds = 2.5: must be a whole number"),
        ("limit = true", "limit = true: must be a whole number"),
        ("tasks = [1]", "tasks = [1]: must be a text or a list"),
        ("max-hours = 1979-05-27", "must be a number"),
        ("conditions = 3", "conditions = 3: must be tables"),
        ("[conditions.rules]\nkl_cap = inf", "rules.kl_cap: Input should be a finite number"),
    ],
)
def test_a_value_of_a_wrong_type_in_a_config_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str, expected: str
) -> None:
    (tmp_path / "c.toml").write_text(line + "\n")
    assert cli.main(["evaluate", "--config", str(tmp_path / "c.toml")]) == 2
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize("value", ["", "0", "false", "No"])
def test_offline_by_environment_can_be_off(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRLBENCH_OFFLINE", value)
    assert not cli.parse(["list", "tracks"]).offline
    monkeypatch.setenv("CRLBENCH_OFFLINE", "1")
    assert cli.parse(["list", "tracks"]).offline


def test_print_config_is_a_config(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = [*BASE, "--set", "optimization.epochs=2", "--seeds", "3", "--arm", "real,placebo"]
    assert cli.main([*wanted, "--print-config"]) == 0
    text = capsys.readouterr().out
    assert tomllib.loads(text)["conditions"]["optimization"]["epochs"] == 2
    (tmp_path / "c.toml").write_text(text)
    assert cli.main(["evaluate", "--config", str(tmp_path / "c.toml"), "--print-config"]) == 0
    assert capsys.readouterr().out == text


def test_home_and_offline_reach_the_rooms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CRLBENCH_HOME", *cli.OFFLINE_SWITCHES):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv(name, os.environ.get(name, ""))
    assert cli.main(["list", "tracks", "--home", str(tmp_path), "--offline", "-q"]) == 0
    assert os.environ["CRLBENCH_HOME"] == str(tmp_path)
    assert os.environ["HF_HUB_OFFLINE"] == "1"


# -- fingerprints --------------------------------------------------------------------------


def test_fingerprints_differ_leaf_by_leaf(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["fingerprint", "--track", "mini", "-q"]) == 0
    plain = capsys.readouterr().out.strip()
    assert len(plain) == 12
    assert cli.main(["fingerprint", "--track", "mini", "--diff", "mini"]) == 0
    assert capsys.readouterr().out == f"equal: {plain}\n"
    changed = ["fingerprint", "--track", "mini", "--set", "optimization.epochs=2"]
    assert cli.main([*changed, "--diff", "mini"]) == 4
    text = capsys.readouterr().out
    assert "conditions.optimization.epochs" in text and len(text.splitlines()) == 2


def test_packages_outside_the_range_open_a_board_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tracks = tmp_path / "leaderboard" / "tracks"
    tracks.mkdir(parents=True)
    text = (ROOT / "leaderboard" / "tracks" / "mini.toml").read_text()
    head, _, tail = text.partition('torch = "')
    (tracks / "mini.toml").write_text(head + 'torch = ">=9"' + tail.partition('"')[2])
    assert cli.main(["show", "track", "mini", "--json", "--catalog", str(tmp_path)]) == 0
    mine = json.loads(capsys.readouterr().out)
    assert mine["open_because"] == [f"torch {_torch()} is installed (track: >=9)"]
    assert cli.main(["show", "track", "mini", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["fingerprint"] != mine["fingerprint"]


def _torch() -> str:
    from importlib.metadata import version

    return version("torch")


# -- files and folders ---------------------------------------------------------------------


def test_a_changed_prompt_file_is_named_with_its_digest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "tasks" / "addition"
    folder.mkdir(parents=True)
    for path in (ROOT / "tasks" / "addition").iterdir():
        if path.is_file():
            (folder / path.name).write_bytes(path.read_bytes())
    rows = plain(folder / "id.jsonl")
    rows.write_bytes(rows.read_bytes() + b"\n")
    assert cli.main([*BASE, "--catalog", str(tmp_path), "--out", str(tmp_path / "runs")]) == 3
    message = capsys.readouterr().err
    assert str(folder / "id.jsonl") in message and "sha256" in message
    assert not (tmp_path / "runs").exists()


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The flags that name a very small model."""
    from tests.support.checkpoints import write_checkpoint

    folder = write_checkpoint(tmp_path_factory.mktemp("models") / "very-tiny")
    return ["--model", str(folder), "--track", "mini@1"]


@pytest.mark.slow
def test_an_output_that_is_a_file_is_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], checkpoint: list[str]
) -> None:
    (tmp_path / "runs").write_text("I am a file")
    assert cli.main(["evaluate", *checkpoint, "--out", str(tmp_path / "runs")]) == 6
    message = capsys.readouterr().err
    assert str(tmp_path / "runs") in message and "--out" in message


@pytest.mark.slow
def test_no_space_is_said_before_the_start(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    checkpoint: list[str],
) -> None:
    import shutil

    full = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: full)
    assert cli.main(["evaluate", *checkpoint, "--out", str(tmp_path / "runs")]) == 6
    assert "not enough space" in capsys.readouterr().err


@pytest.mark.slow
def test_a_model_that_was_never_fetched_names_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*BASE, "--home", str(tmp_path), "--out", str(tmp_path / "runs")]) == 6
    assert "crlbench fetch smollm2-135m-instruct" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_a_folder_that_is_no_model_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    assert cli.main(["evaluate", "--model", str(tmp_path / "empty")]) == 3
    assert "config.json" in capsys.readouterr().err


# -- verdicts ------------------------------------------------------------------------------


def test_each_message_is_said_once() -> None:
    from types import SimpleNamespace

    from crlbench.run.launcher import Outcome

    cells = [SimpleNamespace(folder=f"runs/b/m/ppo/addition/real/seed-0{i}") for i in range(3)]
    bad = [Outcome(cell, "error", "id.jsonl was changed", 3) for cell in cells]
    work = SimpleNamespace(wanted=cells, missing=cells, vanished=[])
    code, sentences = running.verdict(running.Ending(work, bad, False, False), verbose=False)
    assert code == ValidationError.exit_code
    assert sentences[0] == (
        "crlbench: id.jsonl was changed (m/ppo/addition/real/seed-00 and 2 more)"
    )
    assert sentences[1] == "0 of 3 runs done"


def test_a_signal_after_the_last_cell_is_no_interruption(monkeypatch: pytest.MonkeyPatch) -> None:
    from types import SimpleNamespace

    from crlbench.run.launcher import Outcome

    cells = [SimpleNamespace(folder=f"runs/b/m/ppo/addition/real/seed-0{i}", recipe="ppo")
             for i in range(2)]
    done = [Outcome(cell, "done", "", 0) for cell in cells]
    work = SimpleNamespace(wanted=cells, missing=cells, vanished=[])
    record = SimpleNamespace(status=SimpleNamespace(state="completed"))
    monkeypatch.setattr(running, "read_record", lambda path, own: record)
    assert running.verdict(running.Ending(work, done, True, False), verbose=False) == (0, [])
    code, _ = running.verdict(running.Ending(work, done[:1], True, False), verbose=False)
    assert code == 130


def test_an_unlisted_folder_is_counted_by_its_weight_files(tmp_path: Path) -> None:
    from crlbench.catalog.checkpoint import local_card
    from tests.support.checkpoints import write_checkpoint

    card = local_card(write_checkpoint(tmp_path / "very-tiny"))
    assert card.params_total is None
    size = sum(path.stat().st_size for path in tmp_path.rglob("*.safetensors"))
    assert running.disk_bytes([card], 1, 0) == pytest.approx(size + 1_000_000, rel=0.01)


def examples() -> list[str]:
    lines = [line for text in EXAMPLES.values() for line in text.splitlines()]
    return [line.strip() for line in lines if line.startswith("  crlbench ")]


def test_every_command_shows_examples() -> None:
    for name, text in EXAMPLES.items():
        assert f"\n  crlbench {name}" in text


@pytest.mark.parametrize("line", examples())
def test_an_example_can_be_typed(line: str) -> None:
    cli.build_parser().parse_args(shlex.split(line)[1:])


@pytest.mark.slow
@pytest.mark.parametrize("line", [line for line in examples() if "mini@1" in line])
def test_an_example_with_a_version_runs(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An archived version; and the current one by its number, which is the plain name."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "leaderboard").symlink_to(ROOT / "leaderboard")
    assert cli.main(shlex.split(line)[1:]) == 0
    with_version = capsys.readouterr().out
    assert with_version
    if "--track" in line:
        said = []
        for spec in ("mini", f"mini@{load_track(Catalog(), 'mini').version}"):
            assert cli.main(shlex.split(line.replace("mini@1", spec))[1:]) == 0
            said.append(re.sub(r"about [^,]*", "", capsys.readouterr().out))
        assert said[0] == said[1] != re.sub(r"about [^,]*", "", with_version)


def test_examples_with_a_version_are_shown() -> None:
    for name in ("evaluate", "compare", "fingerprint"):
        assert "mini@1" in EXAMPLES[name]


def test_a_path_below_the_present_folder_is_printed_without_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert short_path(tmp_path / "models" / "one.toml") == "models/one.toml"
    assert short_path(tmp_path.parent / "one.toml") == str(tmp_path.parent / "one.toml")
