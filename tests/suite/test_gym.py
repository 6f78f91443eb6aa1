"""Generators of reasoning-gym as frozen tasks: own seeds, pinned scorer, holes reported."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from crlbench import cli
from crlbench.catalog.frozen import Task
from crlbench.errors import EnvironmentUnfit, UsageError, ValidationError
from crlbench.reward import forked
from crlbench.reward import gym as adapter
from crlbench.suite import reasoning_gym

ROOT = Path(__file__).parents[2]
GENERATORS = (
    "chain_sum", "countdown", "graph_color", "knights_knaves", "leg_counting",
    "propositional_logic", "simple_equations", "spell_backward", "word_sorting",
)  # fmt: skip


def row(generator: str, template: int = 0, seed: int = 3) -> dict:
    return adapter.item(generator, {}, 1, template, random.Random(seed))


QUICK = ("chain_sum", "countdown")
"""Generators of every quick run: starting a server takes seconds."""
TRIED = [pytest.param(n, marks=() if n in QUICK else (pytest.mark.slow,)) for n in GENERATORS]


@pytest.mark.slow
@pytest.mark.parametrize("generator", TRIED)
def test_gold_is_paid_in_every_format(generator: str) -> None:
    for template in range(6):
        answer = row(generator, template)["answer"]
        gold = adapter.gold(answer)
        assert adapter.paid(gold, answer) == 1.0
        assert adapter.strict(gold, answer) == 1.0
        assert adapter.paid("", answer) == adapter.strict("", answer) == 0.0
        assert adapter.paid("I do not know.", answer) == 0.0


@pytest.mark.slow
def test_a_part_is_not_paid() -> None:
    """The library gives a part for the right answer among words; a frozen task pays nothing."""
    entry = adapter.entry_of("chain_sum", {}, 5)
    said = f"either {entry['gold']} or 7"
    assert 0.0 < adapter.original_score("chain_sum", entry, said) < 1.0
    answer = adapter.row_of("chain_sum", entry, 1, 0)["answer"]
    assert adapter.paid(f"<answer>{said}</answer>", answer) == 0.0
    assert adapter.paid(f"<answer>{entry['gold']}</answer>", answer) == 1.0


@pytest.mark.slow
def test_other_right_answers_are_paid() -> None:
    found = row("countdown", 0, 1)
    stated = json.loads(found["answer"])
    assert adapter.paid(f"<answer>({stated['gold']})</answer>", found["answer"]) == 1.0


def test_only_the_asked_place_is_read() -> None:
    assert adapter.final("<answer>1</answer> <answer>2</answer>", "tags") == "2"
    assert adapter.final("<answer>1 <answer>2</answer>", "tags") == "2"
    assert adapter.final("2", "tags") == ""
    assert adapter.final("FINAL ANSWER: 1\nFINAL ANSWER: 2\n", "mark") == "2"
    assert adapter.final("text\n```\na\nb\n```\n", "fence") == "a\nb"
    assert adapter.final('so\n{"answer": "2"}', "json") == "2"
    assert adapter.final('{"answer": 2}', "json") == adapter.final("[" * 9000, "json") == ""


def test_the_same_words_in_every_template() -> None:
    rows = [row("chain_sum", template) for template in range(6)]
    assert len({r["key"] for r in rows}) == 1
    assert len({r["messages"][0]["content"] for r in rows}) == 6
    assert len({json.loads(r["answer"])["gold"] for r in rows}) == 1


HOSTILE = [
    "__import__('os').system('touch MADE')", "exec('open(\"MADE\", \"w\")')",
    "\uff45xec('open(\"MADE\", \"w\")')", "open('MADE', 'w')", "eval ('open(\"MADE\", \"w\")')",
    "9**9**9**9**9", "(" * 4000, "x" * 5000, "[].__class__",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("text", HOSTILE)
def test_a_text_cannot_run_code_or_hang(text: str, tmp_path: Path) -> None:
    """Countdown's scorer evaluates what it is given."""
    made = tmp_path / "made"
    entry = adapter.entry_of("countdown", {}, 5)
    assert adapter.original_score("countdown", entry, text.replace("MADE", str(made))) < 0.1
    assert adapter.original_score("countdown", entry, entry["gold"]) == 1.0
    assert not made.exists()


