"""Code blocks of the documents, and in which form a test runs each of their commands."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").glob("*.md"),
     *(ROOT / "leaderboard" / "results").glob("*.md"), *(ROOT / ".github").rglob("*.md")]
)  # fmt: skip
PROGRAMS = {"crlbench", "python", "python3.11", "pip", "pytest", "git", "gh", "cp", "zstd", ".",
            "$EDITOR", "hf"}  # fmt: skip
TRAINS = "trains for minutes to hours"
ELSEWHERE = "is not on this machine yet; run: crlbench fetch"


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: Path
    number: int
    kind: str
    text: str

    @property
    def id(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.number}"

    @property
    def commands(self) -> list[str]:
        """Its command lines without comments; in one with prompts, what stands behind them."""
        lines = [line.strip() for line in self.text.splitlines()]
        prompts = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        lines = [re.sub(r"\s+#.*", "", line) for line in prompts or lines]
        return [line for line in lines if prompts or _is_command(line)]


@dataclass(frozen=True)
class Form:
    """How the commands that match are run: as written, changed so that they end soon, or not."""

    pattern: str
    reason: str
    """Why not as written."""
    more: str = ""
    """Added to the command."""
    swap: tuple[tuple[str, str], ...] = ()
    """Words that stand for something of the reader's, and what they become."""
    codes: tuple[int, ...] = (0,)
    says: str = ""
    """What it says where it does not end with 0."""
    run: bool = True
    instead: str = ""
    """Another command in its place."""


AS_WRITTEN = Form("", "")
MINE = (("my-task", "{mine}/tasks/my-task"), ("tasks/my-task", "{mine}/tasks/my-task"))
GAME = (("my-game", "{mine}/tasks/my-game"), ("tasks/my-game", "{mine}/tasks/my-game"))
MODELS = (("M", "{model}"), ("X", "tiny-llama"),
          ("./my-model", "{model}"), ("my-model", "{model}"), ("./other-model", "tiny-llama-play"),
          ("./candidate-a", "models/tiny/tiny-qwen2"), ("./candidate-b", "tiny-llama"))  # fmt: skip
