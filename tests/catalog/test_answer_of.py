"""The canonical form of a completion: the task's own, or its last line squeezed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from crlbench.catalog.find import Catalog
from crlbench.catalog.frozen import Task
from crlbench.confine.task import ConfinedTask
from crlbench.errors import ValidationError
from crlbench.suite.gauntlet.verdicts import check_total
from tests.support.confined import frozen_again

TEXTS = ["41", "so\n  it is   41 \n\n", "", " \n", "It is 7,\nno: 8.", "a\u2028b", "\ud800"]
HOOK = '\n\ndef answer_of(text: str) -> str:\n    return "".join(c for c in text if c.isdigit())\n'


def with_code(root: Path, more: str) -> Path:
    folder = root / "tasks" / "addition"
    shutil.copytree(Catalog().find("task", "addition").path, folder)
    path = folder / "task.py"
    path.write_text(path.read_text() + more)
    frozen_again(folder)
    return folder


def test_without_a_hook_it_is_the_last_line_squeezed() -> None:
    task = Catalog().load_task("addition")
    assert task.answers_of(TEXTS)[:5] == ["41", "it is 41", "", "", "no: 8."]


def test_a_task_says_its_own_form(tmp_path: Path) -> None:
    task = Task(with_code(tmp_path, HOOK))
    assert task.answers_of(TEXTS) == ["41", "41", "", "", "78", "", ""]


@pytest.mark.parametrize("more", ["", HOOK])
def test_a_confined_task_says_the_same(tmp_path: Path, more: str) -> None:
    folder = with_code(tmp_path, more)
    texts = [*TEXTS[:-1], *(str(i) for i in range(600))]
    with ConfinedTask(folder) as task:
        assert task.answers_of(texts) == Task(folder).answers_of(texts)


def test_a_form_that_is_no_text_is_refused(tmp_path: Path) -> None:
    folder = with_code(tmp_path, "\n\ndef answer_of(text):\n    return len(text)\n")
    with pytest.raises(ValidationError, match="answer_of returns int"):
        Task(folder).answers_of(["41"])
    with ConfinedTask(folder) as task, pytest.raises(Exception, match="no text"):
        task.answers_of(["41"])


def test_a_form_that_fails_names_the_task_and_the_text(tmp_path: Path) -> None:
    folder = with_code(tmp_path, "\n\ndef answer_of(text):\n    return str(int(text))\n")
    said = r"task '.*': answer_of\('four'\) fails: ValueError: invalid literal"
    with pytest.raises(ValidationError, match=said):
        Task(folder).answers_of(["4", "four"])


COUNTER = """

CALLS = []


def answer_of(text):
    CALLS.append(text)
    return str(len(CALLS))
"""


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (HOOK, ""),
        ("\n\ndef answer_of(text):\n    return text[5]\n", "fails: IndexError"),
        ("\n\ndef answer_of(text):\n    return None\n", "answer_of returns NoneType"),
        (COUNTER, "and then"),
    ],
)
def test_the_gauntlet_tries_the_form_on_any_text(tmp_path: Path, code: str, said: str) -> None:
    problems = check_total(Task(with_code(tmp_path, code)), "quick").problems
    assert (said in problems[0]) if said else problems == []
