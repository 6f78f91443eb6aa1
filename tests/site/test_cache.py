"""What is kept of entries: a build from it is the cold one, and nothing damaged or old is used."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import zstandard

from crlbench import cli
from crlbench.catalog.find import Catalog
from crlbench.disk.parcels import BadParcel, Parcel, write_parcel
from crlbench.errors import EnvironmentUnfit, ValidationError
from crlbench.site import build as building
from crlbench.site import cache as caching
from crlbench.site.cache import DAYS_KEPT, IN_USE, Cache, SparedCache, TemporaryCache
from crlbench.site.filling import Filler
from crlbench.site.known import PART, packed_text, read_known
from crlbench.site.pages import File, Kept, Made
from crlbench.site.reading import read_site
from crlbench.site.source import Site
from tests.support.marks import first

pytestmark = pytest.mark.slow

STORED = Path(__file__).parents[2] / "leaderboard" / "results" / "mini-543da47d0c99"
MODELS = ("tiny-llama@25666175", "tiny-mistral@7cc31561")


@pytest.fixture(scope="module")
def committed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two of the committed entries."""
    results = tmp_path_factory.mktemp("committed") / "results"
    for model in MODELS:
        shutil.copytree(STORED / model / "ppo", results / STORED.name / model / "ppo")
    return results


@pytest.fixture(scope="module")
def cold(committed: Path) -> Mapping[str, bytes]:
    """The site of both, without a cache."""
    return building.build(read_site(committed, Catalog()))


