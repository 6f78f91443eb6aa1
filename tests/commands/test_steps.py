"""The bar of work in steps: on a terminal alone, and silenced as everything else is."""

from __future__ import annotations

import io
import sys
from argparse import Namespace

import pytest

from crlbench.commands.steps import Steps


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def options(**given: bool) -> Namespace:
    return Namespace(**{"quiet": False, "no_progress": False, "no_color": True, **given})


def shown(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, **given: bool) -> str:
    monkeypatch.setattr(sys, "stderr", stream)
    with Steps(options(**given)) as steps:
        for done in range(3):
            steps.show("reading entries", done + 1, 3)
        steps.show("making pages", 1, 40)
    return stream.getvalue()


def test_a_terminal_sees_what_is_done_and_how_much_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    said = shown(monkeypatch, Terminal())
    for words in ("reading entries", "3/3", "making pages", "1/40"):
        assert words in said


@pytest.mark.parametrize("flag", ["quiet", "no_progress"])
def test_a_flag_silences_it(monkeypatch: pytest.MonkeyPatch, flag: str) -> None:
    assert shown(monkeypatch, Terminal(), **{flag: True}) == ""


def test_a_pipe_sees_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(monkeypatch, io.StringIO()) == ""
