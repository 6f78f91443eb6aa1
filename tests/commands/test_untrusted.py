"""What strangers may send, one case for each fault that fuzzing found; see docs/fuzzing.md."""

from __future__ import annotations

import bz2
import errno
import gzip
import io
import json
import os
import tarfile
import time
import zipfile
from argparse import Namespace
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any, NoReturn

import pytest
import zstandard

from crlbench import cli
from crlbench.algo import recipes
from crlbench.catalog import packages
from crlbench.catalog.find import Catalog
from crlbench.catalog.retain_panel import parse_text
from crlbench.catalog.rows import parse_rows
from crlbench.commands.settings import resolve
from crlbench.contract import attempts
from crlbench.contract.card import validate_card
from crlbench.contract.conditions import Track, override
from crlbench.contract.model_card import ModelCard, Package, Source, read_model_card
from crlbench.contract.record_files import read_record
from crlbench.contract.study import Comparison, Study
from crlbench.contract.task_card import TaskCard
from crlbench.disk import reading
from crlbench.disk.toml import dump_toml
from crlbench.disk.unpacking import BadArchive
from crlbench.errors import CrlbenchError, UsageError, ValidationError, unknown_name
from crlbench.run import store
from crlbench.run.board import load_track
from crlbench.verdict.load import load_runs
from crlbench.verdict.resources import known_track
from crlbench.verdict.study_runs import read_study
from tests.contribute.test_bad_models import ENTRY
from tests.support.simulate import Plan, file_digests, rewrite, write_run

ROOT = Path(__file__).parents[2]
MARKER = "executed"


# -- text ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"1" * 5000, "too many digits"),
        (b"[" * 100_000, "nested too deeply"),
        (b"[" + b"[]," * 150_000 + b"0]", "more than 100000 lists"),
        (b"NaN", "NaN is not a number that JSON knows"),
        (b'"\\ud800"', r"half a character"),
        (b'"\xff"', r"not UTF-8 text \(byte 1\)"),
        (b"{\n\n,}", "line 3, column 1"),
    ],
)
def test_json_is_refused_in_one_line(data: bytes, said: str) -> None:
    with pytest.raises(reading.Malformed, match=said) as caught:
        reading.json_value(data)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"a = " + b"[" * 20_000, "nested too deeply"),
        (b"a = " + b"1" * 5000, "too many digits"),
        (b"a = {b = [0x" + b"f" * 17 + b"]}", "field 'a.b.0': a number of more than 64 bits"),
        (b".".join([b"a"] * 40_000) + b" = 1", "more than 200 dots"),
        (b"a = 1\n" + b"#" * 2**18, "no TOML file here has more than"),
        (b"a = '\xff'", r"not UTF-8 text \(byte 5\)"),
        (b"a = ", "not valid TOML"),
    ],
)
def test_toml_is_refused_in_one_line_and_soon(data: bytes, said: str) -> None:
    begun = time.process_time()
    with pytest.raises(reading.Malformed, match=said):
        reading.toml_table(data)
    assert time.process_time() - begun < 1


def test_dots_inside_of_texts_are_no_names() -> None:
    assert reading.toml_table(b'a = "' + b"." * 500 + b'"') == {"a": "." * 500}


@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "large", "link", "name"])
def test_only_regular_files_of_a_size_are_read(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "x"
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "device":
            path = Path("/dev/zero")
        case "folder":
            path.mkdir()
        case "large":
            path.touch()
            os.truncate(path, 2**40)
        case "link":
            (tmp_path / "y").touch()
            path.symlink_to("y")
        case "name":
            path = tmp_path / "a\0b"
    with pytest.raises(ValidationError):
        reading.read_bytes(path, links=False)


def test_a_message_moves_no_cursor_and_ends() -> None:
    said = str(ValidationError("a\x1b[2J\u202eb\ud800 ü \U0001f600\n"))
    assert said == "a\\x1b[2J\\u202eb\\ud800 ü \U0001f600\n"
    assert len(str(UsageError("x" * 10**6))) < 10_000
    begun = time.process_time()
    names = [("ab" * 5000)[i:] for i in range(50)]
    assert len(str(unknown_name("task", "ba" * 5000, names))) < 10_000
    assert time.process_time() - begun < 1


def test_no_control_character_reaches_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (ROOT / "models" / "gpt2.toml").read_text()
    text = text.replace('licence = "', 'licence = "\\u001b[2J\\u202e', 1).replace(
        '"gpt2"', '"gpt3"'
    )
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "gpt3.toml").write_text(text)
    for command in (["list", "models"], ["show", "model", "gpt3"]):
        assert cli.main([*command, "--catalog", str(tmp_path)]) == 3
        printed = capsys.readouterr().err
        assert "gpt3" in printed and "\x1b" not in printed and "\u202e" not in printed


