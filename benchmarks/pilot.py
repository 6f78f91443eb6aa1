"""Choose a track's hyper-parameters by a frozen rule on the calibration tasks.

    python benchmarks/pilot.py --track mini --out runs/pilot

Every model of the panel trains on every calibration task under each setting of the grid, through
``crlbench evaluate``. A setting's worth is the mean gain (end minus start score, in units of the
task's scale) of the family that gains least, so that no family is favoured; the setting with the
largest worth wins, ties going to the smaller values. Calibration tasks are never ranked.

A track of chains has a choice for each kind of last stage: every chain of that kind trains under
each setting, and the worth is of all of them.

Where the budget is chosen too, the rate is constant, so that the first half of a curve is what
half the iterations a grid point would have given. Under the winner the whole budget is kept if the
family that gains least from the second half gains at least SECOND_HALF from it; else half would
do. Both tables go to the terminal. Every record is kept, and runs whose record is there are not
made again.

A worth is a minimum, so that one family can decide against a setting: ``--decide`` makes no
further run of a setting that cannot win any more, and the winner is the same. Kept records are
read first, and then the family runs that gained least under the setting before.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean


@dataclass(frozen=True)
class Choice:
    """What is chosen at once: a setting of some conditions, for some recipes."""

    grid: dict[str, tuple[str, ...]]
    """Values by condition."""
    recipes: tuple[str, ...] = ("ppo",)
    """What trains under each setting."""


@dataclass(frozen=True)
class Design:
    """What was fixed before a track's pilot ran."""

    panel: tuple[str, ...]
    """Models, three families or more."""
    tasks: tuple[str, ...]
    """Calibration tasks."""
    seeds: int
    choices: tuple[Choice, ...]
    fixed: dict[str, str]
    """Conditions that differ from the track's: the larger of two budgets, whose first half is the
    smaller one, and evaluations no larger than the rule reads."""
    budget: bool
    """Whether half the budget may win."""