FORMS = (
    # What another test, or the checks themselves, run.
    Form(r"python3.11 -m venv|pip install|\. \.venv|\.venv/bin/pip", ".ci/run installs and tests",
         run=False),
    Form(r"\$EDITOR .*my_recipe.py", "opens an editor: a copy changes its name and one part",
         instead="sed -i -e s/grpo/my-recipe/ -e s/low=0.2/low=0.1/ {mine}/recipes/my_recipe.py"),
    Form(r"\$EDITOR", "opens an editor", run=False),
    Form(r"pytest -m gpu|CRLBENCH_PEERS|CRLBENCH_DATA=DIR python benchmarks", "needs a device or "
         "environments of other programs", run=False),
    Form(r"pytest -m", ".ci/run has these parts, this test among them", run=False),
    Form(r"pytest tests/tasks/test_my_", "tests/commands/test_add_task.py runs such a file",
         run=False),
    Form(r"crlbench (show task|evaluate .*--tasks) my-game",
         "tests/commands/test_add_task.py plays and trains on one", run=False),
    Form(r"pytest tests/algo -k", "tests/algo runs them for every recipe", run=False),
    Form(r"pytest tests/reward/test_code_reply", "runs beside this test", run=False),
    Form(r"crlbench submit", "needs a finished entry: tests/contribute/test_submit.py", run=False),
    Form(r"crlbench add model", "needs the hub: tests/commands/test_add_model.py has one",
         run=False),
    Form(r"\.ci/badges", "appends to stored results: tests/contribute/test_badging.py", run=False),
    Form(r"crlbench leaderboard retract", "changes the public log: "
         "tests/contribute/test_retract.py", run=False),
    Form(r"crlbench archive (track|task)", "writes beside the catalogue: "
         "tests/contribute/test_archive.py", run=False),
    Form(r"crlbench leaderboard serve", "serves until it is stopped: "
         "tests/site/test_leaderboard.py", run=False),
    Form(r"python -m tests\.fuzz", "tests/fuzz/test_fuzz.py runs it with fewer inputs", run=False),
    Form(r"NODE_RANK=", "needs several machines: tests/launch/test_local.py", run=False),
    Form(r"crlbench freeze --from reasoning_gym:countdown$|.*gym-countdown", "takes minutes: "
         "tests/suite/test_gym.py makes such a task", run=False),
    Form(r"crlbench freeze my-task --from DIR", "needs a dataset's own task: "
         "tests/suite/test_external.py", run=False),
    Form(r"crlbench freeze T$|crlbench fit-reward .*--pairs T\b", "needs a task of one's own with "
         "pairs: tests/stages/test_fit_reward.py", run=False),
    Form(r"crlbench leaderboard build --check", "needs the site of the line before it: "
         "tests/site/test_leaderboard.py", run=False),
    Form(r"crlbench show task guess --play", "asks at the keyboard: "
         "tests/commands/test_show_play.py", run=False),
    Form(r"crlbench evaluate .*--stage|crlbench show product", "makes a stage, shows its product: "
         "tests/commands/test_stage.py", run=False),
    Form(r"crlbench leaderboard build --(cache|no-cache)", "builds the whole site without what was "
         "kept: tests/site/test_cache.py does so with fewer results", run=False),
    Form(r"crlbench ablate --study docs/studies/ppo-dpo.toml --model", "the study of the page's "
         "first command, of another model", run=False),
    Form(r"crlbench leaderboard build --runs", "needs runs of the reader's: "
         "tests/site/test_own.py", run=False),
    Form(r"crlbench evaluate .*--data|crlbench fit-reward .*--pairs \./", "needs a file of the "
         "reader's: tests/commands/test_own_data.py", run=False),
    # What takes long, or needs what is not here.
    Form(r"crlbench fetch --task", "downloads", "--from {data} --home {home}",
         (("DIR", "{data}"),)),
    Form(r"crlbench fetch", "downloads", "--offline --home {home}", (("--from", ""), ("DIR", "")),
         (6,), "On a machine with network run: "),
    Form(r"crlbench evaluate --catalog my-folder .*--smoke", "writes into runs/", "--out {out}",
         (("my-folder", "{mine}"),)),
    Form(r"crlbench evaluate .*--smoke", "writes into runs/", "--out {out}", MODELS),
    Form(r"crlbench validate models/my-model", "an entry of the reader's: "
         "tests/commands/test_add_model.py", run=False),
    Form(r"crlbench evaluate .*--device cuda", f"{TRAINS} on a GPU", "--dry-run --offline", MODELS,
         (0, 6), "cuda"),
    Form(r"crlbench evaluate .*gsm8k", f"{TRAINS}; needs data", "--dry-run --offline --home {home}",
         (*MODELS, ("sampling.max_completion_bytes=1536", "sampling.max_completion_bytes=16"))),
    Form(r"crlbench evaluate --catalog my-folder", TRAINS, "--dry-run --offline",
         (("my-folder", "{mine}"),)),
    Form(r"crlbench evaluate .*my-model\.gguf",
         "needs a file of the reader's: tests/policy/test_gguf.py", run=False),
    Form(r"crlbench (evaluate|ablate) .*my-recipe", TRAINS, "--dry-run --offline --catalog {mine}"),
    Form(r"crlbench (evaluate|ablate)", TRAINS, "--dry-run --offline --no-progress", MODELS, (0, 6),
         ELSEWHERE),
    Form(r"crlbench probe my-task --write", "samples for minutes", "--catalog {mine} --model "
         "tiny-llama --items 2 --rollouts 1"),
    Form(r"crlbench probe .*--reward", "needs products of a chain: "
         "tests/commands/test_stage.py makes them", run=False),
    Form(r"crlbench probe", "samples for minutes", "--items 2 --rollouts 1 --offline", (), (0, 6),
         ELSEWHERE),
    Form(r"crlbench doctor", "this machine may lack something", "--offline", MODELS, (0, 6)),
    Form(r"crlbench verify", "makes updates again for minutes", "--recompute-only", (
        ("RESULT", "leaderboard/results/mini-543da47d0c99/tiny-llama@25666175/gspo"),)),
    Form(r"crlbench compare (tiny-\S+ ){3}", "eight entries take a minute",
         instead="crlbench compare tiny-llama tiny-qwen2 --runs leaderboard/results"),
    Form(r"crlbench compare A B", "names of the reader's", "--runs leaderboard/results",
         (("A", "tiny-llama"), ("B", "tiny-gemma"))),
    Form(r"crlbench compare runs/\S+/my-model", "runs of the reader's",
         instead="crlbench compare tiny-llama tiny-neox --runs leaderboard/results"),
    Form(r"crlbench add task (my-task|--environment)", "writes into this checkout", "--to {fresh}"),
    Form(r"crlbench freeze my-task.*--against", "an older checkout of the reader's", "",
         (*MINE, ("../old", "{mine}"))),
    Form(r"crlbench (freeze|validate) (tasks/)?my-game", "a task of the reader's", "", GAME),
    Form(r"crlbench (freeze|validate) (tasks/)?my-task", "a task of the reader's", "", MINE),
    Form(r"cp crlbench/algo/recipes/grpo.py", "writes into this checkout", "",
         (("crlbench/algo/recipes/my_recipe.py", "{mine}/recipes/my_recipe.py"),)),
    Form(r"crlbench show recipe my-recipe", "a recipe of the reader's", "--catalog {mine}"),
    Form(r"crlbench show recipe my-chain", "a chain of the reader's", "",
         (("my-folder", "{mine}"),)),
    Form(r"crlbench fit-reward", "takes minutes", "--limit 8 --set epochs=1"),
    Form(r"python (benchmarks|models)/", "measures or trains for minutes to hours", "--help",
         (("PATH/minimind2-small", "X"), ("NAME", "tiny-llama"), ("...", ""))),
)  # fmt: skip
"""The first that matches counts; what matches none is run as it is written."""

