"""The command line: what may be typed, and how every way of ending looks.

Nothing heavy is imported here. Each command's own file is imported when the command runs, so
that ``crlbench --help`` answers at once.
"""

from __future__ import annotations

import argparse
import difflib
import errno
import io
import os
import shlex
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, NoReturn

from crlbench import __version__
from crlbench.commands.choices import (
    AXES,
    BY,
    DEVICES,
    FORMATS,
    LOGGERS,
    STRATEGIES,
    TABLE_FORMATS,
    TABLES,
    TOLERANCES,
)
from crlbench.disk import switches
from crlbench.disk.files import require_temporary
from crlbench.errors import (
    INTERNAL,
    OK,
    CrlbenchError,
    EnvironmentUnfit,
    Interrupted,
    UsageError,
    unknown_name,
)

LISTABLE = ("models", "tasks", "recipes", "tracks", "runs", "results")
SHOWABLE = ("model", "task", "recipe", "track")
ADDABLE = ("task", "model")
ARCHIVABLE = ("track", "task")
KINDS = ("auto", "task", "model", "result")
SCOPES = ("results", "retractions", "models", "tasks", "code")
OFFLINE_SWITCHES = ("CRLBENCH_OFFLINE", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")

GLOBALS: dict[str, Any] = {
    "home": None,
    "offline": False,
    "json": False,
    "quiet": False,
    "verbose": False,
    "no_color": False,
    "no_progress": False,
    "catalog": [],
}

_PATHS: dict[int | None, tuple[type[CrlbenchError], str]] = {
    errno.ENAMETOOLONG: (UsageError, "Give a shorter one."),
    errno.ELOOP: (UsageError, "Links there lead to themselves; give another one."),
    errno.ENOTDIR: (UsageError, "A part of it is a file; give a folder."),
    errno.EACCES: (EnvironmentUnfit, "Give yourself the right to it, or give another one."),
    errno.EPERM: (EnvironmentUnfit, "Give yourself the right to it, or give another one."),
    errno.EROFS: (EnvironmentUnfit, "Give one that can be written."),
    errno.ENOSPC: (EnvironmentUnfit, "Free space, then run the same command again."),
}
"""What the system may say of a path that was given, wherever a command meets it."""

HANDLERS = {
    "evaluate": "crlbench.commands.evaluate:evaluate",
    "ablate": "crlbench.commands.ablate:ablate",
    "compare": "crlbench.commands.compare:compare",
    "list": "crlbench.commands.registry:list_entries",
    "show": "crlbench.commands.registry:show",
    "report": "crlbench.commands.results:report",
    "fingerprint": "crlbench.commands.results:fingerprint",
    "export": "crlbench.commands.export:export",
    "fit-reward": "crlbench.commands.fit_reward:fit_reward",
    "freeze": "crlbench.commands.upkeep:freeze",
    "archive": "crlbench.commands.archive:archive",
    "fetch": "crlbench.commands.fetch:fetch",
    "doctor": "crlbench.commands.doctor:doctor",
    "submit": "crlbench.commands.submit:submit",
    "validate": "crlbench.commands.validate:validate",
    "verify": "crlbench.commands.verify:verify",
    "add": "crlbench.commands.add:add",
    "probe": "crlbench.commands.probe:probe",
    "leaderboard": "crlbench.commands.leaderboard:leaderboard",
}


LIGHT = frozenset({"compare", "fetch", "fingerprint", "list", "report", "show"})
"""Commands that need no temporary files."""

WITH_MODELS = frozenset(
    {"ablate", "add", "doctor", "evaluate", "export", "fit-reward", "probe", "submit", "verify"}
)
"""Commands that hand names of files to libraries, which take UTF-8 alone."""


class _Parser(argparse.ArgumentParser):
    """Wrong usage becomes a :class:`UsageError` with the nearest names."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}. See: {self.prog} --help")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            kind = action.dest if action.dest in ("command", "action") else "entry kind"
            what = action.option_strings[-1] if action.option_strings else kind
            raise unknown_name(what, str(value), map(str, action.choices))


def build_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    parser = _Parser(
        prog="crlbench",
        description="Reinforcement learning of language models under frozen conditions: every "
        "number carries the fingerprint of what was held fixed.",
        epilog="First: crlbench evaluate --model tiny-llama",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"crlbench {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for name, (summary, add_flags) in COMMANDS.items():
        about = summary[0].upper() + summary[1:] + "."
        command = commands.add_parser(
            name,
            help=summary,
            description=about,
            allow_abbrev=False,
            epilog=EXAMPLES.get(name),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        add_flags(command)
        _add_shared(command)
    _add_shared(parser)
    return parser


def _add_shared(parser: argparse.ArgumentParser) -> None:
    """Flags taken before or after a command's name; absent ones leave no trace."""
    group = parser.add_argument_group("everywhere")

    def add(*names: str, **options: Any) -> None:
        group.add_argument(*names, default=argparse.SUPPRESS, **options)

    add("--home", metavar="DIR", help=f"downloads and caches ($CRLBENCH_HOME, {switches.HOME})")
    add("--catalog", metavar="DIR", action="append",
        help="folder with further tasks/, models/, leaderboard/, recipes/ (repeatable)")
    add("--offline", action="store_true", help="never use the network")
    add("--json", action="store_true", help="print the result as JSON")
    add("-q", "--quiet", action="store_true", help="print the result alone")
    add("-v", "--verbose", action="store_true", help="show tracebacks")
    add("--no-color", action="store_true", help="no colours ($NO_COLOR)")
    add("--no-progress", action="store_true", help="lines instead of a bar")


def _evaluate(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--model", metavar="X", action="append",
        help="entry name, checkpoint folder, GGUF file or org/name@commit (repeatable)")
    add("--track", metavar="T", help="conditions to run under, or T@version (mini)")
    add("--recipe", metavar="R", help="algorithm, also with a flip: grpo+clip.high=0.28 (ppo)")
    add("--tasks", metavar="A,B", help="only these tasks (all of the track)")
    add("--seeds", metavar="N", type=int,
        help="seed indices 0..N-1 (5); 5, 10 or 20 rank, with --arm real,placebo")
    add("--out", metavar="DIR", help="folder of all runs (runs)")
    add("--dry-run", action="store_true", default=None,
        help="say what would run, how long and its plan hash; write nothing")
    add("--smoke", action="store_true", default=None,
        help="try it: 2 tasks, 1 seed, 3 iterations; marked partial")
    more = parser.add_argument_group("Advanced").add_argument
    more("--arm", metavar="A,B", help="real, placebo or both: real,placebo (real)")
    more("--jobs", metavar="N", help="cells at once (auto: cores / threads per cell)")
    more("--set", metavar="K=V", action="append",
         help="change a condition, e.g. optimization.epochs=2: moves to the open division")
    more("--config", metavar="F", help="TOML with any of these flags and [conditions.*]")
    more("--print-config", action="store_true", default=None,
         help="print the resolved configuration as TOML and stop")
    more("--limit", metavar="N", type=int, help="at most N items per evaluation; marked partial")
    more("--fresh", action="store_true", default=None,
         help="discard the wanted cells that are stored and redo them")
    more("--repeat", action="store_true", default=None,
         help="run cells again that ended and whose record is gone; the ledger says so")
    more("--shard", metavar="i/N",
         help="only every N-th cell, for several machines, each with its own --out")
    more("--max-hours", metavar="H", type=float, help="stop, resumable, after this time")
    more("--ignore-memory", action="store_true", default=None,
         help="run although the memory estimate exceeds what this machine has")
    more("--logger", metavar="A,B", help=f"{', '.join(LOGGERS)} (tensorboard)")
    more("--device", metavar="D", help=f"{', '.join(DEVICES)} ($CRLBENCH_DEVICE, cpu)")
    more("--devices", metavar="N", type=int,
         help="devices that train a cell together; with --device cpu: processes (1)")
    more("--num-nodes", metavar="N", type=int,
         help="machines that train a cell together, each with --devices: docs/devices.md (1)")
    more("--strategy", metavar="S",
         help=f"how several devices hold the weights: {', '.join(STRATEGIES)} (auto: ddp)")


def _ablate(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--model", metavar="X", action="append",
        help="entry name, checkpoint folder, GGUF file or org/name@commit (repeatable)")
    add("--base", metavar="R", help="recipe that everything is measured against (grpo)")
    add("--flip", metavar="AXIS=PART", action="append",
        help="an arm with one change: aggregate=token-mean, clip=ppo-clip:low=0.2,high=0.28, "
        "clip.high=0.28, kl=none; or a condition: data.reward=process (repeatable)")
    add("--versus", metavar="R", action="append",
        help="an arm with another recipe, also with flips: grpo+kl=none+aggregate=token-mean "
        "(repeatable)")
    add("--grid", metavar="G",
        help="star: vary learning rate, KL, clip, group size, temperature; or a TOML of [[arm]]")
    add("--study", metavar="F", help="a TOML file with several comparisons, instead of the above")
    add("--tasks", metavar="A,B", help="only these tasks (all of the track)")
    add("--seeds", metavar="N", type=int,
        help="seed indices 0..N-1 of base and arms alike (5; 3 for a grid alone)")
    add("--out", metavar="DIR", help="folder of all runs (runs)")
    add("--dry-run", action="store_true", default=None,
        help="say what would run, how long and its plan hashes; write nothing")
    more = parser.add_argument_group("Advanced").add_argument
    more("--track", metavar="T", help="conditions to run under, or T@version (mini)")
    more("--only", metavar="NAME", action="append",
         help="of a study: only this comparison or setting (repeatable)")
    more("--jobs", metavar="N", help="cells at once (auto: cores / threads per cell)")
    more("--set", metavar="K=V", action="append", help="change a condition for base and arms")
    more("--fresh", action="store_true", default=None,
         help="discard the wanted cells that are stored and redo them")
    more("--repeat", action="store_true", default=None,
         help="run cells again that ended and whose record is gone; the ledger says so")
    more("--max-hours", metavar="H", type=float, help="stop, resumable, after this time")
    more("--ignore-memory", action="store_true", default=None,
         help="run although the memory estimate exceeds what this machine has")
    more("--logger", metavar="A,B", help=f"{', '.join(LOGGERS)} (tensorboard)")
    more("--device", metavar="D", help=f"{', '.join(DEVICES)} ($CRLBENCH_DEVICE, cpu)")


EXAMPLES = {
    "evaluate": """\
examples:
  crlbench evaluate --model tiny-llama --smoke
  crlbench evaluate --model tiny-llama --model tiny-qwen2 --arm real,placebo --seeds 10
  crlbench evaluate --model ./checkpoint --track small --tasks addition --dry-run
  crlbench evaluate --model tiny-llama --track mini@1 --dry-run

mini@1 is mini at version 1, the current one or an archived one: docs/task-versions.md.
""",
    "ablate": """\
examples:
  crlbench ablate --model tiny-llama --tasks addition --flip kl=none --flip clip.high=0.28
  crlbench ablate --model tiny-llama --tasks addition --base grpo --versus dapo --dry-run
  crlbench ablate --study docs/studies/tricks-or-traps.toml --dry-run
""",
    "compare": """\
examples:
  crlbench compare tiny-llama tiny-qwen2 --runs leaderboard/results
  crlbench compare tiny-llama/ppo tiny-llama/grpo --axis efficiency --by bytes
  crlbench compare A/runs/mini-0123456789ab/my-model@89abcdef/ppo tiny-llama --out compare.html
  crlbench compare mini@1/tiny-llama mini@1/tiny-qwen2 --runs leaderboard/results

mini@1/ names entries of mini at version 1, whether that is the current one or an archived one.
Exit code 4: not comparable, made under different conditions or on different hardware.
""",
    "list": """\
examples:
  crlbench list models --family qwen3
  crlbench list tasks --json
  crlbench list results

Exit code 3: an entry cannot be read; stderr names it, and the rest is listed.
""",
    "show": """\
examples:
  crlbench show recipe dapo
  crlbench show task addition --prompts 2
  crlbench show task addition --render tiny-llama
""",
    "report": """\
examples:
  crlbench report runs/mini-0123456789ab/my-model@89abcdef/ppo
  crlbench report leaderboard/results/mini-0123456789ab --out board.html
""",
    "fingerprint": """\
examples:
  crlbench fingerprint --track mini
  crlbench fingerprint --track mini@1
  crlbench fingerprint runs/mini-0123456789ab/my-model@89abcdef/ppo --diff mini

mini@1 is mini at version 1, the current one or an archived one: docs/task-versions.md.
Exit code 4: they differ, and each leaf in which they do is named.
""",
    "export": """\
examples:
  crlbench export runs/mini-0123456789ab/my-model@89abcdef/ppo/addition/real/seed-00 --to adapter
  crlbench export runs/small-0123456789ab/my-model@89abcdef/ppo/addition/real/seed-00 --to m --merge
""",
    "fit-reward": """\
examples:
  crlbench fit-reward --model tiny-llama --pairs judged --out reward-model
""",
    "freeze": """\
examples:
  crlbench freeze my-task
  crlbench freeze my-task --bump
  crlbench freeze --check
  crlbench freeze --from reasoning_gym:countdown
""",
    "archive": """\
examples:
  crlbench archive track mini
  crlbench archive task addition
  crlbench archive --check

Exit code 3: an archive is not what was archived, or something of it is not what was frozen.
Before a version is raised; both then stand side by side: docs/task-versions.md.
""",
    "probe": """\
examples:
  crlbench probe addition --model tiny-llama --items 16
  crlbench probe my-task --write
  crlbench probe addition --model tiny-llama --twin 20261123
""",
    "fetch": """\
examples:
  crlbench fetch smollm2-135m-instruct
  crlbench fetch gemma-3-270m --from downloads
  crlbench fetch --task gsm8k
""",
    "add": """\
examples:
  crlbench add task my-task
  crlbench add model --from-hub Qwen/Qwen3-0.6B
  crlbench add model ./checkpoint --slug my-model
""",
    "doctor": """\
examples:
  crlbench doctor
  crlbench doctor --model smollm2-135m-instruct --track small
  crlbench doctor --model ./checkpoint --device cuda --set budget.completions=64 --json

Exit code 6: what was asked for could not run here.
""",
    "submit": """\
examples:
  crlbench submit runs/mini-0123456789ab/my-model@89abcdef/ppo --submitter @your-handle
  crlbench submit runs/mini-0123456789ab --submitter @your-handle --to clone/leaderboard/results

Exit code 3: a rule is broken, and nothing was written. The rules: docs/results.md.
""",
    "validate": """\
examples:
  crlbench validate tasks/my-task --quick
  crlbench validate models/my-model.toml
  crlbench validate leaderboard/results/mini-0123456789ab/my-model@89abcdef/ppo
  crlbench validate --since origin/main

Exit code 3: a rule is broken. 6: this machine cannot try one.
""",
    "verify": """\
examples:
  crlbench verify runs/mini-0123456789ab/my-model@89abcdef/ppo
  crlbench verify runs/mini-0123456789ab/my-model@89abcdef/ppo/addition/real/seed-00 --updates all
  crlbench verify runs/mini-0123456789ab --recompute-only --json

Exit code 5: something stored is not what it must be; each thing is named. 6: the model is not here.
What each step proves, and what nothing proves: docs/trust.md.
""",
    "leaderboard": """\
examples:
  crlbench leaderboard build
  crlbench leaderboard serve
  crlbench leaderboard export --what runs --out runs.csv

How to read, build and host the board: docs/site.md.
""",
    "leaderboard build": """\
examples:
  crlbench leaderboard build --out _site
  crlbench leaderboard build --url https://example.org/board/
  crlbench leaderboard build --source-url https://github.com/org/name
  crlbench leaderboard build --check

Exit code 3: results do not agree with themselves, or --check found another site.
""",
    "leaderboard serve": """\
examples:
  crlbench leaderboard serve
  crlbench leaderboard serve --port 8080 --results clone/leaderboard/results --out preview
""",
    "leaderboard export": """\
examples:
  crlbench leaderboard export --out entries.csv
  crlbench leaderboard export --what curves --board mini-543da47d0c99 --out curves.parquet

What the columns mean: data.html of the site. Exit code 6: Parquet needs the extra parquet.
""",
}
"""Shown below the flags of a command."""


def _compare(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("entries", metavar="ENTRY", nargs="+",
        help="two or more: a run folder, or a name below --runs: tiny-llama, "
        "tiny-llama@25666175, tiny-llama/grpo; differences are the later one minus the earlier")
    add("--runs", metavar="DIR", default="runs", help="folder of all runs, for names (runs)")
    add("--axis", metavar="X", choices=AXES, default="all", help=f"{', '.join(AXES)} (all)")
    add("--tasks", metavar="A,B", help="only these tasks (all that they have)")
    add("--by", metavar="X", choices=BY, default="completions",
        help=f"{', '.join(BY)}: x-axis of curves and times to threshold (completions); time is "
        "not reproducible and needs one class of hardware")
    add("--format", metavar="F", choices=FORMATS, default=None,
        help=f"{', '.join(FORMATS)} (text, or by the name of --out)")
    add("--out", metavar="FILE", help="write it there, and print the path")
    add("--force-unequal", action="store_true",
        help="go on although conditions differ: differences under a watermark, no verdict")


def _list(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=LISTABLE, metavar="WHAT", help=", ".join(LISTABLE))
    parser.add_argument("--out", metavar="DIR", default="runs", help="folder of all runs (runs)")
    parser.add_argument("--family", metavar="NAME", help="for models: of this family only")
    parser.add_argument("--kind", metavar="KIND", help="for models: base, instruct or reasoning")


def _show(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=SHOWABLE, metavar="WHAT", help=", ".join(SHOWABLE))
    parser.add_argument("name", metavar="NAME")
    parser.add_argument(
        "--prompts", metavar="N", type=int, default=None,
        help="for a task: print N items per split (0; 1 with --render)",
    )
    parser.add_argument(
        "--render", metavar="MODEL", help="for a task: the token ids of the prompts for this model"
    )


def _report(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run", metavar="RUN", help="a run folder, a folder above several, or that of a study"
    )
    parser.add_argument("--out", metavar="F.html", help="where the page goes (RUN/report.html)")


def _fingerprint(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", nargs="?", help="a run folder or a record.json")
    parser.add_argument("--track", metavar="T", help="a track instead of a run, or T@version")
    parser.add_argument("--set", metavar="K=V", action="append", help="with this condition changed")
    parser.add_argument("--tasks", metavar="A,B", help="with these tasks")
    parser.add_argument(
        "--diff", metavar="OTHER", help="a run or a track to compare with; exit 4 if they differ"
    )


def _export_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run", metavar="RUN", help="the folder of one finished run: .../TASK/ARM/seed-NN"
    )
    parser.add_argument("--to", metavar="DIR", help="folder of the model; must not exist")
    parser.add_argument(
        "--merge", action="store_true",
        help="an adapter merged into its base: a whole checkpoint, which --model DIR takes",
    )


def _fit_reward(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--model", metavar="X", help="entry name, checkpoint folder, GGUF file or org/name@commit")
    add("--pairs", metavar="T", help="the task whose preference pairs are learned from")
    add("--out", metavar="DIR", help="folder of the reward model; must not exist")
    add("--set", metavar="K=V", action="append",
        help="change a setting: epochs, batch, accumulate, learning_rate, warmup, weight_decay, "
        "centering, max_grad_norm, max_tokens, seed, store")
    add("--limit", metavar="N", type=int, help="only the first N pairs of each file")
    add("--threads", metavar="N", type=int, default=1, help="CPU threads (1)")
    add("--device", metavar="D", default="cpu", help=f"{', '.join(DEVICES)} (cpu)")


def _freeze(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("tasks", metavar="TASK", nargs="*", help="names or folders (all tasks)")
    add("--check", action="store_true", help="only compare, write nothing")
    add("--bump", action="store_true",
        help="first raise the version in task.py as changes demand")
    add("--against", metavar="OLD",
        help="an older checkout, task folder or frozen.toml to decide the version's level from")
    add("--retain", action="store_true",
        help="the retain panel of this checkout instead of tasks")
    add("--from", dest="source", metavar="DIR",
        help="folder with an external task's dataset, or reasoning_gym:GENERATOR to make a task of")
    more = parser.add_argument_group("with --from reasoning_gym:GENERATOR").add_argument
    more("--levels", metavar="JSON",
         help="""settings of each level, '{"1": {...}, "2": {...}, "3": {...}}' or a file of it""")
    more("--to", metavar="DIR", help="for its folder (tasks)")
    more("--name", metavar="NAME", help="what it is called (gym-GENERATOR)")
    more("--report", action="store_true",
         help="only say what the generator's scorer pays for nonsense")


def _archive(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("what", choices=ARCHIVABLE, metavar="WHAT", nargs="?", help=", ".join(ARCHIVABLE))
    add("name", metavar="NAME", nargs="?",
        help="a track, which takes its tasks and the retain panel along, or a task")
    add("--check", action="store_true",
        help="only prove that every archive is whole, unchanged and usable; write nothing")


def _fetch(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", metavar="NAME", nargs="*", help="model entries")
    parser.add_argument(
        "--task", metavar="T", action="append",
        help="an external task, whose rows are made from a published dataset (repeatable)",
    )
    parser.add_argument(
        "--from", dest="source", metavar="DIR",
        help="folder with the package or the dataset, instead of the net",
    )


def _doctor(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--model", metavar="X",
        help="entry name, checkpoint folder, GGUF file or org/name@commit: is it here, does it fit")
    add("--track", metavar="T", default="mini", help="conditions to check against (mini)")
    add("--recipe", metavar="R", default="ppo", help="algorithm to check (ppo)")
    add("--set", metavar="K=V", action="append",
        help="with this condition changed, e.g. budget.completions=64 (repeatable)")
    add("--out", metavar="DIR", default="runs", help="folder of all runs (runs)")
    add("--device", metavar="D", default=os.environ.get("CRLBENCH_DEVICE", "cpu"),
        help=f"{', '.join(DEVICES)} ($CRLBENCH_DEVICE, cpu)")


def _add(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("what", choices=ADDABLE, metavar="WHAT", help=", ".join(ADDABLE))
    add("name", metavar="NAME", nargs="?",
        help="of a task: lowercase letters, digits and '-'; for a model: its folder or GGUF file")
    add("--from-hub", metavar="ID",
        help="a model of the hub: org/name, or org/name@revision with a branch or a commit")
    add("--slug", metavar="S", help="for a model: what its entry is called (its own name)")
    add("--added", metavar="DAY", help="for a model: the day that its entry states (today)")
    add("--to", metavar="DIR",
        help="folder that gets tasks/ and tests/, or models/ (the checkout)")


def _probe(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("tasks", metavar="TASK", nargs="*", help="names (all tasks)")
    parser.add_argument("--model", metavar="X", action="append",
        help="entry name, checkpoint folder, GGUF file or org/name@commit, repeatable (by the "
        "task's tags: the bundled models or smollm2-135m-instruct)")
    parser.add_argument("--rollouts", metavar="K", type=int, default=8,
        help="completions per item (8)")
    parser.add_argument("--items", metavar="N", type=int, default=64, help="items per level (64)")
    parser.add_argument("--write", action="store_true", help="put the table into task READMEs")
    parser.add_argument("--twin", metavar="SALT", type=int,
        help="compare the published items with fresh ones that the task's code makes with this "
        "number: who is better on the published ones may have seen them")


def _validate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths", metavar="PATH", nargs="*",
        help="task folders, models/<slug>.toml, names of either, folders of results, or of several",
    )
    add = parser.add_argument
    add("--kind", metavar="K", choices=KINDS, default="auto",
        help=f"what the paths are: {', '.join(KINDS)} (auto)")
    add("--since", metavar="COMMIT",
        help="all that this checkout changes since it left COMMIT: one kind of thing, and results "
        "only grow")
    add("--only", metavar="KIND", choices=SCOPES,
        help=f"with --since: refuse a change of any other kind at once: {', '.join(SCOPES)}")
    add("--body", metavar="FILE", help="with --since: a pull request's text, whose boxes are read")
    add("--author", metavar="@HANDLE",
        help="with --since: who brings it; entries are extended by their submitter or a maintainer")
    add("--comment", metavar="FILE", help="with --since: write what changes on the boards")
    add("--findings", metavar="FILE", help="with --since: the same as JSON, for who posts it")
    add("--quick", action="store_true",
        help="of tasks a part of the rows, drawn by hashing: seconds a task")
    add("--full", action="store_true",
        help="of models the weights too: sampled log-probabilities against recomputed ones")


def _submit(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("runs", metavar="RUN", nargs="+",
        help="run folders, a folder of them, or of a study, which means all its arms")
    add("--submitter", metavar="@HANDLE", help="GitHub handle of who answers questions about it")
    add("--to", metavar="DIR", help="the folder of results (leaderboard/results of the checkout)")
    add("--pr-body", metavar="FILE", help="the pull request's text (pull-request.md)")
    add("--no-pr", action="store_true", help="write no text for a pull request")


def _verify(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("result", metavar="RESULT",
        help="a run, an entry (one model with one recipe) or a board: nothing is written into it")
    add("--updates", metavar="R", default="3",
        help="make the first R updates again (3), or a whole run: all; an update is an iteration, "
        "a rollout and its optimizer steps")
    add("--seed-index", metavar="I", default="random",
        help="of which seed, for every task and arm: its index, or random, which says what it "
        "drew (random)")
    add("--tolerance", metavar="T", choices=TOLERANCES, default="class",
        help="class: equal bits on the class of machine that the run was made on, a band "
        "elsewhere; bitwise: equal bits (class)")
    add("--recompute-only", action="store_true", help="replay nothing")
    add("--max-minutes", metavar="M", default="60",
        help="refuse a replay that by its conditions and the size of its model would take a core "
        "longer (60)")
    add("--badge", metavar="BY",
        help="for those who keep a leaderboard: note what was proven, and by whom, in "
        "verification.jsonl beside the plan")


def _leaderboard(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions")
    for name, (summary, about, add_flags) in LEADERBOARD.items():
        action = actions.add_parser(
            name,
            help=summary,
            description=about,
            allow_abbrev=False,
            epilog=EXAMPLES[f"leaderboard {name}"],
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        action.add_argument("--results", metavar="DIR",
            help="the folder of results (leaderboard/results)")
        add_flags(action)
        _add_shared(action)


def _build_site(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--out", metavar="DIR", default="_site", help="where the site goes (_site)")
    add("--url", metavar="URL",
        help="where it will stand, https://...: for the sitemap, the feed and 404.html")
    add("--source-url", metavar="URL",
        help="the repository of the results, https://...: pages link to it")
    add("--check", action="store_true",
        help="write nothing; exit 3 if what stands there is not what would be written")


def _serve_site(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--port", metavar="N", type=_port, help="a port of 127.0.0.1 (8000, or any free one)")
    add("--out", metavar="DIR", default="_site", help="the folder of the site (_site)")


def _port(text: str) -> int:
    port = int(text)
    if not 0 <= port < 2**16:
        raise ValueError(text)
    return port


_port.__name__ = "port"


def _export_table(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--what", metavar="W", choices=TABLES, default="entries",
        help=f"{', '.join(TABLES)} (entries)")
    add("--format", metavar="F", choices=TABLE_FORMATS,
        help=f"{', '.join(TABLE_FORMATS)} (by the name of --out)")
    add("--out", metavar="FILE", required=True, help="where the table goes")
    add("--board", metavar="NAME", action="append",
        help="only this board: track-fingerprint, or those of track@version (repeatable; all)")


LEADERBOARD: dict[str, tuple[str, str, Callable[[argparse.ArgumentParser], None]]] = {
    "build": (
        "write the site of all stored results",
        "Write the site of all stored results: static pages that need no server.",
        _build_site,
    ),
    "serve": (
        "show the site on this machine",
        "Show the site on this machine until Ctrl-C. It is built first where there is none, or "
        "where results are newer.",
        _serve_site,
    ),
    "export": (
        "write the results as one table",
        "Write the results as one table: a row per entry and axis, run, evaluation, or pair.",
        _export_table,
    ),
}
"""Each action's summary, its description, and the function that adds its flags."""


COMMANDS: dict[str, tuple[str, Callable[[argparse.ArgumentParser], None]]] = {
    "evaluate": ("train and measure a model on a track", _evaluate),
    "ablate": ("change one part of a recipe at a time and measure what it does", _ablate),
    "compare": ("lay stored entries side by side, with paired verdicts", _compare),
    "list": ("list models, tasks, recipes, tracks, runs or results", _list),
    "show": ("show one model, task, recipe or track", _show),
    "report": ("write one self-contained HTML page of stored runs", _report),
    "fingerprint": ("print or compare what is held fixed", _fingerprint),
    "export": ("write the model that a run trained, for other programs", _export_run),
    "fit-reward": ("fit a reward model on preference pairs", _fit_reward),
    "freeze": ("write a task's split files and digests, or check them", _freeze),
    "archive": ("keep the present version of a track or task beside newer ones", _archive),
    "fetch": ("bring models and datasets that cannot come with the package", _fetch),
    "doctor": ("say whether this machine can run a model on a track, and what helps", _doctor),
    "submit": ("pack finished runs as a result that others can review", _submit),
    "validate": ("put tasks, models and results through every rule", _validate),
    "verify": ("prove a result: compute it again, and make its first updates again", _verify),
    "add": ("write a new task and its tests, or the entry of a model", _add),
    "probe": ("sample tasks with untrained models and count what is right", _probe),
    "leaderboard": ("build, show and export the public board of results", _leaderboard),
}
"""Each command's summary and the function that adds its flags."""


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The options of a command line, with the environment and the defaults filled in.

    Raises:
        UsageError: something unknown or impossible, with the nearest names.
    """
    if odd := [text for text in argv if "\0" in text]:
        raise UsageError(f"{odd[0]!r:.80} holds a zero byte, which no name and no number has.")
    parser = build_parser()
    options, unknown = parser.parse_known_args(argv)
    if unknown and options.command == "add" and options.name is None and unknown[0][0] != "-":
        options.name = unknown.pop(0)  # argparse gives it up where a flag stands before it
    if unknown:
        _refuse_unknown(_innermost(parser, options), unknown)
    for name, default in GLOBALS.items():
        if not hasattr(options, name):
            setattr(options, name, default)
    if options.command is None:
        parser.print_help(sys.stderr)
        raise UsageError("no command given.")
    if getattr(options, "action", "") is None:
        _innermost(parser, options).print_help(sys.stderr)
        raise UsageError(f"no action given: crlbench {options.command} {'|'.join(LEADERBOARD)}.")
    options.no_color |= bool(os.environ.get("NO_COLOR"))
    options.no_progress |= bool(os.environ.get("CI"))
    options.offline |= switches.offline()
    options.home = switches.find_home(options.home)
    options.typed = shlex.join(["crlbench", *argv])
    return options


def _innermost(
    parser: argparse.ArgumentParser, options: argparse.Namespace
) -> argparse.ArgumentParser:
    """The parser of the command, or of its action, that was called."""
    for name in (options.command, getattr(options, "action", None)):
        below = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
        if name is None or not below:
            break
        parser = below[0].choices[name]
    return parser


def _refuse_unknown(known: argparse.ArgumentParser, unknown: Sequence[str]) -> NoReturn:
    """Name the first argument that nobody knows, with the nearest flags."""
    first = unknown[0].split("=")[0]
    if first.startswith("-"):
        options = [name for name in known._option_string_actions if name.startswith("--")]
        near = difflib.get_close_matches(first, options, n=3, cutoff=0.5)
        raise unknown_name("option", first, near, f"See: {known.prog} --help")
    raise UsageError(f"unexpected argument '{first}'. See: {known.prog} --help")


def _export(options: argparse.Namespace) -> None:
    """What the rooms and the workers read from the environment."""
    if options.home is not None:
        os.environ["CRLBENCH_HOME"] = str(options.home)
        if not switches.hub_placed():
            os.environ["HF_HOME"] = str(options.home / "huggingface")
    # torch makes a folder for its compiler as soon as it is imported: no new one for that.
    with suppress(FileNotFoundError):  # commands that need none go on without
        os.environ.setdefault(switches.COMPILER_FOLDER, tempfile.gettempdir())
    if options.offline:
        os.environ.update(dict.fromkeys(OFFLINE_SWITCHES, "1"))


def _require_readable_names(options: argparse.Namespace) -> None:
    """Refuse names of files that the libraries of models cannot take.

    Raises:
        EnvironmentUnfit: in this locale they cannot be read, in another one they can.
        UsageError: they are no UTF-8.
    """
    given = (value for value in vars(options).values())
    names = [one for value in given for one in (value if isinstance(value, list) else [value])]
    for name in (*map(str, names), os.getcwd()):
        if name.isascii() or not any("\ud800" <= character <= "\udfff" for character in name):
            continue
        try:
            text = os.fsencode(name).decode("utf-8")
        except ValueError:
            raise UsageError(f"{name!r:.200}: is no UTF-8 text. Give it another name.") from None
        raise EnvironmentUnfit(
            f"{ascii(text)}: names of files are read as {sys.getfilesystemencoding()} here, and "
            "this one has other characters. Set PYTHONUTF8=1, or LC_ALL=C.UTF-8."
        )


def prepare(options: argparse.Namespace) -> None:
    """Make this process ready for a command: its environment, and what the command cannot lack.

    Raises:
        EnvironmentUnfit: this machine lacks something.
        UsageError: a name that no library can take.
    """
    _export(options)
    if options.command not in LIGHT:
        require_temporary()
    if options.command in WITH_MODELS or getattr(options, "render", None):
        _require_readable_names(options)


def _handle(options: argparse.Namespace) -> int:
    module, _, function = HANDLERS[options.command].partition(":")
    return getattr(import_module(module), function)(options)


def _print_anything() -> None:
    """Characters that a terminal's encoding lacks are escaped instead of ending the command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; never raises for anything a person did."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    _print_anything()
    verbose = bool({"-v", "--verbose"} & set(arguments))
    try:
        options = parse(arguments)
        verbose = options.verbose
        prepare(options)
        code = _handle(options)
        sys.stdout.flush()
        return code
    except CrlbenchError as error:
        return _complain(f"crlbench: {error}", error.exit_code, verbose)
    except KeyboardInterrupt:
        return _complain("crlbench: interrupted", Interrupted.exit_code, verbose)
    except BrokenPipeError:
        # The reader has gone. Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except Exception as error:
        if isinstance(error, OSError) and (told := of_a_path(error)) is not None:
            return _complain(f"crlbench: {told}", told.exit_code, verbose)
        message = f"crlbench: internal error: {type(error).__name__}: {error}"
        hint = "" if verbose else "\nThis is a fault of crlbench. -v shows where it happened."
        return _complain(message + hint, INTERNAL, verbose)


def of_a_path(error: OSError) -> CrlbenchError | None:
    """What to say where the system refuses a path: which one, why, and what helps."""
    if error.filename is None or error.errno not in _PATHS:
        return None
    kind, hint = _PATHS[error.errno]
    return kind(f"{str(error.filename):.200}: {error.strerror}. {hint}")


def _complain(message: str, code: int, verbose: bool) -> int:
    if verbose:
        traceback.print_exc()
    print(message, file=sys.stderr)
    return code
