"""``crlbench show task NAME --play``: an episode in the terminal, by hand or with a model."""

from __future__ import annotations

import builtins
import json
from collections.abc import Iterator

import pytest

from crlbench import cli
from crlbench.catalog.find import Catalog
from crlbench.reward.env import read_start


def typed(monkeypatch: pytest.MonkeyPatch, lines: list[str]) -> None:
    waiting: Iterator[str] = iter(lines)

    def ask(prompt: str = "") -> str:
        try:
            return next(waiting)
        except StopIteration:
            raise EOFError from None

    monkeypatch.setattr(builtins, "input", ask)


def test_an_episode_is_played_by_hand(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    row = Catalog().load_task("relay-sum").rows("id")[1]
    state = json.loads(read_start(row["answer"]).state)
    total, terms = state["last"], state["terms"]
    replies = [str(total := total + term) for term in terms]
    typed(monkeypatch, replies)
    assert cli.main(["show", "task", "relay-sum", "--play", "--item", "id-00001"]) == 0
    text = capsys.readouterr().out
    assert text.count("turn ") == len(terms) and text.endswith("over; score 1\n")
    assert f"user: {row['messages'][-1]['content']}\n" in text
    assert text.count(f"paid {1 / len(terms):g}") == len(terms)
    typed(monkeypatch, ["no"])
    assert cli.main(["show", "task", "relay-sum", "--play"]) == 0
    assert "  fault: no number\nover; score 0\n" in capsys.readouterr().out


def test_a_model_plays(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["show", "task", "relay-sum", "--play", "--model", "tiny-llama"]
    assert cli.main([*arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["task"], found["item"]) == ("relay-sum", "id-00000") and found["turns"]
    assert cli.main(arguments) == 0
    text = capsys.readouterr().out
    for turn in found["turns"]:
        assert f"  user: {turn['observation'][-1]['content']}\n" in text
        said = turn["said"] if isinstance(turn["said"], str) else turn["said"]["text"]
        assert f"  says: {said!r}\n" in text
    assert text.endswith(f"over; score {found['scores'][0]:g}\n")
    drawn = set()
    for draw in range(4):
        assert cli.main([*arguments, "--json", "--draw", str(draw)]) == 0
        drawn.add(capsys.readouterr().out)
    assert len(drawn) > 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["addition", "--play"], "task 'addition' is answered once"),
        (["guess", "--play", "--item", "id-99999"], "has id-00000 to id-00511"),
        (["guess", "--play", "--item", "eval-00001"], "eval"),
        (["guess", "--model", "tiny-llama"], "add --play"),
        (["guess", "--play"], "the input ended before turn 0"),
    ],
)
def test_what_cannot_be_played_is_said(
    arguments: list[str],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    typed(monkeypatch, [])
    assert cli.main(["show", "task", *arguments]) == 2
    assert words in capsys.readouterr().err