# -- entries -------------------------------------------------------------------------------

PACKAGE = {"registry": "pypi", "name": "x", "version": "1", "file": "x.gguf", "sha256": "0" * 64}


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "--index-url=http://example.org"},
        {"name": "x @ git+https://example.org/x"},
        {"name": "../../x"},
        {"name": "x" * 300},
        {"version": "1/../../x"},
        {"version": "--pre"},
        {"file": "../x.gguf"},
    ],
)
def test_a_package_is_a_name_and_nothing_that_pip_would_obey(changes: dict[str, str]) -> None:
    assert validate_card(Package, PACKAGE, "x.toml")
    with pytest.raises(ValidationError, match=next(iter(changes))):
        validate_card(Package, PACKAGE | changes, "x.toml")


@pytest.mark.parametrize("path", ["/etc", "../x", "a/../../x", "a\\..\\x"])
def test_weights_stand_below_their_entry(path: str) -> None:
    with pytest.raises(ValidationError, match="never absolute, never with"):
        validate_card(Source, {"path": path}, "x.toml")
    with pytest.raises(ValidationError, match="without its folder"):
        validate_card(ModelCard, ENTRY | {"weights_sha256": {path: "0" * 64}}, "x.toml")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda card: card["splits"]["id"].update(file="../../x.jsonl"), "splits.id.file"),
        (lambda card: card["generator"].update(module="../task.py"), "generator.module"),
        (lambda card: card["splits"].pop("id"), "the split id is missing"),
        (lambda card: card.update(name="a" * 300), "name"),
    ],
)
def test_a_task_names_files_of_its_own(change: Callable[[Any], Any], said: str) -> None:
    card = reading.toml_table((ROOT / "tasks/addition/frozen.toml").read_bytes())
    assert validate_card(TaskCard, card, "frozen.toml")
    change(card)
    with pytest.raises(ValidationError, match=said):
        validate_card(TaskCard, card, "frozen.toml")


def test_a_file_of_mistakes_is_refused_soon(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text("".join(f"slug{i} = 1\n" for i in range(3_000)))
    begun = time.process_time()
    with pytest.raises(ValidationError, match="and 29.. more"):
        read_model_card(path)
    assert time.process_time() - begun < 1


@pytest.mark.parametrize("line", [b'{"id": ' + b"1" * 5000 + b"}", b"[" * 100_000, b'"\\udfff"'])
def test_rows_that_python_cannot_hold_are_named(line: bytes) -> None:
    with pytest.raises(ValidationError, match=r"id\.jsonl:1: not valid JSON"):
        parse_rows(line, Path("id.jsonl"))


def test_a_recipe_may_be_based_on_a_changed_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "wide.toml").write_text('base = "grpo+clip.high=0.4"\n')
    assert recipes.python_file("wide", [tmp_path]) is None
    assert cli.main(["list", "recipes", "--catalog", str(tmp_path)]) == 0
    assert "grpo in clip" in capsys.readouterr().out


def test_a_track_with_an_impossible_range_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "leaderboard" / "tracks"
    folder.mkdir(parents=True)
    text = (ROOT / "leaderboard/tracks/mini.toml").read_text()
    (folder / "mini.toml").write_text(text.replace('torch = "', 'torch = "1_000', 1))
    with pytest.raises(ValidationError, match="packages.torch: .* is no range of versions"):
        load_track(Catalog([tmp_path]), "mini")


def test_a_track_names_each_task_once(tmp_path: Path) -> None:
    folder = tmp_path / "leaderboard" / "tracks"
    folder.mkdir(parents=True)
    text = (ROOT / "leaderboard/tracks/mini.toml").read_text()
    (folder / "mini.toml").write_text(text.replace('"counting"', '"counting", "addition"', 1))
    with pytest.raises(ValidationError, match="tasks: .*'addition' stands there more than once"):
        load_track(Catalog([tmp_path]), "mini")


def test_an_entry_may_name_a_folder_that_no_system_has(tmp_path: Path) -> None:
    source = {"path": "x" * 400}
    entry = ENTRY | {"added": date(2026, 1, 1), "source": source, "weights_sha256": {"a": "0" * 64}}
    (tmp_path / "wrong.toml").write_text(dump_toml(entry))
    with pytest.raises(ValidationError, match=r"field source\.path: File name too long"):
        read_model_card(tmp_path / "wrong.toml")


