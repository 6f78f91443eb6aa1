"""The retain panel: frozen, verified, and measured the same way twice."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from crlbench import cli
from crlbench.catalog.retain_panel import MAX_PASSAGE_BYTES, MEMBERS, find_panel, load_panel
from crlbench.errors import ValidationError
from crlbench.policy.policy import Policy
from crlbench.policy.weights.load import Reader
from crlbench.reward import retain as verifiers
from crlbench.run.ends import Examiner, _prompt, document_start
from crlbench.suite.retain_panel import freeze, generate
from crlbench.train import evaluation
from crlbench.train.evaluation import passage_scores
from tests.support.checkpoints import CHAT_TEMPLATE, ascii_tokenizer, random_model
from tests.train.loop import conditions

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "leaderboard" / "retain"
PANEL = load_panel(FOLDER)
SHORT_TEXTS = ("", " ", "\n", "\x00", "\ud800", "９", "*", "null", "[]")
HOSTILE = (*SHORT_TEXTS, "{" * 3000, "1" * 5000, "a " * 500)


def reader(frame: str = "terse", context: int = 256) -> Reader:
    tokenizer = ascii_tokenizer(CHAT_TEMPLATE if frame == "chat" else None)
    return Reader(tokenizer, frame, (130,), 128, context)


def retain(policy, members, reader, c):
    return Examiner(reader, c, "cpu", members).retain(policy)


@pytest.fixture(scope="module")
def policy() -> Policy:
    return Policy(random_model(), value_head=False)


def test_the_frozen_files_are_what_the_code_makes():
    assert cli.main(["freeze", "--retain", "--check"]) == 0
    assert tuple(PANEL.members) == MEMBERS
    counts = {name: member.card.count for name, member in PANEL.members.items()}
    assert counts == {"follow": 64, "qa": 64, "copy": 64, "arithmetic": 64, "text": 36}
    assert generate("copy") == generate("copy")


def test_all_that_decides_a_members_score_enters_the_fingerprint():
    content = PANEL.content(["copy"])["copy"]
    card = PANEL.members["copy"].card
    assert card.max_completion_bytes is not None
    decides = {"sha256", "floor", "ceiling", "max_completion_bytes"}
    assert content == card.model_dump(include=decides)


def test_a_changed_file_is_named(tmp_path):
    shutil.copytree(FOLDER, tmp_path / "retain")
    path = tmp_path / "retain" / "copy.jsonl"
    path.write_text(path.read_text().replace("spoon", "knife"))
    with pytest.raises(ValidationError, match=r"copy\.jsonl: the file was changed"):
        load_panel(tmp_path / "retain")
    with pytest.raises(ValidationError, match=r"copy\.jsonl: is not what the code makes"):
        freeze(tmp_path / "retain", check=True)
    freeze(tmp_path / "retain")
    assert load_panel(tmp_path / "retain").card == PANEL.card


def test_a_bad_line_is_named_by_file_line_and_field(tmp_path):
    shutil.copytree(FOLDER, tmp_path / "retain")
    path = tmp_path / "retain" / "qa.jsonl"
    lines = path.read_text().splitlines()
    for bad, words in (
        ("{", r"qa\.jsonl:3: not valid JSON"),
        (json.dumps(json.loads(lines[2]) | {"gold": ""}), r"qa\.jsonl:3: field gold"),
        (lines[1], r"qa\.jsonl:3: field id: 'qa-01' is already used"),
        (json.dumps(json.loads(lines[2]) | {"gold": "Rome"}), "rejects its gold"),
    ):
        path.write_text("\n".join([*lines[:2], bad, *lines[3:]]) + "\n")
        with pytest.raises(ValidationError, match=words):
            freeze(tmp_path / "retain")


def test_a_root_without_a_panel_is_passed_over(tmp_path):
    assert find_panel([tmp_path, ROOT]).card == PANEL.card
    with pytest.raises(ValidationError, match="no retain panel"):
        find_panel([tmp_path])


@pytest.mark.parametrize("name", verifiers.VERIFIERS)
def test_verifiers_take_the_gold_and_little_else(name):
    member = PANEL.members[name]
    for item in member.items:
        assert member.verify(item.gold, item.answer) == 1.0, item
        assert member.verify(item.prompt, item.answer) == 0.0, item
        assert all(member.verify(text, item.answer) == 0.0 for text in HOSTILE), item
    assert member.card.floor == max(member.card.nulls.model_dump().values()) < 0.1


@pytest.mark.parametrize(
    ("member", "text", "answer", "paid"),
    [
        ("arithmetic", " 17\n3 + 4 = 7", "17", 1),
        ("arithmetic", "17.", "17", 1),
        ("arithmetic", "170", "17", 0),
        ("arithmetic", "17.5", "17", 0),
        ("arithmetic", "17,000", "17", 0),
        ("arithmetic", "017", "17", 0),
        ("arithmetic", "x 17", "17", 0),
        ("copy", "\n  The Lamp and door. \nmore", "The Lamp and door.", 1),
        ("copy", "the lamp and door.", "The Lamp and door.", 0),
        ("qa", "The capital is PARIS!", "Paris", 1),
        ("qa", "Parisian", "Paris", 0),
        ("qa", "it is twenty-four", "twenty-four|24", 1),
        ("qa", " ".join(["Rome Oslo Cairo Paris"] * 4), "Paris", 0),
        ("follow", "Rain falls softly", '[["keyword", "rain"], ["most-words", 3]]', 1),
        ("follow", "Rain falls very softly", '[["keyword", "rain"], ["most-words", 3]]', 0),
        ("follow", "Trains run fast", '[["keyword", "rain"]]', 0),
        ("follow", "a rain b\n\nc d e", '[["keyword", "rain"], ["lines", 2]]', 1),
        ("follow", "* rain is wet\n- and cold", '[["keyword", "rain"], ["bullets", 2]]', 0),
        ("follow", "rain is wet. The end. ", '[["ends", "The end."]]', 1),
        ("follow", '{"title": "rain falls", "year": 1}', '[["json", ["title", "year"]]]', 1),
        ("follow", '{"title": "rain falls here"}', '[["json", ["title", "year"]]]', 0),
        ("follow", "RAIN IS WET", '[["case", "upper"]]', 1),
        ("follow", "Rain is wet", '[["case", "lower"]]', 0),
    ],
)
def test_verifiers_by_hand(member, text, answer, paid):
    assert verifiers.VERIFIERS[member](text, answer) == paid


def test_passages_fit_the_bundled_models_and_are_told_once():
    passages = PANEL.members["text"].passages
    assert 6000 < sum(map(len, passages)) < 8000
    assert max(len(p.encode()) for p in passages) <= MAX_PASSAGE_BYTES
    assert len(set(passages)) == len(passages) and all(p.isascii() for p in passages)


def test_the_loss_of_a_passage_is_that_of_all_its_bytes(policy):
    passage = "Bread begins with flour."
    ids = torch.tensor([[129, *passage.encode()]])
    with torch.no_grad():
        logits = policy.backbone(input_ids=ids).logits.double()
    logprobs = torch.log_softmax(logits[0, :-1], -1).gather(1, ids[0, 1:, None])
    bits = -float(logprobs.sum()) / math.log(2) / len(passage)
    policy.train()
    found = passage_scores(policy, ascii_tokenizer(), 129, 256, [passage, "other"])
    assert policy.training and found.shape == (1, 2) and found.dtype == np.float32
    assert found[0, 0] == pytest.approx(2**-bits, rel=1e-4)


def test_bytes_and_not_tokens_are_counted(policy):
    """The same token stands for three bytes: a third of the bits per byte, so u to the 1/3."""

    class Wide:
        def __init__(self, ids):
            self.ids = ids

        def __call__(self, text, add_special_tokens):
            return {"input_ids": self.ids}

    one = passage_scores(policy, Wide([97]), 129, 256, ["a"])[0, 0]
    three = passage_scores(policy, Wide([97]), 129, 256, ["abc"])[0, 0]
    assert three == pytest.approx(one ** (1 / 3), rel=1e-5)


def test_nothing_is_cut(policy):
    with pytest.raises(ValidationError, match="a passage of the retain panel has 10 tokens"):
        passage_scores(policy, ascii_tokenizer(), 129, 10, ["0123456789"])
    with pytest.raises(ValidationError, match="leave 'copy' out by --set evaluation.retain"):
        retain(policy, [PANEL.members["copy"]], reader(context=40), conditions())


def test_a_loss_beyond_all_bounds_scores_nothing(policy):
    class Broken(Policy):
        def forward(self, *inputs):
            bad = torch.tensor([[-math.inf], [math.nan]]).expand(2, 3)
            return super().forward(*inputs)._replace(logprobs=bad)

    broken = Broken(random_model(), value_head=False)
    found = passage_scores(broken, ascii_tokenizer(), 129, 256, ["abc", "abc"])
    assert found.tolist() == [[0.0, 0.0]]


def test_how_many_passages_are_scored_at_once_changes_nothing(policy, monkeypatch):
    passages = PANEL.members["text"].passages[:7]
    together = passage_scores(policy, ascii_tokenizer(), 129, 256, passages)
    monkeypatch.setattr(evaluation, "PASSAGE_FLOATS", 1)
    assert passage_scores(policy, ascii_tokenizer(), 129, 256, passages) == pytest.approx(
        together, rel=1e-4
    )


def test_sums_stand_alone_and_the_rest_in_the_models_frame():
    sums, copies = PANEL.members["arithmetic"], PANEL.members["copy"]
    item = sums.items[1]
    for frame in ("terse", "plain", "chat"):
        assert _prompt(sums, item, reader(frame), 4).ids == (129, *item.prompt.encode())
    assert item.prompt == "83 + 6 ="
    text = bytes(_prompt(copies, copies.items[0], reader("chat"), 4).ids).decode()
    assert text.startswith("[user]Repeat the following text exactly") and "[assistant]" in text


def test_documents_of_a_model_without_a_start_begin_after_an_end():
    own = reader()
    assert document_start(own) == 129
    own.tokenizer.bos_token = None
    assert document_start(own) == 130


def test_a_policy_that_did_not_change_scores_the_same(policy):
    chosen = PANEL.choose(["copy", "arithmetic", "text"])
    c = conditions(evaluation__retain_items="5")
    one = retain(policy, chosen, reader(), c)
    two = retain(policy, chosen, reader(), c)
    assert set(one) == {"retain/copy", "retain/arithmetic", "retain/text"}
    for name, scores in one.items():
        assert scores.shape == (1, 5) and np.array_equal(scores, two[name])
    assert (one["retain/text"] > 0).all() and (one["retain/text"] < 1).all()