OUTPUTS = {
    "README.md": ("tiny2-llama@b4fca4cc with ppo on mini v2",),
    "docs/architecture.md": ("errors, seeding, types",),
    "docs/recipes.md": ("grpo: tiny-llama (addition;",),
    "docs/sandbox.md": ("asker ── control",),
    "docs/tasks.md": ("letters 1.0.0: keeps every rule",),
    "leaderboard/results/README.md": ("<track>-<fingerprint>/",),
}
"""Blocks that show what is printed, or a picture, by page and first line."""


def blocks() -> list[Block]:
    """Every fenced block of every page."""
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        fences = re.findall(r"^ *```(\w*)\n(.*?)^ *```$", text, flags=re.M | re.S)
        found += [Block(page, i, kind, body) for i, (kind, body) in enumerate(fences)]
    return found


def form_of(command: str) -> Form:
    """How a test runs a command."""
    return next((form for form in FORMS if re.match(form.pattern, command)), AS_WRITTEN)


def is_output(block: Block) -> bool:
    """Whether a block is listed as one that is no command."""
    first = block.text.lstrip("\n").splitlines()[0]
    starts = OUTPUTS.get(str(block.page.relative_to(ROOT)), ())
    return any(first.startswith(start) for start in starts)


def inline_commands(page: Path) -> list[str]:
    """What a page's sentences call ``crlbench ...``."""
    text = re.sub(r"^ *```.*?^ *```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    return [" ".join(found.split()) for found in re.findall(r"`(crlbench [^`]+)`", text)]


def _is_command(line: str) -> bool:
    words = line.split()
    while words and re.fullmatch(r"[A-Z_]+=\S*", words[0]):
        words.pop(0)
    program = words[0] if words else ""
    return program in PROGRAMS or "/bin/" in program or program.startswith(".ci/")