def test_a_text_of_the_panel_that_is_none() -> None:
    with pytest.raises(ValidationError, match=r"text\.txt: not UTF-8 text \(byte 1\)"):
        parse_text(b"a\xff", Path("text.txt"))


# -- nothing is executed -------------------------------------------------------------------


def trap(path: Path) -> str:
    return f"open({str(path)!r}, 'w').close()\n"


@pytest.fixture
def trapped(tmp_path: Path) -> Path:
    """A --catalog folder in which every Python file would make a marker."""
    code = trap(tmp_path / MARKER)
    for name in ("sound", "broken", "draft"):
        folder = tmp_path / "tasks" / name
        folder.mkdir(parents=True)
        (folder / "task.py").write_text(code)
        (folder / "__init__.py").write_text(code)
        if name != "draft":
            for file in (ROOT / "tasks" / "addition").glob("*.*l*"):
                text = file.read_bytes().replace(b'name = "addition"', f'name = "{name}"'.encode())
                (folder / file.name).write_bytes(text)
    (tmp_path / "tasks" / "broken" / "id.jsonl").write_text("{}\n")
    (tmp_path / "elsewhere" / "unreadable").mkdir(parents=True)
    (tmp_path / "elsewhere" / "unreadable" / "task.py").write_text(code)
    (tmp_path / "elsewhere" / "unreadable" / "frozen.toml").write_text("a = [")
    for place in ("recipes", "models", "leaderboard/tracks"):
        (tmp_path / place).mkdir(parents=True)
        for name in ("__init__.py", "own.py", "conftest.py", "sitecustomize.py"):
            (tmp_path / place / name).write_text(code)
    (tmp_path / "recipes" / "mine.toml").write_text('base = "own"\n')
    return tmp_path


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("list tasks", 0),
        ("list tasks --json", 0),
        ("list models", 0),
        ("list recipes", 0),
        ("list tracks", 0),
        ("list runs", 0),
        ("show task sound", 0),
        ("show task sound --prompts 3", 0),
        ("show task broken", 3),
        ("show task draft", 3),
        ("show track mini", 0),
        ("validate tasks/draft --quick", 3),
        ("validate elsewhere/unreadable --quick", 3),
    ],
)
def test_listing_and_showing_executes_nothing(
    command: str, code: int, trapped: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(trapped)
    assert cli.main([*command.split(), "--catalog", str(trapped)]) == code
    assert not (trapped / MARKER).exists()


def test_the_trap_is_one(trapped: Path) -> None:
    """Using a task's verifier runs its code, but only the code that was frozen."""
    with pytest.raises(ValidationError, match="the verifier changed"):
        Catalog([trapped]).load_task("sound").verify("1", "1")
    assert not (trapped / MARKER).exists()
    with pytest.raises(ValidationError, match="must export RECIPE"):
        recipes.load("own", [trapped])
    assert (trapped / MARKER).exists()


# -- archives ------------------------------------------------------------------------------


def little(registry: str) -> Package:
    return validate_card(Package, PACKAGE | {"registry": registry}, "x.toml")


def tarball(*members: tuple[str, int]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, size in members:
            info = tarfile.TarInfo(name)
            info.size = size
            archive.addfile(info, io.BytesIO(bytes(size)))
    return buffer.getvalue()


def endless(name: str) -> bytes:
    """A header before a long name, of 2^70 bytes."""
    info = tarfile.TarInfo(name)
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 2**70
    return info.tobuf(tarfile.GNU_FORMAT)


def wheel(size: int) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.gguf", bytes(size))
    return buffer.getvalue()


ARCHIVES: dict[str, tuple[str, Callable[[], bytes], str]] = {
    "a bomb": (
        "npm",
        lambda: gzip.compress(tarball(("p/x.gguf", 2**26))),
        "made to fill the disk",
    ),
    "before it": (
        "npm",
        lambda: gzip.compress(tarball(("p", 2**26), ("x.gguf", 1))),
        "fill the disk",
    ),
    "bzip2": ("npm", lambda: bz2.compress(tarball(("p/x.gguf", 10))), "not a whole archive"),
    "no size": (
        "npm",
        lambda: gzip.compress(tarball(("x.gguf", 1)).replace(b"00000000001\0", b"0000000zz01\0")),
        "not a whole archive",
    ),
    "a size that no integer holds": (
        "npm",
        lambda: gzip.compress(endless("y") + tarball(("p/x.gguf", 1))),
        "fill the disk",
    ),
    "a zip bomb": ("pypi", lambda: wheel(2**26), "made to fill the disk"),
    "no offset": (
        "pypi",
        lambda: wheel(9)[:-6] + b"\xff\xff\xff\x7f\0\0",
        "not a whole archive",
    ),
}
"""Registry, what makes the file, and what is said of it."""


@pytest.mark.parametrize("kind", ARCHIVES)
def test_damaged_and_hostile_archives_are_refused(kind: str, tmp_path: Path) -> None:
    registry, make, said = ARCHIVES[kind]
    archive = tmp_path / ("x-1.tgz" if registry == "npm" else "x-1-py3-none-any.whl")
    archive.write_bytes(make())
    with pytest.raises(ValidationError, match=said):
        packages.assemble(little(registry), [archive], tmp_path / "out")
    assert not (tmp_path / "out").exists() or (tmp_path / "out").stat().st_size < 2**20


# -- results -------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path: Path) -> Path:
    plan = Plan(tasks=("addition",), seeds=1, items=8)
    return write_run(tmp_path / "board" / "m@00000000" / "ppo", plan)


def cell(run: Path) -> Path:
    return run / "addition" / "real" / "seed-00"


@pytest.mark.parametrize("name", ["record.json", "items.npz", "samples.jsonl.zst"])
@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_a_result_holds_files_only(run: Path, name: str, kind: str) -> None:
    path = cell(run) / name
    kept = path.rename(run.parent / "kept")
    match kind:
        case "link":
            path.symlink_to(kept)
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
    kind = UsageError if (kind, name) == ("folder", "record.json") else ValidationError
    with pytest.raises(kind, match=name):  # no file called so: no run has finished there
        load_runs(run)


def test_a_listed_file_is_not_reached_through_a_link(run: Path) -> None:
    secret = run.parent / "private"
    secret.mkdir()
    (secret / "key").write_text("secret")
    (cell(run) / "logs").symlink_to(secret)
    known = file_digests(cell(run))
    rewrite(cell(run), files=known | {"logs/key": {"sha256": "0" * 64, "bytes": 6}})
    with pytest.raises(ValidationError, match="'logs/key' points outside the folder"):
        load_runs(run)


def samples(run: Path, text: bytes) -> None:
    (cell(run) / "samples.jsonl.zst").write_bytes(zstandard.ZstdCompressor().compress(text))
    rewrite(cell(run), files=file_digests(cell(run)))


SAMPLE = {"uid": "", "x": 1, "prompt": "", "completion": "", "answer": "", "score": 1.0}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"\n" * 2**22, "more than 100000 lines"),
        (bytes(2**25), "unpacks to more than"),
        (json.dumps(SAMPLE | {"score": 10**400}).encode(), "score: 1000.* is no score"),
        (json.dumps(SAMPLE | {"prompt": "\ud800"}).encode(), "half a character"),
    ],
)
def test_samples_are_bounded(run: Path, text: bytes, said: str) -> None:
    samples(run, text)
    (loaded,) = load_runs(run / "addition")
    with pytest.raises(ValidationError, match=said):
        loaded.samples()


