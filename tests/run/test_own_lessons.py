"""A person's own lines as lessons: what a model cannot read is refused by its line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from crlbench.errors import EnvironmentUnfit, ValidationError
from crlbench.run.lessons import as_answer
from crlbench.run.own_lessons import copy_of, fit_lessons, keep_copy, read_copy
from crlbench.suite.own_answers import read_own
from tests.run.test_lessons import reader_of
from tests.support.own_files import demonstrations, pairs, write


def test_lines_become_the_lessons_of_frozen_answers(tmp_path: Path) -> None:
    reader = reader_of("ascii")
    read = fit_lessons(read_own(write(tmp_path / "own.jsonl", pairs(64))), reader)
    assert [lesson.uid for lesson in read.lessons] == [f"line {n}" for n in range(1, 65)]
    first, line = read.lessons[0], pairs(1)[0]
    assert first.answers[0] == as_answer(line["chosen"], reader, "x")
    assert first.answers[1] == as_answer(line["rejected"], reader, "x")
    assert first.preferred == 0 and read.left_out == 0


def test_an_answer_with_a_control_token_is_refused_by_its_line(tmp_path: Path) -> None:
    lines = [*demonstrations(3), {"prompt": "1+1=", "completion": "2<eos>"}]
    own = read_own(write(tmp_path / "own.jsonl", lines))
    with pytest.raises(ValidationError, match="  line 4: the answer '2<eos>' holds the control"):
        fit_lessons(own, reader_of("ascii"))


def test_a_long_answer_is_left_out_and_a_long_prompt_refused(tmp_path: Path) -> None:
    lines = [*demonstrations(3), {"prompt": "1+1=", "completion": "2" * 50}]
    own = read_own(write(tmp_path / "own.jsonl", lines))
    whole = reader_of("ascii")
    longest = max(len(lesson.ids) for lesson in fit_lessons(own, whole).lessons)
    read = fit_lessons(own, replace(whole, context=longest + 20))
    assert (len(read.lessons), read.left_out) == (3, 1)
    with pytest.raises(ValidationError, match=f"has {longest} tokens, .* context is {longest}. A"):
        fit_lessons(own, replace(whole, context=longest))


def test_a_copy_is_read_by_its_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRLBENCH_HOME", str(tmp_path / "home"))
    own, reader = read_own(write(tmp_path / "own.jsonl", demonstrations(3))), reader_of("ascii")
    place = copy_of(own.sha256)
    with pytest.raises(EnvironmentUnfit, match=f"{own.sha256} is not on this machine. Put it at"):
        read_copy(str(place), own.sha256, reader)
    assert keep_copy(own) == place
    assert len(read_copy(str(place), own.sha256, reader).lessons) == 3
    write(place, demonstrations(2))
    read_copy.cache_clear()
    with pytest.raises(ValidationError, match=f"it was {own.sha256} when the command read it"):
        read_copy(str(place), own.sha256, reader)
    place.unlink()
    write(own.path, demonstrations(2))
    with pytest.raises(ValidationError, match="Start the command again"):
        keep_copy(own)
    assert not place.exists()