UNCHECKED = """
import json, os, sys
entry, texts = json.load(sys.stdin)
from crlbench.reward import forked, gym
gym.prepare("countdown")
gym._plain_only = False
forked._confine()
said = [json.loads(forked._in_fork(gym.answer, ["score", entry, text])) for text in texts]
print(json.dumps([score or 0.0 for score in said]))
"""


@pytest.mark.slow
def test_a_text_that_nothing_refuses_cannot_run_code_or_hang(tmp_path: Path) -> None:
    """As above, with the sandbox alone between a text and the machine."""
    texts = [text.replace("MADE", str(tmp_path / f"made-{n}")) for n, text in enumerate(HOSTILE)]
    entry = adapter.entry_of("countdown", {}, 5)
    done = subprocess.run(
        [sys.executable, "-c", UNCHECKED], input=json.dumps([entry, texts]), cwd=ROOT, text=True,
        capture_output=True, check=True,
    )  # fmt: skip
    scores = json.loads(done.stdout)
    assert len(scores) == len(HOSTILE) and max(scores) < 0.1
    assert not list(tmp_path.iterdir())


PROGRAMS = [
    ("countdown", "({product})*len('')+len('{target}')"), ("countdown", "({product})*(I-I){ones}"),
    ("countdown", "({product})*(()==(1,)){truths}"), ("countdown", "({product})*(E-E){ratios}"),
    ("simple_integration", "integrate({integrand}, {variable})"),
    ("simple_integration", "integrate ({integrand}, {variable})"),
    ("simple_integration", "(integrate)({integrand}, {variable})"),
    ("simple_integration", "({integrand}).integrate({variable})"),
    ("polynomial_multiplication", "expand({question})"),
    ("polynomial_multiplication", "({question}).expand()"),
    ("polynomial_multiplication", "simplify({question})"),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("generator", "program"), PROGRAMS)
def test_a_text_that_lets_the_scorer_compute_is_not_paid(generator: str, program: str) -> None:
    entry = adapter.entry_of(generator, {}, 5)
    about = entry["metadata"]
    fields = {"integrand": about.get("integrand"), "variable": about.get("variable")}
    fields["question"] = re.sub(r"^[^(]*", "", entry["question"].splitlines()[0]).strip()
    if generator == "countdown":
        target = int(about["target"])
        fields["product"] = "*".join(map(str, about["numbers"]))
        fields["target"] = "x" * target
        fields["ones"] = "-I*I" * target
        fields["ratios"] = "+E/E" * target
        fields["truths"] = "+(()==())" * target
    assert adapter.original_score(generator, entry, program.format(**fields)) < 0.1
    assert adapter.original_score(generator, entry, entry["gold"]) == 1.0


def test_what_is_plain() -> None:
    entry = {"question": "Sort: 1 2. Use sin.", "answer": "1 2", "metadata": {}}
    assert adapter.plain("2 1 + sin(3)", entry) and not adapter.plain("cos(3)", entry)
    for text in ("[1, 2]", "['1', \"2\"]", '["a b"]'):
        assert adapter.plain(text, entry, lists=True) and not adapter.plain(text, entry)
    for text in ("[x for x in 'a']", "''.join(['1'])", "'a'==''", "'\\'", "[1].pop()"):
        assert not adapter.plain(text, entry, lists=True), text


EVALUATED = (
    "binary_matrix", "intermediate_integration", "n_queens", "number_sorting",
    "polynomial_multiplication", "puzzle24", "simple_integration", "spiral_matrix",
    "string_insertion",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    "generator",
    [*EVALUATED[:3], *(pytest.param(name, marks=pytest.mark.full) for name in EVALUATED[3:])],
)
def test_right_answers_pass_the_check_of_evaluated_texts(generator: str) -> None:
    entries = [adapter.entry_of(generator, {}, seed) for seed in range(12)]
    stated = [entry for entry in entries if entry["gold"] is not None]
    assert len(stated) > 6
    for entry in stated:
        assert adapter.original_score(generator, entry, entry["gold"]) == 1.0