def test_a_record_of_very_many_lists_is_refused_soon(run: Path) -> None:
    path = cell(run) / "record.json"
    path.write_text(path.read_text().replace("{", '{"a":[' + "[]," * 2**20 + "0],", 1))
    begun = time.process_time()
    with pytest.raises(ValidationError, match="more than 100000 lists"):
        read_record(path)
    assert time.process_time() - begun < 1


def test_an_event_without_a_cell_is_no_fault(run: Path) -> None:
    """The line of a plan needs none."""
    path = run / "ledger.jsonl"
    entry = json.loads(path.read_text().splitlines()[0])
    del entry["cell"], entry["hash"]
    path.write_text(json.dumps(entry | {"hash": attempts.digest(entry)}) + "\n")
    from crlbench.verdict.attempts import read_attempts

    assert read_attempts(run).discarded == ()


def test_a_study_of_very_many_lists_is_refused(tmp_path: Path) -> None:
    (tmp_path / "study.json").write_text('{"track": [' + "[]," * 100_000 + "0]}")
    with pytest.raises(ValidationError, match="study.json: more than 100000 lists and objects"):
        read_study(tmp_path)


def test_a_study_holds_finite_numbers() -> None:
    with pytest.raises(ValueError, match="finite"):
        Study(title="x", track="mini", margin=float("inf"), comparisons=list[Comparison]())


