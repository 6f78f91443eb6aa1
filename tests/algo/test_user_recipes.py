"""Recipes from a person's own folder: Python and TOML, found, listed, loaded and run."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import pytest
from torch import Tensor

from crlbench import cli
from crlbench.algo import recipes
from crlbench.algo.aggregate import TokenMean
from crlbench.algo.clip import PpoClip
from crlbench.algo.describe import terms
from crlbench.algo.kl import Coefficient, Fixed, KlTerm, NoKl
from crlbench.algo.recipe import from_config, to_config
from crlbench.errors import CrlbenchError, UsageError, ValidationError

GRPO = recipes.load("grpo")

MEDIAN = '''"""GRPO against the median of the group, which one outlier cannot move."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from crlbench.algo import recipes
from crlbench.algo.advantage import AdvantageEstimator
from crlbench.algo.signal import Signal


@dataclass(frozen=True)
class GroupMedian(AdvantageEstimator):
    """Against the median of the completions of the same prompt."""

    scale: float = 1.0

    needs_group: ClassVar[bool] = True
    formula: ClassVar[str] = "A_i = scale (R_i - median_{j in group(i)} R_j)"

    def __call__(self, signal: Signal) -> tuple[Tensor, None]:
        rewards = signal.rewards.clone()
        for group in signal.group.unique():
            rows = signal.group == group
            rewards[rows] -= rewards[rows].median()
        return self.scale * rewards[:, None] * signal.mask, None