PLAY = ("tiny-llama-play", "tiny-qwen2-play", "tiny-mistral-play", "tiny-granite-hybrid-play")
RATES_OF_CHAINS = ("3e-6", "1e-5", "3e-5", "1e-4", "3e-4", "1e-3")
"""Tried for each kind of last stage: equally many trials for all chains."""
DESIGNS = {
    "mini": Design(
        panel=("tiny2-llama", "tiny2-mistral", "tiny2-gemma", "tiny2-granite-hybrid"),
        tasks=("letters", "list-ops"),
        seeds=1,
        choices=(Choice({"optimization.learning_rate": ("5e-5", "1e-4", "2e-4")}),),
        fixed={"evaluation.pass_draws": "0", "evaluation.retain": "[]"},
        budget=True,
    ),
    "mini@1": Design(
        panel=("tiny-llama", "tiny-qwen2", "tiny-mistral", "tiny-deepseek"),
        tasks=("modular", "letters"),
        seeds=2,
        choices=(
            Choice(
                {
                    "optimization.learning_rate": ("3e-5", "1e-4", "3e-4"),
                    "optimization.epochs": ("1", "2"),
                }
            ),
        ),
        fixed={"budget.iterations_per_point": "2"},
        budget=True,
    ),
    "play": Design(
        panel=PLAY,
        tasks=("lookup", "calc"),
        seeds=1,
        choices=(Choice({"optimization.learning_rate": ("5e-5", "1e-4", "2e-4", "4e-4", "8e-4")}),),
        fixed={"evaluation.retain": "[]"},
        budget=False,
    ),
    "tools": Design(
        panel=PLAY,
        tasks=("guess", "relay-sum"),
        seeds=1,
        choices=(Choice({"optimization.learning_rate": ("5e-5", "1e-4", "2e-4")}),),
        fixed={"evaluation.retain": "[]"},
        budget=False,
    ),
    "preference": Design(
        panel=("tiny2-llama", "tiny2-mistral"),
        tasks=("modular", "letters"),
        seeds=1,
        choices=(
            Choice({"preference.policy_learning_rate": RATES_OF_CHAINS}, ("rlhf", "rlvr")),
            Choice(
                {"preference.preference_learning_rate": RATES_OF_CHAINS},
                ("sft-dpo", "iterative-dpo", "online-dpo"),
            ),
            Choice({"preference.imitation_learning_rate": RATES_OF_CHAINS}, ("bon", "sft-only")),
        ),
        fixed={"evaluation.retain": "[]"},
        budget=False,
    ),
    "small": Design(
        panel=("smollm2-135m-instruct", "gemma-3-270m", "qwen2.5-coder-0.5b-instruct"),
        tasks=("sequences@1.0.0",),
        seeds=1,
        choices=(Choice({"optimization.learning_rate": ("1e-4", "3e-4", "1e-3")}),),
        fixed={
            "evaluation.curve_every": "10",
            "evaluation.end_items": "64",
            "evaluation.retain": "[]",
        },
        budget=False,
    ),
}
RECORDS = Path(__file__).parent / "pilots"
SECOND_HALF = 0.02
"""Gain in units of the task's scale that the second half of the budget must be worth."""
AVERAGED = 3
"""Evaluations whose mean is the score at the half and at the end of a curve."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--track", default="mini", choices=DESIGNS)
    parser.add_argument("--out", type=Path, default=Path("runs/pilot"), help="folder of the runs")
    parser.add_argument("--records", type=Path, default=RECORDS,
        help="where every run's record is kept; runs that have one there are not made again")
    parser.add_argument("--decide", action="store_true",
        help="leave out the runs that cannot change which setting wins")
    options = parser.parse_args()
    design = DESIGNS[options.track]
    for choice in design.choices:
        choose(options, design, choice)


def choose(options: argparse.Namespace, design: Design, choice: Choice) -> None:
    """Run every setting of a choice, and print what each is worth and which one wins."""
    rows: list = []
    for values in itertools.product(*choice.grid.values()):
        setting = dict(zip(choice.grid, values, strict=True))
        least = max((row[2] for row in rows), default=-math.inf) if options.decide else -math.inf
        last = rows[-1][1] if rows else {}
        found = run(options, design, choice.recipes, setting, last, least)
        gains = {model: fmean(map(_gain, records)) for model, records in found.items()}
        rows.append((setting, gains, min(gains.values()), found))
        print(line(design.panel, setting, gains), flush=True)
        for name, gain in by_recipe(design, choice.recipes, found).items():
            print(f"|   {name} | {' | '.join(setting.values())} | {gain:+.3f} |")
    best = max(rows, key=lambda row: (round(row[2], 3), *(-float(v) for v in row[0].values())))
    print("winner:", ", ".join(f"{name}={value}" for name, value in best[0].items()))
    if not design.budget:
        return
    later = {model: fmean(map(_second_half, records)) for model, records in best[3].items()}
    print(line(design.panel, {"second half": "second half"}, later))
    print("budget:", "whole" if min(later.values()) >= SECOND_HALF else "half")


def by_recipe(
    design: Design, recipes: tuple[str, ...], found: dict[str, list[dict]]
) -> dict[str, float]:
    """The mean gain of each of several recipes over the models that ran; empty for one recipe."""
    if len(recipes) == 1:
        return {}
    each = len(design.tasks) * design.seeds
    return {
        name: fmean(
            _gain(record)
            for records in found.values()
            for record in records[place * each : (place + 1) * each]
        )
        for place, name in enumerate(recipes)
    }


def run(
    options: argparse.Namespace,
    design: Design,
    recipes: tuple[str, ...],
    setting: dict[str, str],
    last: dict[str, float],
    least: float,
) -> dict[str, list[dict]]:
    """The records of each model of the panel under one setting; ``last``: gains under the last one.

    Without those that are left when one has gained no more than ``least``: an earlier setting is
    worth that, has the smaller values, and so wins.
    """
    name, found = "-".join(setting.values()), {}

    def doubt(model: str) -> tuple[bool, float]:
        paths = places(options, design, recipes, name, model)
        kept = all(path.exists() for path in paths.values())
        return not kept, last.get(model, math.inf)

    for model in sorted(design.panel, key=doubt):
        found[model] = records(options, design, recipes, setting, name, model)
        if fmean(map(_gain, found[model])) <= least:
            break
    return found


def records(
    options: argparse.Namespace,
    design: Design,
    recipes: tuple[str, ...],
    setting: dict[str, str],
    name: str,
    model: str,
) -> list[dict]:
    """The records of one model under a setting: kept ones, else those of runs made now.

    Raises:
        SystemExit: a run is missing, whose reason stands above.
    """
    kept = places(options, design, recipes, name, model)
    out = options.out / name
    for recipe in dict.fromkeys(recipe for (recipe, _), path in kept.items() if not path.exists()):
        evaluate(options, design, recipe, setting, model, out)
    for (recipe, cell), path in kept.items():
        if path.exists():
            continue
        made = next(out.glob(f"*/{model}@*/{recipe}/{cell}/record.json"), None)
        if made is None:
            raise SystemExit(
                f"{out}: {model} has no record of {recipe}, {cell}, so this setting cannot be "
                "judged. The reason stands above; the same command continues."
            )
        record = json.loads(made.read_text(encoding="utf-8"))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(_part(record), indent=1) + "\n", encoding="utf-8")
    return [json.loads(path.read_text(encoding="utf-8")) for path in kept.values()]


def places(
    options: argparse.Namespace, design: Design, recipes: tuple[str, ...], name: str, model: str
) -> dict[tuple[str, str], Path]:
    """Where the record of each recipe and cell of a model under a setting is kept."""
    kept, found = options.records / options.track / name / model, {}
    for recipe, task, seed in itertools.product(recipes, design.tasks, range(design.seeds)):
        cell = f"{task.split('@')[0]}/real/seed-{seed:02d}"
        of = "" if recipe == "ppo" else f"{recipe}-"
        found[recipe, cell] = kept / f"{of}{cell.replace('/', '-')}.json"
    return found


def evaluate(
    options: argparse.Namespace,
    design: Design,
    recipe: str,
    setting: dict[str, str],
    model: str,
    out: Path,
) -> None:
    """Train one model by one recipe under one setting."""
    changed = design.fixed | setting
    subprocess.run(
        [
            *(sys.executable, "-m", "crlbench", "evaluate", "--quiet", "--no-progress"),
            *("--model", model, "--recipe", recipe, "--track", options.track),
            *("--tasks", ",".join(design.tasks), "--seeds", str(design.seeds)),
            *("--logger", "none", "--out", str(out)),
            *(part for pair in changed.items() for part in ("--set", "=".join(pair))),
        ],
        check=False,  # a run that fails by rule is a result: its gain counts
        stdout=subprocess.DEVNULL,
    )


def _part(record: dict) -> dict:
    """What is kept of a record: whose run it is, and what the rule reads."""
    task = {name: record["task"][name] for name in ("name", "version", "floor", "ceiling")}
    scores = [{"score": point["score"]} for point in record["curve"]]
    of = {name: record[name] for name in ("record_id", "plan_hash", "status")}
    return of | {"task": task, "splits": {"id": record["splits"]["id"]}, "curve": scores}


def _gain(record: dict) -> float:
    """End minus start; a failed run ends at the floor, or at its start where that is lower."""
    floor, ceiling = record["task"]["floor"], record["task"]["ceiling"]
    scores = record["splits"]["id"]
    failed = record["status"]["state"] == "failed"
    end = min(floor, scores["start"]) if failed else scores["end"]
    return (end - scores["start"]) / (ceiling - floor)


def _second_half(record: dict) -> float:
    """What the curve gains between the half of the budget and its end; 0 for a failed run."""
    task, curve = record["task"], [point["score"] for point in record["curve"]]
    if record["status"]["state"] == "failed":
        return 0.0
    half = len(curve) // 2 + 1
    gained = fmean(curve[-AVERAGED:]) - fmean(curve[half - AVERAGED : half])
    return gained / (task["ceiling"] - task["floor"])


def line(panel: tuple[str, ...], setting: dict[str, str], gains: dict[str, float]) -> str:
    """One row of the table; where a run was left out, the worth is at most what stands there."""
    told = [f"{gains[model]:+.3f}" if model in gains else "-" for model in panel]
    worth = f"{'at most ' * (len(gains) < len(panel))}{min(gains.values()):+.3f}"
    return "| " + " | ".join([*setting.values(), *told, worth]) + " |"


if __name__ == "__main__":
    main()
