"""``crlbench show task T --render MODEL``: the exact token ids that a model sees."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from crlbench import cli
from crlbench.catalog.find import Catalog
from crlbench.policy.weights.load import Reader
from crlbench.run.subject import load_subject, prompts_of
from tests.support.checkpoints import CHAT_TEMPLATE, write_checkpoint


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert cli.main(["show", "task", *arguments]) == 0
    return capsys.readouterr().out


def test_the_ids_are_those_that_a_run_feeds_the_model(capsys: pytest.CaptureFixture[str]) -> None:
    out = shown(capsys, "list-ops", "--render", "tiny-llama", "--prompts", "2", "--json")
    found = json.loads(out)["prompts"]
    task = Catalog().load_task("list-ops")
    reader: Reader = load_subject("tiny-llama", ()).reader
    assert set(found) == set(task.card.splits)
    for split, rows in found.items():
        assert [row["ids"] for row in rows] == [
            list(prompt.ids) for prompt in prompts_of(task, split, reader, 8, 2)
        ]
        for row in rows:
            assert "".join(token["text"] for token in row["tokens"]) == row["text"]
            assert row["tokens"][0] == {"id": row["ids"][0], "text": "<bos>", "special": True}
            assert row["frame"] == "terse"


def test_the_text_shows_special_tokens_and_one_prompt_of_each_split(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = shown(capsys, "addition", "--render", "tiny-qwen2")
    assert text.count("<bos>") == 5 == text.count("frame terse")
    row = Catalog().load_task("addition").rows("id")[0]
    block = text[text.index("id-00000") :].partition("\n\n")[0].splitlines()[2:]
    assert "".join(line.split("'")[1] for line in block) == (row["messages"][-1]["content"] + "\\n")


def test_a_chat_frame_shows_every_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_checkpoint(tmp_path / "chatty", chat_template=CHAT_TEMPLATE)
    text = shown(capsys, "addition", "--render", str(folder), "--json")
    row = json.loads(text)["prompts"]["id"][0]
    assert row["frame"] == "chat" and "[system]Add the two numbers" in row["text"]
    assert row["text"].endswith("[assistant]")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["task", "addition", "--render", "tiny-lama"], 2, "Did you mean tiny-llama"),
        (["task", "units", "--render", "smollm2-135m-instruct"], 6, "crlbench fetch smollm2"),
        (["model", "tiny-llama", "--render", "tiny-llama"], 2, "--render belongs to tasks"),
        (["task", "addition", "--prompts", "-1"], 2, "must not be negative"),
    ],
)
def test_what_cannot_be_shown_is_explained(
    arguments: list[str],
    code: int,
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["show", *arguments, "--home", str(tmp_path)]) == code
    assert said in capsys.readouterr().err