def test_a_draw_that_takes_too_long_is_not_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another item in its place would depend on the speed of the machine."""
    asked = []
    monkeypatch.setattr(adapter, "_ask", lambda *question: asked.append(question))
    with pytest.raises(EnvironmentUnfit, match="countdown.*CPU time"):
        adapter.drawn("countdown", {"min_value": 3}, random.Random(1))
    assert len(asked) == 1


@pytest.mark.parametrize("given", ["[1, 2, 3]", "3", '"1"', "null"])
def test_levels_must_be_an_object(given: str, capsys: pytest.CaptureFixture) -> None:
    assert cli.main(["freeze", "--from", "reasoning_gym:chain_sum", "--levels", given]) == 2
    said = capsys.readouterr().err
    assert 'the keys "1", "2", "3"' in said and """'{"1": {"min_terms": 2}""" in said


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    with pytest.raises(EnvironmentUnfit, match="Choose another --to"):
        levels = reasoning_gym.levels_of("chain_sum")
        reasoning_gym.write_task("chain_sum", levels, tmp_path / "file")


@pytest.mark.parametrize("name", ["../up", "My Task", "a/b", ""])
def test_a_wrong_name_is_refused_before_drawing(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter, "_ask", lambda *question: pytest.fail("it asked the library"))
    source = ["freeze", "--from", "reasoning_gym:chain_sum", "--name", name, "--to", str(tmp_path)]
    assert cli.main(source) == 2
    assert "--name" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


BOTH_WAYS = """
import json
from crlbench.reward import forked, gym
gym.prepare("countdown")
entries = [gym.answer(["entry", {}, seed]) for seed in range(2)]
texts = [entry["gold"] for entry in entries]
texts += ["7", "", "1/0", "1.0.0", "5(3)", "((1", "007", "-" * 256, "(" * 256, "9*" * 127 + "9"]
questions = [["score", entry, text] for entry in entries for text in texts]
alone = [json.loads(forked._in_fork(gym.answer, q)) for q in questions]
here = [json.loads(forked._reply(gym.answer, q)) for q in questions]
print(json.dumps([alone, here, [gym.forks(q) for q in questions]]))
"""


@pytest.mark.slow
def test_arithmetic_scores_the_same_with_and_without_a_fork() -> None:
    done = subprocess.run(
        [sys.executable, "-c", BOTH_WAYS], cwd=ROOT, capture_output=True, text=True, check=True
    )
    alone, here, forked_ones = json.loads(done.stdout.splitlines()[-1])
    assert alone == here and not any(forked_ones)
    assert alone.count(1.0) == 2, "each gold is right for its own entry and for no other"


