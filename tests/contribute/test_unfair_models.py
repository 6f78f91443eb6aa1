"""Every command refuses a model that brings answers with its files, by the name of the rule."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from crlbench import cli
from crlbench.catalog.find import Catalog
from tests.contribute.honest import catalog, crlbench, evaluated
from tests.support import unfair_frames
from tests.support.bundled import plain_copy
from tests.support.checkpoints import CHAT_TEMPLATE, write_checkpoint

NAMES = (
    "the template adds the sum",
    "the template thinks of the sum",
    "the normaliser adds an answer",
    "the decoder answers a question that is repeated",
    "an added token is a question",
)
COMMANDS = {
    "evaluate": ["evaluate", "--tasks", "addition", "--out", "{root}/runs", "--model", "{model}"],
    "probe": ["probe", "addition", "--items", "1", "--rollouts", "1", "--model", "{model}"],
    "show": ["show", "task", "addition", "--render", "{model}"],
    "add model": ["add", "model", "{model}", "--to", "{root}/here", "--offline"],
}


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", NAMES)
def test_a_command_names_rule_and_file(
    command: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = unfair_frames.write(tmp_path / "m", name)
    typed = [word.format(root=tmp_path, model=model) for word in COMMANDS[command]]
    assert cli.main([*typed, "--home", str(tmp_path / "home")]) == 3
    said = capsys.readouterr().err
    assert "rule frame" in said and str(model) in said and "Traceback" not in said
    assert not (tmp_path / "runs").exists() and not (tmp_path / "here").exists()


@pytest.mark.slow
def test_doctor_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = unfair_frames.write(tmp_path / "m", NAMES[0])
    typed = ["doctor", "--model", str(model), "--offline", "--home", str(tmp_path / "home")]
    assert cli.main(typed) == 6
    assert "rule frame" in capsys.readouterr().out


def entry(root: Path, frame: str = "chat") -> Path:
    """The bundled tiny-llama under another name, for a test to change."""
    own = Catalog().find("model", "tiny-llama").path.parent
    plain_copy("tiny-llama", root / "models" / "helped")
    text = (own / "tiny-llama.toml").read_text()
    for old, new in {
        'slug = "tiny-llama"': 'slug = "helped"',
        'path = "tiny/tiny-llama"': 'path = "helped"',
        'frame = "terse"': f'frame = "{frame}"',
    }.items():
        assert old in text
        text = text.replace(old, new)
    path = root / "models" / "helped.toml"
    path.write_text(text.partition("[side_sha256]")[0])
    return path


def test_an_entry_with_real_weights_and_a_helpful_template_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The bundled model's own weights, and a template that solves every sum for them."""
    path = entry(tmp_path)
    template = unfair_frames.SUM + "{{ messages[-1]['content'] }}\n{{ ns.total }}"
    (tmp_path / "models" / "helped" / "chat_template.jinja").write_text(template)
    assert cli.main(["validate", str(path), "--offline", "--json"]) == 3
    (report,) = json.loads(capsys.readouterr().out)
    found = report["rules"]["frame"]
    assert found["status"] == "broken"
    assert "it writes '29' where other questions get '0'" in " ".join(found["problems"])


def test_validate_tries_the_tasks_own_prompts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = Catalog().load_task("addition")
    question = task.rows("hard")[3]["messages"][-1]["content"]
    piece = f"{{% if messages[-1]['content'] == '{question}' %}}yes{{% endif %}}"
    (entry(tmp_path).parent / "helped" / "chat_template.jinja").write_text(CHAT_TEMPLATE + piece)
    path = tmp_path / "models" / "helped.toml"
    assert cli.main(["validate", str(path), "--offline", "-q"]) == 3
    assert f"rule frame: {path.parent}/helped/chat_template.jinja" in capsys.readouterr().out


@pytest.mark.slow
def test_a_run_stops_at_the_first_prompt_that_is_helped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No trial has such a question; a prompt of the training split does."""
    model = write_checkpoint(tmp_path / "m", chat_template=CHAT_TEMPLATE)
    question = Catalog().load_task("addition").rows("train")[1500]["messages"][-1]["content"]
    piece = f"{{% if messages[-1]['content'] == '{question}' %}}yes{{% endif %}}"
    (model / "chat_template.jinja").write_text(CHAT_TEMPLATE + piece)
    typed = ["evaluate", "--tasks", "addition", "--smoke", "--out", str(tmp_path / "runs")]
    home = ["--home", str(tmp_path / "home"), "--logger", "none", "--no-progress"]
    assert cli.main([*typed, "--model", str(model), *home]) == 3
    said = capsys.readouterr().err
    assert "rule frame" in said and question in said
    assert not [*tmp_path.rglob("record.json")]


@pytest.mark.slow
def test_verify_refuses_what_it_would_have_to_train(tmp_path: Path) -> None:
    """Runs of an honest model whose tokenizer is exchanged before they are checked."""
    home = catalog(tmp_path / "catalog")
    path = entry(home, frame="terse")
    run = evaluated(tmp_path / "runs", home, model="helped", arms="real")
    unfair_frames.UNFAIR["the normaliser adds an answer"][0](path.parent / "helped")
    done = crlbench("verify", run, "--seed-index", 0, catalog=home)
    assert done.returncode == 3
    assert "rule frame" in done.stderr and "tokenizer.json" in done.stderr