RECIPE = replace(recipes.load("grpo"), name="group-median", advantage=GroupMedian())
'''


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A catalogue with one Python and one TOML recipe."""
    write(tmp_path, "group_median.py", MEDIAN)
    write(
        tmp_path,
        "wide.toml",
        'about = "GRPO with a wide clip.\\n\\nMore."\nbase = "grpo"\n[clip]\nhigh = 0.4\n',
    )
    return tmp_path


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / "recipes" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def test_the_example_is_short() -> None:
    assert len(MEDIAN.splitlines()) < 40


def test_both_forms_are_found_and_loaded(home: Path) -> None:
    assert {"group-median", "wide", "grpo"} <= set(recipes.names([home]))
    assert recipes.load("wide", [home]) == replace(GRPO, name="wide", clip=PpoClip(0.2, 0.4))
    median = recipes.load("group-median", [home])
    assert median.differs_by(GRPO) == {"advantage"}
    assert from_config(json.loads(json.dumps(to_config(median)))) == median
    assert recipes.load_file(home / "recipes" / "group_median.py") == median
    assert recipes.python_file("group-median+kl=none", [home]) == (
        home / "recipes" / "group_median.py"
    )
    assert recipes.python_file("wide", [home]) is None


def test_listing_reads_and_never_executes(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(home, "dangerous.py", '"""Says what it is."""\nraise SystemExit("executed")\n')
    assert cli.main(["list", "recipes", "--catalog", str(home), "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["dangerous"]["summary"] == "Says what it is."
    assert rows["group-median"]["critic"] is None
    assert rows["wide"] == {
        "name": "wide",
        "critic": False,
        "differs from": "grpo in clip",
        "summary": "GRPO with a wide clip.",
    }


def test_show_names_the_persons_own_file(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["show", "recipe", "group-median", "--catalog", str(home)]) == 0
    text = capsys.readouterr().out
    assert "differs from grpo in advantage" in text and "group_median.py:" in text
    assert "A_i = 1 (R_i - median" in text


def test_a_toml_recipe_may_stand_on_another_or_on_none(home: Path) -> None:
    write(
        home,
        "plain.toml",
        'base = "wide"\nkl = "none"\naggregate = "token-mean"\nentropy_bonus = 0.01\n',
    )
    plain = recipes.load("plain", [home])
    assert (plain.clip, plain.kl, plain.aggregate) == (PpoClip(0.2, 0.4), NoKl(), TokenMean())
    whole = (
        'advantage = "group-mean"\nnormalize = "none"\nratio = "token-ratio"\n'
        'aggregate = "token-mean"\n[clip]\npart = "ppo-clip"\nlow = 0.1\nhigh = 0.1\n'
    )
    write(home, "whole.toml", whole)
    assert recipes.load("whole", [home]).clip == PpoClip(0.1, 0.1)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("x.py", "RECIPE = 3\n", "must export RECIPE, a Recipe named 'x'; there is none"),
        (
            "x.py",
            'from crlbench.algo import recipes\nRECIPE = recipes.load("grpo")\n',
            "named 'x'; it is called 'grpo'",
        ),
        ("x.py", "def f(:\n", r"x\.py:1: not valid Python"),
        ("x.py", "import math\nmath.sqroot(2)\n", r"x\.py:2: AttributeError.*sqroot"),
        ("x.py", "from crlbench.algo.clip import PpoClip\nPpoClip(low=5)\n", "PpoClip.low must be"),
        ("x.py", "class TokenMean:\n    pass\n", r"x\.py:1: a part called TokenMean exists"),
        ("x.toml", "base = grpo\n", "not valid TOML"),
        ("x.toml", 'base = "grp"\n', "unknown recipe 'grp'. Did you mean grpo"),
        ("x.toml", 'base = "x"\n', "cannot be based on itself"),
        ("x.toml", 'base = "grpo"\nname = "y"\n', "field name: 'y' must equal"),
        ("x.toml", 'base = "grpo"\nclipp = "none"\n', "unknown recipe field 'clipp'. Did you mean"),
        ("x.toml", 'base = "grpo"\nclip = "ppo-clap"\n', "unknown part of axis 'clip'"),
        ("x.toml", 'base = "grpo"\n[clip]\nhi = 1\n', "unknown field of PpoClip 'hi'. Did you"),
        ("x.toml", 'base = "grpo"\nclip = 3\n', "the name of a part or a table; got 3"),
        ("x.toml", 'base = "grpo"\n[critic]\nclip = 0.1\n', "needs a key 'part'"),
        ("x.toml", 'base = "grpo"\nadvantage = "gae"\n', "Gae needs a critic"),
        ("x.toml", 'clip = "none"\n', "missing recipe field 'advantage'"),
    ],
)
def test_mistakes_are_named_with_their_file(
    tmp_path: Path, name: str, text: str, message: str
) -> None:
    path = write(tmp_path, name, text)
    with pytest.raises(ValidationError, match=message) as error:
        recipes.load("x", [tmp_path])
    assert str(path) in str(error.value)


def test_an_unknown_recipe_names_those_of_the_folder(home: Path) -> None:
    with pytest.raises(UsageError, match="unknown recipe 'widee'. Did you mean wide"):
        recipes.load("widee", [home])
    with pytest.raises(CrlbenchError):
        recipes.load("wide", [])


def test_an_edited_file_is_another_recipe(home: Path) -> None:
    text = MEDIAN.replace("GroupMedian", "EditedMedian").replace("group-median", "edited")
    write(home, "edited.py", text)
    first = recipes.load("edited", [home])
    write(home, "edited.py", text.replace("EditedMedian())", "EditedMedian(scale=2.0))"))
    assert recipes.load("edited", [home]).advantage.scale == 2.0
    assert first.advantage.scale == 1.0


@dataclass(frozen=True)
class Cubed(KlTerm):
    """A KL term without an estimator of its own kind."""

    coefficient: Coefficient = Fixed(0.1)
    place: ClassVar[str] = "loss"
    formula: ClassVar[str] = "(logp - ref)^3"
    source: ClassVar[str] = "this test"

    def __call__(self, logprobs: Tensor, ref_logprobs: Tensor, mask: Tensor) -> Tensor:
        return (logprobs - ref_logprobs) ** 3 * mask


def test_a_kl_term_of_a_kind_of_its_own_is_described() -> None:
    (term,) = [t for t in terms(replace(GRPO, name="cubed", kl=Cubed())) if "^3" in t.formula]
    assert term.source == "this test"