@pytest.fixture(scope="module")
def filled(committed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache after a build."""
    folder = tmp_path_factory.mktemp("cache")
    building.build(read_site(committed, Catalog(), cache=Cache(folder)))
    return folder


@pytest.fixture
def cache(filled: Path, tmp_path: Path) -> Cache:
    return Cache(Path(shutil.copytree(filled, tmp_path / "cache")))


@pytest.fixture
def copied(committed: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(committed, tmp_path / "results"))


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the models whose entries are read, not found in the cache."""
    names: list[str] = []
    fill = Filler.fill

    def noted(filler: Filler, folder: Path, key: str) -> bool:
        names.append(folder.parts[-2])
        return fill(filler, folder, key)

    monkeypatch.setattr(Filler, "fill", noted)
    return names


def test_a_build_from_the_cache_is_the_cold_one(
    committed: Path, cache: Cache, cold: Mapping[str, bytes], read: list[str]
) -> None:
    site = read_site(committed, Catalog(), cache=cache)
    assert building.build(site) == cold
    assert read == []


def test_pages_are_not_made_again(
    committed: Path, cache: Cache, cold: Mapping[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    for maker in ("models._page", "runs._page", "home._page", "tasks._page", "archive._pages"):
        monkeypatch.setattr(f"crlbench.site.{maker}", lambda *_: pytest.fail("a page is made"))
    site = read_site(committed, Catalog(), cache=cache)
    slugs = {model.partition("@")[0] for model in MODELS}
    made = [one for one in building.parts(site) if callable(one)]
    keyed = [one for one in made if getattr(one, "key", "")]
    tasks = {*site.catalog.list("task")} | {*site.boards[0].board.tasks}
    assert len(keyed) == len(site.catalog.entries("model")) + len(tasks) + 3
    kept = building.KeptPages(site, cache)
    paths = {page.path for one in keyed for page in kept.files(one)}
    assert {f"models/{slug}.html" for slug in slugs} <= paths <= cold.keys()
    assert {"index.html", f"boards/{STORED.name}/ppo.html", "tasks/addition.html"} <= paths


def other_submitter(text: str) -> str:
    return text.replace('"submitter":"@', '"submitter":"@x')


CHANGES: Mapping[str, Callable[[str], str]] = {
    "submission.json": other_submitter,
    "verification.jsonl": lambda _: "",
    "plan.json": lambda text: f"{text}\n",
}


@pytest.mark.parametrize("name", first(CHANGES))
def test_a_changed_file_makes_its_entry_be_read_again(
    copied: Path, cache: Cache, read: list[str], name: str
) -> None:
    path = copied / STORED.name / MODELS[1] / "ppo" / name
    path.write_text(CHANGES[name](path.read_text()))
    site = read_site(copied, Catalog(), cache=cache)
    assert read == [MODELS[1]]
    assert building.build(site) == building.build(read_site(copied, Catalog()))


def test_a_retraction_reaches_every_entry(
    copied: Path, cache: Cache, read: list[str]
) -> None:
    (copied.parent / "retractions.jsonl").write_text("")
    read_site(copied, Catalog(), cache=cache)
    assert read == [*MODELS]


@pytest.mark.parametrize("times", [1, 9])
def test_numbers_of_files_that_change_meanwhile_have_no_key_of_before(
    copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    fill, left = Filler.fill, [times]
    path = copied / STORED.name / MODELS[1] / "ppo" / "submission.json"
    before = path.read_text()

    def changed_first(filler: Filler, folder: Path, key: str) -> bool:
        if folder == path.parent and left[0]:
            left[0] -= 1
            path.write_text(other_submitter(path.read_text()))
        return fill(filler, folder, key)

    monkeypatch.setattr(Filler, "fill", changed_first)
    cache = Cache(tmp_path / "cache")
    if times > 1:
        with pytest.raises(ValidationError, match="changes while it is read"):
            read_site(copied, Catalog(), cache=cache)
    else:
        read_site(copied, Catalog(), cache=cache)
        assert len([one for one in cache.folder.iterdir() if "-" not in one.name]) == len(MODELS)
    left[0] = 0
    path.write_text(before)
    (stored,) = read_site(copied, Catalog(), cache=cache).boards
    assert not any(name.startswith("@x") for name in stored.submitters.values())


@pytest.mark.parametrize("results", ["leaderboard/results", "leaderboard", "."])
def test_a_key_rests_on_the_retractions_that_the_census_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, results: str
) -> None:
    entry = tmp_path / "leaderboard" / "results" / "board" / "model" / "recipe"
    entry.mkdir(parents=True)
    monkeypatch.chdir(tmp_path / results)
    folder = entry.relative_to(Path.cwd())
    before = caching.key_of(folder, caching.surroundings_of([], []))
    (tmp_path / "leaderboard" / "retractions.jsonl").write_text("")
    assert caching.key_of(folder, caching.surroundings_of([], [])) != before


def test_other_code_finds_nothing(
    committed: Path, cache: Cache, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(caching, "code_digest", lambda: "of another version")
    read_site(committed, Catalog(), cache=cache)
    assert read == [*MODELS]


def test_the_code_digest_is_that_of_every_file_it_rests_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[Path] = []
    digest_files = caching.digest_files

    def noted(paths: list[Path], root: Path) -> str:
        seen.extend(paths)
        return digest_files(paths, root)

    monkeypatch.setattr(caching, "digest_files", noted)
    caching.code_digest.__wrapped__()
    names = {f"{path.parent.name}/{path.name}" for path in seen}
    assert {"stats/swaps.py", "verdict/entry.py", "pages/svg.py", "site/runs.py"} <= names
    assert {"crlbench/__init__.py", "catalog/find.py"} <= names
    assert {"contract/records.py", "disk/arrays.py", "base/wording.py"} <= names
    assert {"site/run.html.j2", "templates/report_parts.html.j2"} <= names


def test_another_address_of_the_repository_finds_nothing(
    committed: Path, cache: Cache, read: list[str]
) -> None:
    read_site(committed, Catalog(), "https://example.org/", cache=cache)
    assert read == [*MODELS]


def damage(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at : at + 200] = bytes(255 - byte for byte in content[at : at + 200])
    path.write_bytes(content)


@pytest.mark.parametrize("place", [0.001, 0.3, 0.9])
def test_a_build_from_damaged_parcels_is_the_cold_one(
    committed: Path, cache: Cache, cold: Mapping[str, bytes], place: float
) -> None:
    for path in cache.folder.iterdir():
        damage(path, int(place * path.stat().st_size))
    assert building.build(read_site(committed, Catalog(), cache=cache)) == cold


PARTS = ("head", "small", "large 0", "evidence 0 kept", "arm 0 tasks", "panels", "files")


@pytest.mark.parametrize("part", first(PARTS, 2))
def test_a_damaged_part_is_made_again_when_it_is_asked_for(
    committed: Path, cache: Cache, cold: Mapping[str, bytes], part: str
) -> None:
    """Also by a process that makes pages."""
    for path in cache.folder.iterdir():
        if "-" in path.name:
            path.unlink()  # so that every part is needed again
            continue
        content = bytes(Parcel(path).part(part))
        damage(path, path.read_bytes().rindex(content) + len(content) // 2)
        with pytest.raises(BadParcel, match="was changed"):
            Parcel(path).part(part)
    assert building.build(read_site(committed, Catalog(), cache=cache)) == cold
    for path in cache.folder.iterdir():
        Parcel(path).check()


def test_a_parcel_under_the_key_of_another_is_not_taken(
    committed: Path, cache: Cache, cold: Mapping[str, bytes], read: list[str]
) -> None:
    first, second = sorted(path for path in cache.folder.iterdir() if "-" not in path.name)
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(content)
    assert building.build(read_site(committed, Catalog(), cache=cache)) == cold
    assert read == [*MODELS]


@pytest.mark.parametrize("change", first(["no run", "[]", "{}", "no arms"]))
def test_a_sound_parcel_of_something_else_is_made_again(
    committed: Path, cache: Cache, cold: Mapping[str, bytes], read: list[str], change: str
) -> None:
    for path in [path for path in cache.folder.iterdir() if "-" not in path.name]:
        parcel = Parcel(path)
        parts = {name: bytes(parcel.part(name)) for name in parcel.names}
        head = json.loads(zstandard.decompress(parts["head"]))
        heads = {
            "no arms": head | {"arms": 7},
            "no run": head | {"runs": [{}]},
        }
        content = json.dumps(heads[change]) if change in heads else change
        write_parcel(path, parts | {"head": zstandard.compress(content.encode())})
    assert building.build(read_site(committed, Catalog(), cache=cache)) == cold
    assert read == [*MODELS]


def change_value(path: Path, part: str, way: Sequence[Any], value: Any) -> None:
    """Put another value into a part of a parcel, which stays sound."""
    parcel = Parcel(path)
    parts = {name: bytes(parcel.part(name)) for name in parcel.names}
    whole = place = json.loads(zstandard.decompress(parts[part]))
    for step in way[:-1]:
        place = place[step]
    assert place[way[-1]] != value
    place[way[-1]] = value
    write_parcel(path, parts | {part: zstandard.compress(json.dumps(whole).encode())})


VALUES: Sequence[tuple[str, Sequence[Any], Any]] = [
    ("head", ["name"], "tiny-gemma@00000000/ppo"),
    ("head", ["date"], 7),
    ("head", ["badge"], "proven by nobody"),
    ("head", ["runs", 0, "seed"], float("nan")),
    ("head", ["runs", 0, "folder"], "../../../elsewhere"),
    ("head", ["small", 0, 1], [10**6, 10**6, 10**6]),
    ("head", ["small", 0, 0], "|O"),
    ("head", ["brief", 1, 0, 1, 1, 0, 1], "<script>"),
    ("head", ["brief", 1, 1, 1], float("inf")),
    ("head", ["arms", 0, "n"], True),
    ("head", ["arms", 0, "axes", 1, 0, 1, 1], "0.9"),
    ("arm 0 tasks", [1, 1, 1], {"a": []}),
    ("arm 0 efficiency", [1], ["t"]),
    ("panels", ["failures"], 3),
    ("evidence 0 draws", [2], {}),
    ("evidence 0 transfers", [0], None),
    ("evidence 0 columns", [0, 1], ["a", -1]),
    ("evidence 0 kept", [0, 1], "<script>"),
]


@pytest.mark.parametrize(
    ("part", "way", "value"),
    [
        pytest.param(*one, marks=[pytest.mark.full] * (number % 4 > 0))
        for number, one in enumerate(VALUES)
    ],
    ids=lambda one: str(one)[:40],
)
def test_a_value_that_no_build_kept_is_computed_again(
    committed: Path,
    cache: Cache,
    cold: Mapping[str, bytes],
    part: str,
    way: Sequence[Any],
    value: Any,
) -> None:
    """Parcels with right digests of other types, of numbers that are none, of wrong shapes."""
    for path in cache.folder.iterdir():
        if "-" in path.name:
            path.unlink()  # so that every part is needed again
        else:
            change_value(path, part, way, value)
    assert building.build(read_site(committed, Catalog(), cache=cache)) == cold


@pytest.mark.parametrize("value", first(["<script>", None, 0.5, float("nan"), ["x", 1]]))
@pytest.mark.parametrize("kind", ["results-", "transfer-"])
def test_results_of_several_entries_that_no_build_kept_are_computed_again(
    committed: Path, cache: Cache, cold: Mapping[str, bytes], kind: str, value: Any
) -> None:
    for path in cache.folder.glob("pages-*"):
        path.unlink()
    (path, *_) = cache.folder.glob(f"{kind}*")
    if kind == "transfer-":
        change_value(path, "matrices", [1, 5], value)
    else:
        keys, *lines = zstandard.decompress(Parcel(path).part(PART)).decode().split("\n")
        rows = [json.loads(line) for line in lines]
        for row in rows:
            row[1] = value
        text = "\n".join([keys, *map(json.dumps, rows)])
        cache.put(path.stem, {PART: zstandard.compress(text.encode())})
    assert building.build(read_site(committed, Catalog(), cache=cache)) == cold


def test_parts_that_do_not_fit_together_are_computed_again_with_a_sentence(
    committed: Path, cache: Cache, cold: Mapping[str, bytes]
) -> None:
    """Each has its form: an array stands where another one was."""
    for path in cache.folder.iterdir():
        if "-" in path.name:
            path.unlink()
            continue
        rows = json.loads(zstandard.decompress(Parcel(path).part("evidence 0 columns")))
        change_value(path, "evidence 0 columns", [0, 1], rows[-1][1])
    said: list[str] = []
    site = read_site(committed, Catalog(), cache=cache, say=said.append)
    assert building.build(site) == cold
    (sentence,) = said
    assert f"--cache {cache.folder}" in sentence and "computed again" in sentence
    again = read_site(committed, Catalog(), cache=Cache(cache.folder), say=said.append)
    assert building.build(again) == cold and said == [sentence]


def test_an_error_of_the_build_itself_is_no_fault_of_the_cache(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> Iterator[File]:
        raise ZeroDivisionError
        yield

    monkeypatch.setattr(building, "parts", lambda _: [refuse])
    tries: list[Exception] = []
    kept = replace(site, afresh=lambda error: tries.append(error) or site)
    for one, times in ((kept, 1), (site, 1)):
        with pytest.raises(ZeroDivisionError):
            building.build(one, 1)
        assert len(tries) == times


def test_a_part_that_unpacks_to_gigabytes_is_not_taken(tmp_path: Path) -> None:
    zeros = zstandard.compress(bytes(2**24))
    window, block = bytes([0, 7 << 3]), (2**17 << 3 | 1 << 1).to_bytes(3, "little") + b"\0"
    bomb = zeros[:4] + window + block * 80_000  # ten gigabytes of zeros
    cache = Cache(tmp_path)
    cache.put("results-of-two", {PART: bomb})
    assert read_known(cache, "results-of-two").get("one", int) is None


@pytest.mark.parametrize("content", [b"[]", b"7", b"null", b"[" * 100_000])
def test_results_that_are_none_are_not_taken(tmp_path: Path, content: bytes) -> None:
    cache = Cache(tmp_path)
    cache.put("results-of-two", {PART: zstandard.compress(content)})
    known = read_known(cache, "results-of-two")
    assert known.get("one", int) is None
    known.put("one", packed_text(1))
    known.write()
    assert read_known(cache, "results-of-two").get("one", int) == 1


def test_what_no_build_used_for_long_is_removed(cache: Cache) -> None:
    old, young = cache.folder / "old.parcel", cache.folder / "young.parcel"
    other = cache.folder / "thesis.txt"
    long_ago = time.time() - (DAYS_KEPT + 1) * 86_400
    for path in (old, young, other):
        path.write_bytes(b"")
    for path in (old, other):
        os.utime(path, (long_ago, long_ago))
    cache.prune()
    assert not old.exists() and young.exists() and other.exists()


def test_what_killed_processes_left_behind_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object) -> None:
        raise OSError

    cache = Cache(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", die)
        patch.setattr(Path, "unlink", lambda *_, **__: None)
        for key in ("old", "young"):
            with pytest.raises(EnvironmentUnfit):
                cache.put(key, {"head": b"{}"})
    (old,) = tmp_path.glob(".old*")
    os.utime(old, (time.time() - 90_000,) * 2)
    cache.prune()
    assert [path.name.partition(".parcel-")[0] for path in tmp_path.iterdir()] == [".young"]


def test_one_that_cannot_be_removed_keeps_no_other(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    long_ago = (time.time() - (DAYS_KEPT + 1) * 86_400,) * 2
    cache.place("folder").mkdir()
    cache.put("file", {})
    os.utime(cache.place("folder"), long_ago)
    os.utime(cache.place("file"), (long_ago[0] - 1,) * 2)
    cache.prune()
    assert [path.stem for path in tmp_path.iterdir()] == ["folder"]


def test_the_oldest_go_where_there_are_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, now = Cache(tmp_path), int(time.time())
    for age in range(6):
        path = cache.place(f"{age}")
        path.write_bytes(bytes(100))
        os.utime(path, (now - IN_USE - 60 * age - 60,) * 2)
    monkeypatch.setattr(caching, "MOST_BYTES", 250)
    cache._began = now - IN_USE - 60 * 4
    cache.prune()
    assert sorted(path.stem for path in tmp_path.iterdir()) == ["0", "1", "2", "3"]
    cache._began = now
    cache.prune()
    assert sorted(path.stem for path in tmp_path.iterdir()) == ["0", "1"]


def test_what_another_build_uses_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for key in ("used", "unused"):
        Cache(tmp_path).put(key, {"head": b"{}"})
        os.utime(Cache(tmp_path).place(key), (time.time() - 2 * IN_USE,) * 2)
    os.utime(Cache(tmp_path).place("used"), (time.time() - IN_USE / 2,) * 2)
    monkeypatch.setattr(caching, "MOST_BYTES", 0)
    Cache(tmp_path).prune()
    assert [path.stem for path in tmp_path.iterdir()] == ["used"]


def test_a_temporary_cache_goes_with_the_site(committed: Path) -> None:
    cache = TemporaryCache()
    folder = cache.folder
    site = read_site(committed, Catalog(), cache=cache)
    assert any(folder.iterdir())
    del cache, site
    assert not folder.exists()


def test_a_cache_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentUnfit, match="--no-cache"):
        Cache(tmp_path / "file" / "cache")


def test_temporary_files_have_a_place_and_a_message_of_their_own(tmp_path: Path) -> None:
    cache = TemporaryCache(tmp_path)
    assert cache.folder.parent == tmp_path
    cache.place("key").mkdir()
    with pytest.raises(EnvironmentUnfit, match="temporary files in") as refused:
        cache.put("key", {})
    assert "--no-cache" not in str(refused.value)
    with pytest.raises(EnvironmentUnfit, match="temporary files in"):
        TemporaryCache(tmp_path / "missing")


def test_what_the_cache_of_nobody_cannot_take_goes_with_the_build(tmp_path: Path) -> None:
    said: list[str] = []
    cache = SparedCache(tmp_path / "kept", TemporaryCache(tmp_path), said.append)
    for key in ("one", "two"):
        cache.place(key).mkdir()
        cache.put(key, {"head": b"{}"})
        assert Parcel(cache.place(key)).part("head") == b"{}"
    cache.put("three", {"head": b"3"})
    assert cache.place("three").parent == tmp_path / "kept"
    (sentence,) = said
    assert "cannot be written" in sentence and "goes on" in sentence
    del cache
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


KILLED = """
import os, sys, time
from pathlib import Path
from crlbench.site import build
from crlbench.site.cache import TemporaryCache
cache = TemporaryCache(Path(sys.argv[1]).parent)
cache.put("key", {"head": b"{}"})
with build._replacing(Path(sys.argv[1])) as fresh:
    build._write(fresh, build.MARKER, b"half of the new one")
    print("half", flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("before", [True, False])
def test_a_killed_build_leaves_the_old_site_and_the_next_one_clears_what_it_left(
    tmp_path: Path, before: bool
) -> None:
    out = tmp_path / "out"
    if before:
        building.write({building.MARKER: b"old", "pages/one": b"1"}, out)
    command = [sys.executable, "-c", KILLED, str(out)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as killed:
        assert killed.stdout is not None and killed.stdout.readline() == b"half\n"
        living = {path for path in tmp_path.iterdir() if path != out}
        building.write({building.MARKER: b"beside it"}, tmp_path / "other")
        assert len(living) == 2 and all(path.exists() for path in living)
        killed.kill()
    assert out.exists() is before
    if before:
        assert (out / building.MARKER).read_bytes() == b"old"
    building.write({building.MARKER: b"new"}, out)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "out"]
    assert (out / building.MARKER).read_bytes() == b"new"


def test_a_site_that_a_killed_build_had_set_aside_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a system cannot exchange two folders, a build may die between two renames."""
    out = tmp_path / "out"
    building.write({building.MARKER: b"old"}, out)
    code = KILLED.replace("print(", "os.replace(sys.argv[1], fresh.parent / build.OLD); print(")
    with subprocess.Popen([sys.executable, "-c", code, str(out)], stdout=subprocess.PIPE) as killed:
        assert killed.stdout is not None and killed.stdout.readline() == b"half\n"
        killed.kill()
    assert not out.exists()
    with pytest.raises(EnvironmentUnfit), building._replacing(out):
        assert (out / building.MARKER).read_bytes() == b"old"
        raise OSError
    assert (out / building.MARKER).read_bytes() == b"old"
    monkeypatch.setattr(building, "_exchange", lambda *_: False)
    building.write({building.MARKER: b"new"}, out)
    assert (out / building.MARKER).read_bytes() == b"new"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


# -- the command ---------------------------------------------------------------------------


def test_the_command_keeps_below_the_home(
    committed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    build = ["leaderboard", "build", "--results", str(committed), "--home", str(tmp_path / "home")]
    assert cli.main([*build, "--out", str(tmp_path / "cold"), "--no-cache"]) == 0
    assert not (tmp_path / "home" / "site").exists()
    assert cli.main([*build, "--out", str(tmp_path / "kept")]) == 0
    assert any((tmp_path / "home" / "site").iterdir())
    assert cli.main([*build, "--out", str(tmp_path / "cold"), "--check"]) == 0
    capsys.readouterr()


@pytest.mark.parametrize("named", [False, True])
def test_a_place_that_is_taken_fails_where_someone_named_the_cache(
    committed: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    named: bool,
) -> None:
    def full(path: Path, parts: object) -> None:
        if (home / "site") in path.parents:
            raise OSError(errno.ENOSPC, "No space left on device")
        write_parcel(path, parts)  # type: ignore[arg-type]

    home = tmp_path / "home"
    monkeypatch.setattr(caching, "write_parcel", full)
    build = ["leaderboard", "build", "--results", str(committed), "--home", str(home)]
    build += ["--out", str(tmp_path / "out")]
    kept = ["--cache", str(home / "site")] if named else []
    assert cli.main([*build, *kept]) == (EnvironmentUnfit("").exit_code if named else 0)
    err = capsys.readouterr().err
    assert err.count("No space left on device") == 1
    assert {path.name for path in tmp_path.iterdir()} == ({"home"} if named else {"home", "out"})


def test_a_place_and_no_place_contradict_each_other(
    committed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    build = ["leaderboard", "build", "--results", str(committed), "--out", str(tmp_path / "out")]
    assert cli.main([*build, "--cache", str(tmp_path), "--no-cache"]) == 2
    assert "Give one of the two" in capsys.readouterr().err


@pytest.mark.parametrize("action", [[], ["--check"]])
@pytest.mark.parametrize("place", ["out", "out/kept", ".", "results", "results/kept", "link/kept"])
def test_a_cache_in_the_site_or_the_results_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], place: str, action: list[str]
) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "link").symlink_to("out")
    build = ["leaderboard", "build", "--results", str(tmp_path / "results"), *action]
    build += ["--out", str(tmp_path / "out"), "--cache", str(tmp_path / place)]
    assert cli.main(build) == 2
    assert "apart from both" in capsys.readouterr().err
    assert {path.name for path in tmp_path.rglob("*")} == {"results", "link"}


def test_a_site_in_the_cache_of_the_home_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "results").mkdir()
    build = ["leaderboard", "build", "--results", str(tmp_path / "results")]
    build += ["--home", str(tmp_path), "--out", str(tmp_path / "site" / "here")]
    assert cli.main(build) == 2
    assert "apart from both" in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == {"results"}


# -- writing -------------------------------------------------------------------------------


def test_pages_are_written_as_they_are_made(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory holds one page, whatever their number."""
    size, count = 2**20, 60

    def page(number: int) -> Iterator[File]:
        if not (tmp_path / "out").exists():
            assert len([path for path in tmp_path.rglob("data-*") if path.is_file()]) == number
        yield File(f"data/data-{number:02d}", bytes([number]) * size)

    made: list[Made] = [lambda number=number: page(number) for number in range(count)]
    monkeypatch.setattr(building, "parts", lambda _: made)
    seen: list[tuple[int, int]] = []
    tracemalloc.start()
    try:
        paths = building.publish(site, tmp_path / "out", 1, lambda *step: seen.append(step))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert sum(path.startswith("data/") for path in paths) == count
    assert peak < 20 * size
    assert seen == [(number, count) for number in range(1, count + 1)]
    assert building.compare(site, tmp_path / "out", 1) == []
    assert (tmp_path / "out" / "data" / "data-07").read_bytes() == b"\7" * size


def test_a_page_that_cannot_be_made_leaves_the_old_site(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    building.write({building.MARKER: b"old"}, tmp_path / "out")

    def refuse() -> Iterator[File]:
        yield File("data/one", b"1")
        raise EnvironmentUnfit("no more")

    monkeypatch.setattr(building, "parts", lambda _: [refuse])
    with pytest.raises(EnvironmentUnfit, match="no more"):
        building.publish(site, tmp_path / "out", 1)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert (tmp_path / "out" / building.MARKER).read_bytes() == b"old"


def test_the_footer_takes_the_totals_and_nothing_else_does() -> None:
    page = Kept("runs/one.html", b"a text with \0totals\0, then <p>\0totals\0; built</p>")
    assert page.finished(b"3 runs") == b"a text with \0totals\0, then <p>3 runs; built</p>"
    assert Kept("data/one.js", b"no footer").finished(b"3 runs") == b"no footer"