def test_a_track_is_looked_up_by_the_names_that_there_are() -> None:
    assert known_track("mini") is not None
    for name in ("x" * 5000, "../tracks/mini", "a\0b", "", "mini.toml"):
        assert known_track(name) is None


@pytest.mark.parametrize("plan", ["[]", '{"tasks": [], "arms": 1.0}', "[" * 100_000, "NaN"])
def test_plans_that_are_none_are_named(
    plan: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "board" / "m" / "ppo" / "plan.json"
    path.parent.mkdir(parents=True)
    names = {name: {"name": "x"} for name in ("model", "recipe")}
    rest = dict.fromkeys(("track", "fingerprint", "division", "partial"), "x")
    if plan.startswith("{"):
        plan = json.dumps(names | rest | json.loads(plan))
    path.write_text(plan)
    assert cli.main(["list", "runs", "--out", str(tmp_path)]) == ValidationError.exit_code
    assert f"{path} is damaged" in capsys.readouterr().err


def test_stored_rows_and_arrays_are_bounded(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl.zst"
    path.write_bytes(zstandard.ZstdCompressor().compress(bytes(2**26 + 1)))
    with pytest.raises(BadArchive, match="unpacks to more than"):
        store.rows_of(path.read_bytes())
    import numpy as np

    arrays = store.write_bytes(tmp_path / "x.npz", store.packed_arrays({"a": np.zeros(8)}))
    data = bytearray(arrays.read_bytes())
    data[60] ^= 0xFF
    arrays.write_bytes(data)
    with pytest.raises(ValidationError, match="is damaged"):
        store.read_npz(arrays)


# -- what is typed -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flag", "value"),
    [("jobs", "²"), ("jobs", "9" * 5000), ("shard", "1/²"), ("shard", "1/" + "9" * 5000)],
)
def test_digits_of_other_kinds_are_no_counts(flag: str, value: str) -> None:
    with pytest.raises(UsageError, match=f"--{flag}"):
        resolve(Namespace(**{flag: value, "set": None}))


def test_settings_that_python_cannot_hold_are_texts() -> None:
    track = Track.model_validate(
        reading.toml_table((ROOT / "leaderboard/tracks/mini.toml").read_bytes())
    )
    for value in ("1" * 5000, "[" * 100_000, "\udc80"):
        with pytest.raises(UsageError, match="optimization.epochs"):
            override(track.conditions, {"optimization.epochs": value})
        with pytest.raises(CrlbenchError):
            recipes.load(f"grpo+clip.high={value}")


@pytest.mark.parametrize("name", ["x" * 5000, "a\0b", "~nobody/x", "\udc80", "m@" + "1" * 300])
def test_a_model_may_be_called_anything(name: str) -> None:
    with pytest.raises(UsageError):
        Catalog().load_model(name)


@pytest.mark.parametrize(
    "line",
    ["validate {}", "export {} --to out", "fingerprint {}", "report {}", "list runs --out {}",
     "list tasks --catalog {}", "doctor --home {}"],
)
def test_a_name_too_long_for_the_system_is_no_fault(
    line: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRLBENCH_HOME", "unused")  # --home sets it, and it is put back
    assert cli.main([part.format("x" * 5000) for part in line.split()]) in (0, 2, 3, 6)
    said = capsys.readouterr().err
    assert "internal error" not in said and "Traceback" not in said


def test_no_argument_holds_a_zero_byte(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["list", "tasks", "--catalog", "cat\0"]) == 2
    assert capsys.readouterr().err == (
        "crlbench: 'cat\\x00' holds a zero byte, which no name and no number has.\n"
    )


def test_a_folder_that_may_not_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(folder: str) -> NoReturn:  # root may read everything
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), folder)

    monkeypatch.setattr(os, "scandir", refused)
    monkeypatch.setattr(os, "listdir", refused)
    assert cli.main(["validate", str(tmp_path), "--kind", "task"]) == 6
    said = capsys.readouterr().err
    assert said.startswith(f"crlbench: {tmp_path}: Permission denied. Give yourself permission")


# -- numbers that ask for very much work ---------------------------------------------------