@pytest.mark.parametrize(
    ("generator", "text", "forks"),
    [
        ("countdown", "1+2*(3-4)/5", False),
        ("countdown", "9**9", True),
        ("countdown", "9" * 257, True),
        ("countdown", "x", True),
        ("countdown", "[1]", True),
        ("countdown", "\uff11", True),
        ("chain_sum", "x", False),
    ],
)
def test_what_a_scorer_may_run_as_code_is_forked(
    generator: str, text: str, forks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_generator", "_scorer", "_evaluates"):
        monkeypatch.setattr(adapter, name, None)
    adapter.prepare(generator)
    assert adapter.forks(["score", {}, text]) is forks
    assert not adapter.forks(["entry", {}, 1])


SMALL = """
import hashlib, json, random, sys
from crlbench.reward import gym
rows = [gym.item(sys.argv[1], {}, 1, n % 6, random.Random(n)) for n in range(40)]
print(hashlib.sha256(json.dumps(rows).encode()).hexdigest())
"""


@pytest.mark.slow
@pytest.mark.parametrize("generator", ["chain_sum", "knights_knaves"])
def test_items_are_the_same_in_two_processes(generator: str) -> None:
    found = {
        subprocess.run(
            [sys.executable, "-c", SMALL, generator],
            cwd=ROOT,
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(found) == 1


def test_levels_come_from_the_curriculum() -> None:
    levels = reasoning_gym.levels_of("chain_sum")
    assert [levels[level]["min_terms"] for level in (1, 2, 3)] == [3, 4, 5]
    assert all("seed" not in config and "size" not in config for config in levels.values())


@pytest.mark.slow
def test_wrong_names_are_named() -> None:
    with pytest.raises(UsageError, match="Did you mean chain_sum"):
        reasoning_gym.levels_of("chain_sun")
    with pytest.raises(UsageError, match="must name 1, 2 and 3"):
        reasoning_gym.levels_of("chain_sum", {"1": {}})
    with pytest.raises(UsageError, match="Did you mean min_terms"):
        reasoning_gym.levels_of("chain_sum", {"1": {"min_term": 2}, "2": {}, "3": {}})
    with pytest.raises(ValidationError, match="min_terms must be positive"):
        reasoning_gym.levels_of("chain_sum", {"1": {"min_terms": 0}, "2": {}, "3": {}})
    with pytest.raises(UsageError, match="has no curriculum"):
        reasoning_gym.levels_of("gsm_symbolic")


def test_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValidationError, match=r"frozen with reasoning-gym 0\.1\.0"):
        adapter.require_version("0.1.0")
    monkeypatch.setattr(adapter, "_checked", False)
    monkeypatch.setattr(adapter, "VERSION", "99.0")
    with pytest.raises(EnvironmentUnfit, match=r"pip install 'crlbench\[gym\]'"):
        adapter.entry_of("chain_sum", {}, 99_991)


def test_the_report_shows_partial_credit() -> None:
    holes = reasoning_gym.holes("chain_sum", dict.fromkeys((1, 2, 3), {}))
    rows = {row["text"]: row for row in holes}
    assert rows["a right answer"]["paid"] == 1.0
    assert rows["an empty text"]["mean"] == 0.0
    listed = rows["a right answer, then another"]
    assert listed["above 0"] == 1.0 and 0.1 < listed["mean"] < 1.0 and listed["paid"] == 0.0


def test_the_command_reports_without_writing(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    levels = json.dumps({str(n): {"min_terms": n + 2, "max_terms": n + 2} for n in (1, 2, 3)})
    source = "reasoning_gym:chain_sum"
    arguments = ["freeze", "--from", source, "--levels", levels, "--to", str(tmp_path), "--report"]
    assert cli.main(arguments) == 0
    assert "a right answer, twice" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


def test_wrong_flags_are_named(capsys: pytest.CaptureFixture) -> None:
    assert cli.main(["freeze", "--from", "reasoning_gym:chain_sum", "--levels", "{"]) == 2
    assert "not valid JSON" in capsys.readouterr().err
    assert cli.main(["freeze", "modular", "--from", "reasoning_gym:chain_sum"]) == 2
    assert "makes a new task" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.full
def test_freezing_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    """The whole command, in two processes with different hash seeds."""
    found = []
    for seed in ("1", "2"):
        folder = tmp_path / seed
        subprocess.run(
            [sys.executable, "-m", "crlbench", "freeze", "--from", "reasoning_gym:leg_counting"]
            + ["--to", str(folder), "-q"],
            cwd=ROOT,
            env=os.environ | {"PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
        )
        files = sorted((folder / "gym-leg-counting").iterdir())
        found.append({path.name: path.read_bytes() for path in files if path.is_file()})
    assert found[0] == found[1] and len(found[0]) == 8
    task = Task(tmp_path / "1" / "gym-leg-counting")
    first = task.rows("id")[0]
    assert task.verify(task.gold(first), first["answer"]) == 1.0
    assert task.card.floor < 0.1


@pytest.mark.slow
def test_the_server_ends_with_its_owner() -> None:
    script = (
        "from crlbench.reward import gym; gym.entry_of('chain_sum', {}, 1);"
        "print(gym._servers['chain_sum']._process.pid)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    with pytest.raises(ProcessLookupError):
        os.kill(int(done.stdout), 0)


@pytest.mark.slow
def test_a_server_that_cannot_start_says_how_to_see_why() -> None:
    with pytest.raises(EnvironmentUnfit, match=r"does not start. To see why, run"):
        forked.Server("crlbench.reward.gym", "no_such_generator").ask(["names", None, None])
