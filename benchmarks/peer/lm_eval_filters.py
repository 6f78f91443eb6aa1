"""The verdicts of lm-evaluation-harness on replies to GSM8K, by its own task file and classes.

    PYTHON lm_eval_filters.py < pairs.json

PYTHON has ``lm_eval`` 0.4.13. Standard input holds pairs [number, reply] as JSON; standard output
gets {filter: [verdict of each]} for the filters of its task ``gsm8k``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import lm_eval
import yaml
from lm_eval.api.metrics import exact_match_hf_evaluate
from lm_eval.filters import get_filter


def verdicts(pairs: list[list[str]]) -> dict[str, list[bool]]:
    path = Path(lm_eval.__file__).parent / "tasks" / "gsm8k" / "gsm8k.yaml"
    task = yaml.safe_load(path.read_text(encoding="utf-8"))
    metric = task["metric_list"][0]
    options = {name: metric[name] for name in ("regexes_to_ignore", "ignore_case")}
    found = {}
    for chain in task["filter_list"]:
        replies = [[reply] for _, reply in pairs]
        for step in chain["filter"]:
            name = step.pop("function")
            replies = list(get_filter(name)(**step).apply(replies, [{}] * len(pairs)))
        found[chain["name"]] = [
            bool(exact_match_hf_evaluate([reply], [f"#### {gold}"], **options)["exact_match"] == 1)
            for (gold, _), reply in zip(pairs, replies, strict=True)
        ]
    return found


if __name__ == "__main__":
    json.dump(verdicts(json.load(sys.stdin)), sys.stdout)