def test_a_run_declares_no_more_than_can_be_counted(run: Path) -> None:
    from crlbench.contract.attempts import MAX_RUNS
    from tests.support.simulate import declare

    declare(run, tasks=[f"t{i}" for i in range(100)], arms={"real": 10_000})
    with pytest.raises(ValidationError, match=f"declares more than {MAX_RUNS} runs"):
        attempts.read(run / "ledger.jsonl")
    arm = {"label": "", "kind": "base", "run": "x", "recipe": "ppo", "fingerprint": "0"}
    one = {"name": "", "model": "m", "base": arm, "arms": [arm], "tasks": ["addition"]}
    for comparison in (one | {"seeds": 10**12}, one | {"seeds": 10_000, "tasks": ["a"] * 300}):
        with pytest.raises(ValueError, match="seeds|more than"):
            Study.model_validate({"title": "", "track": "mini", "comparisons": [comparison]})
    with pytest.raises(UsageError, match="--seeds"):
        resolve(Namespace(seeds=10**12, set=None))


@pytest.mark.parametrize(
    ("leaf", "value", "said"),
    [
        ("conditions.budget.grid", 10**12, "which no run makes"),
        ("conditions.budget.iterations_per_point", 10**400, "which no run makes"),
        ("retain.copy.floor", 10**400, "no bounds of a score"),
        ("retain.copy.floor", 1.0, "no bounds of a score"),
    ],
)
def test_conditions_that_ask_for_endless_grids_are_refused(
    run: Path, leaf: str, value: float, said: str
) -> None:
    from crlbench.contract.conditions import fingerprint
    from crlbench.verdict.board import summarise_board

    leaves = json.loads((cell(run) / "record.json").read_text())["fingerprint"]["leaves"]
    assert leaf in leaves
    leaves[leaf] = value
    rewrite(cell(run), fingerprint={"hash": fingerprint(leaves), "leaves": leaves})
    begun = time.process_time()
    with pytest.raises(ValidationError, match=said):
        summarise_board(load_runs(run / "addition"), 8)
    assert time.process_time() - begun < 1


def test_a_file_of_another_size_is_refused_before_it_is_read(run: Path) -> None:
    os.truncate(cell(run) / "digests.jsonl", 2**43)
    begun = time.process_time()
    with pytest.raises(ValidationError, match=r"digests\.jsonl: 8796093022208 bytes, but"):
        load_runs(run)
    assert time.process_time() - begun < 1


def test_a_number_that_no_float_holds_is_no_field_of_a_part() -> None:
    with pytest.raises(UsageError, match="horizon"):
        recipes.load("grpo+kl.coefficient=adaptive:initial=0.04,target=1,horizon=1" + "0" * 400)


def test_a_gguf_file_states_no_more_than_it_holds(tmp_path: Path) -> None:
    import struct

    from crlbench.policy.weights.gguf_check import check_gguf
    from tests.catalog.test_fetch import write_gguf

    sound = write_gguf(tmp_path / "sound.gguf")
    check_gguf(sound)
    key = struct.pack("<Q", 1) + b"k"
    for stated, said in (
        (struct.pack("<4sIQQ", b"GGUF", 3, 0, 2**62), "elements, more than it has bytes"),
        (struct.pack("<4sIQQ", b"GGUF", 3, 0, 1) + key + struct.pack("<IIQ", 9, 8, 2**40), "more"),
        (struct.pack("<4sIQQ", b"GGUF", 3, 0, 1) + key + struct.pack("<IIQ", 9, 4, 2**62), "ends"),
        (struct.pack("<4sIQQ", b"GGUF", 3, 1, 0) + key + struct.pack("<I", 2**31), "axes"),
        (b"GGUF" + bytes(20), "version 0"),
        (b"", "not a GGUF file"),
    ):
        (tmp_path / "x.gguf").write_bytes(stated)
        with pytest.raises(ValidationError, match=said):
            check_gguf(tmp_path / "x.gguf")


def test_a_zero_byte_after_a_tilde_is_no_model() -> None:
    with pytest.raises(UsageError, match="model"):
        Catalog().load_model("~\0")


@pytest.mark.parametrize("sizes", [(6, 8, 1, 2, 2, 9, 4), (24, 8, 1, 6, 4, 9, 4)])
def test_heads_of_llama2c_have_halves_and_share_keys_equally(tmp_path: Path, sizes) -> None:
    from crlbench.policy.weights.llama2c import HEADER, read_llama2c

    (tmp_path / "m.bin").write_bytes(HEADER.pack(*sizes) + bytes(1 << 16))
    with pytest.raises(ValidationError, match="impossible sizes"):
        read_llama2c(tmp_path / "m.bin")
