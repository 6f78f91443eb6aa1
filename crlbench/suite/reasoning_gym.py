"""A task folder from any generator of reasoning-gym, and what its own scorer pays for nonsense.

The folder's ``task.py`` is generated and short: settings of three levels, and calls of
:mod:`crlbench.reward.gym`. Freezing it is then as for any task.
"""

from __future__ import annotations

import json
import pprint
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from crlbench import seeding
from crlbench.contract.fields import check_slug
from crlbench.disk import files
from crlbench.disk.hashing import sha256_bytes
from crlbench.disk.names import CODE
from crlbench.errors import EnvironmentUnfit, UsageError, ValidationError, unknown_name
from crlbench.reward import gym

SAMPLE = 512
"""Items of a level that are drawn to see whether it holds enough different ones."""
DISTINCT = 470
"""Least different questions among them."""
REPORTED = 24
"""Items of a level that the report tries texts on."""
NULL_GOLDS = 3
"""Most frequent right answers that stand, in every format, for policies without knowledge."""
LEVELS = (1, 2, 3)
LEVELS_FORM = """'{"1": {"min_terms": 2}, "2": {"min_terms": 3}, "3": {"min_terms": 4}}'"""
"""Levels as ``--levels`` takes them, for messages."""
Config = dict[str, Any]
KNOWN: dict[str, dict[int, Config]] = {
    "countdown": {
        level: {
            "min_numbers": 2 + level,
            "max_numbers": 2 + level,
            "min_value": 2,
            "max_value": 25,
            "min_target": 10,
            "max_target": 99 if level < 3 else 999,
        }
        for level in LEVELS
    },
    "graph_color": {
        level: {
            "min_num_vertices": size,
            "max_num_vertices": size,
            "num_colors": 3,
            "edge_probability": 0.3,
        }
        for level, size in zip(LEVELS, (6, 8, 10), strict=True)
    },
    "spell_backward": {
        level: {"min_word_len": size, "max_word_len": size + 2}
        for level, size in zip(LEVELS, (4, 6, 8), strict=True)
    },
    "word_sorting": {
        level: {"min_words": size, "max_words": size + 1}
        for level, size in zip(LEVELS, (4, 7, 10), strict=True)
    },
}
"""Levels of generators whose own curriculum asks for what they cannot make."""


def levels_of(generator: str, settings: Mapping[str, Any] | None = None) -> dict[int, Config]:
    """The settings of the levels 1 to 3: the given ones, else steps of the own curriculum.

    The curriculum's lowest three steps in a row are taken that each give at least ``DISTINCT``
    different questions in ``SAMPLE`` draws; ``KNOWN`` comes before it. Raises
    :class:`UsageError` for an unknown generator, for wrong level names, and where there is no
    such curriculum.
    """
    facts = gym.facts(generator)
    if settings is not None:
        return _check_levels(generator, settings, facts["fields"])
    if generator in KNOWN:
        return dict(KNOWN[generator])
    steps = [step for step in facts["steps"] if step is not None]
    for first in range(len(steps) - len(LEVELS) + 1):
        row = steps[first : first + len(LEVELS)]
        different = all(a != b for a, b in zip(row, row[1:], strict=False))
        if different and all(_has_enough(generator, config) for config in row):
            return dict(zip(LEVELS, row, strict=True))
    raise UsageError(
        f"reasoning-gym's {generator} has no curriculum with three levels of enough different"
        " items. Say what the levels are, for instance --levels"
        """ '{"1": {...}, "2": {...}, "3": {...}}', with these settings:"""
        f" {json.dumps(facts['fields'])}"
    )


def _check_levels(generator: str, levels: Mapping[str, Any], fields: Config) -> dict[int, Config]:
    if sorted(levels) != [str(level) for level in LEVELS]:
        raise UsageError(
            f"--levels: names {', '.join(levels) or 'no level'}; it must name 1, 2 and 3, each"
            f" with settings of the generator, as in {LEVELS_FORM}."
        )
    for level, config in levels.items():
        if not isinstance(config, dict):
            raise UsageError(f"--levels: level {level}: must be an object of settings.")
        for name in config:
            if name not in fields:
                raise unknown_name(f"setting of {generator} at level {level}", name, fields)
        gym.entry_of(generator, config, 0)
    return {level: dict(levels[str(level)]) for level in LEVELS}


def _has_enough(generator: str, config: Config) -> bool:
    """Whether a sample of a level holds enough different questions, failures counted as none."""
    keys: set[str] = set()
    for draws, seed in enumerate(_seeds(generator, "enough", SAMPLE), start=1):
        try:
            keys.add(gym.key(gym.entry_of(generator, config, seed)["question"]))
        except ValidationError:
            pass
        if draws - len(keys) > SAMPLE - DISTINCT:
            return False
    return True


def _seeds(generator: str, purpose: str, count: int) -> Iterator[int]:
    return (seeding.derive(0, "gym", generator, purpose, n) >> 31 for n in range(count))


def holes(generator: str, levels: Mapping[int, Config]) -> list[dict[str, Any]]:
    """What the library's scorer gives, before any threshold, to texts that know nothing.

    One row a text: its name, the mean score, the largest, and the share of items on which the
    score is above 0 and at least 1. A frozen task pays only the last. Right answers of other
    items count as such texts.
    """
    entries = [
        gym.drawn(generator, config, seeding.rng(0, "gym", generator, "report", level, n))
        for level, config in levels.items()
        for n in range(REPORTED)
    ]
    texts = {"a right answer": [entry["gold"] for entry in entries]} | _nonsense(entries)
    return [_hole(name, generator, entries, replies) for name, replies in texts.items()]


def _nonsense(entries: list[dict[str, Any]]) -> dict[str, list[str]]:
    golds = [entry["gold"] for entry in entries]
    best = Counter(golds).most_common(1)[0][0]
    same = {
        name: [name] * len(entries)
        for name in ("0", "1", "True", "None", "[]", "{}", "nan", "the", "0123456789", "-")
    }
    return {
        "another item's answer": golds[1:] + golds[:1],
        "the most frequent answer": [best] * len(entries),
        "the question": [entry["question"] for entry in entries],
        "all answers at once": [" ".join(dict.fromkeys(golds))] * len(entries),
        "a right answer in a sentence": [f"The answer is {gold}, I think." for gold in golds],
        "a right answer, twice": [f"{gold} {gold}" for gold in golds],
        "a right answer, then another": [
            f"{gold} {other}" for gold, other in zip(golds, golds[1:] + golds[:1], strict=True)
        ],
        "an empty text": [""] * len(entries),
        **same,
    }


def _hole(
    name: str, generator: str, entries: list[dict[str, Any]], texts: list[str]
) -> dict[str, Any]:
    scores = [
        gym.original_score(generator, entry, text)
        for entry, text in zip(entries, texts, strict=True)
    ]
    return {
        "text": name,
        "mean": round(sum(scores) / len(scores), 4),
        "largest": round(max(scores), 4),
        "above 0": round(sum(score > 0 for score in scores) / len(scores), 4),
        "paid": round(sum(score >= 1.0 for score in scores) / len(scores), 4),
    }


def write_task(
    generator: str, levels: Mapping[int, Config], folder: Path, name: str | None = None
) -> Path:
    """Write ``task.py`` and ``README.md`` of a generator into ``folder``/name, to be frozen.

    Raises :class:`UsageError` when another task is there already, or for a name that no task can
    have, and :class:`crlbench.errors.EnvironmentUnfit` where the folder cannot be written.
    """
    name = task_name(generator, name)
    target = folder / name
    code = _code(generator, levels, name)
    path = target / CODE
    if path.exists() and path.read_text(encoding="utf-8") != code:
        raise UsageError(f"{path}: there is another task. Choose another --name or --to.")
    readme = _readme(generator, levels, name)
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EnvironmentUnfit(
            f"{target}: cannot be made: {error.strerror or error}. Choose another --to."
        ) from None
    files.write_all({path: code.encode(), target / "README.md": readme.encode()})
    return target


def task_name(generator: str, name: str | None) -> str:
    """The name of a generator's task, unless ``name`` is another one.

    Raises :class:`UsageError` for a name that no task can have.
    """
    if name is None:
        return f"gym-{generator.replace('_', '-')}"
    check_slug(name, f"--name '{name}':")
    return name


def _null_texts(generator: str, levels: Mapping[int, Config]) -> list[str]:
    """The most frequent right answers of a sample, each in every format."""
    counts: Counter[str] = Counter()
    for level, config in levels.items():
        for n in range(SAMPLE // 4):
            rng = seeding.rng(0, "gym", generator, "nulls", level, n)
            counts[gym.drawn(generator, config, rng)["gold"]] += 1
    frequent = [gold for gold, _ in counts.most_common(NULL_GOLDS)]
    return [gym.wrapped(gold, form) for gold in frequent for form in dict.fromkeys(gym.FORMATS)]


def _canary(name: str) -> str:
    digest = sha256_bytes(f"gym {gym.VERSION} {name}".encode())
    return f"crlbench-canary-{digest[:8]}-{name}-{digest[8:20]}"


def _code(generator: str, levels: Mapping[int, Config], name: str) -> str:
    summary = f"reasoning-gym {gym.VERSION}, {generator}: own seeds, paid only in full."
    card = {
        "name": name,
        "version": "1.0.0",
        "tags": ["reasoning-gym"],
        "summary": summary,
        "max_completion_bytes": 4096,
        "licence": "Apache-2.0",
        "canary": _canary(name),
        "contact": "the person who froze it",
        "golds": False,
        "heavy": True,
    }
    values = {
        "CARD": card,
        "LEVELS": dict(levels),
        "NULL_TEXTS": _null_texts(generator, levels),
    }
    literals = {
        field: pprint.pformat(value, width=96, sort_dicts=False) for field, value in values.items()
    }
    return _CODE.format(generator=generator, version=gym.VERSION, **literals)


_CODE = '''"""reasoning-gym {version}, {generator}.

Made by ``crlbench freeze --from reasoning_gym:{generator}``. The levels are settings of the
generator. The answer of a row is JSON with the generator's entry, which its scorer needs;
``gold`` makes a completion of it. A completion is paid only where the library's own scorer
gives it 1. The key is a hash of the question's words.
"""

from __future__ import annotations

import random
from typing import Any

from crlbench.reward import gym
from crlbench.reward.splits import build_split

GENERATOR = "{generator}"
VERSION = "{version}"
CARD = {CARD}
LEVELS = {LEVELS}
TEMPLATES = gym.TEMPLATES
NULL_TEXTS = {NULL_TEXTS}


def item(rng: random.Random, level: int, template: int) -> dict[str, Any]:
    """One prompt row without its id."""
    gym.require_version(VERSION)
    return gym.item(GENERATOR, LEVELS[level], level, template, rng)


def build(split: str, rng: random.Random) -> list[dict[str, Any]]:
    """All rows of a split."""
    return build_split(CARD["name"], CARD["version"], item, split, rng)


def verify(text: str, answer: str) -> float:
    """1.0 iff the library's scorer gives the final answer 1."""
    gym.require_version(VERSION)
    return gym.paid(text, answer)


def audit(text: str, answer: str) -> float:
    """1.0 iff the completion closes with the gold answer itself."""
    return gym.strict(text, answer)


def gold(answer: str) -> str:
    """The gold completion of a row's answer."""
    return gym.gold(answer)
'''


def _readme(generator: str, levels: Mapping[int, Config], name: str) -> str:
    table = "\n".join(f"| {level} | `{json.dumps(config)}` |" for level, config in levels.items())
    return f"""# {name}

Items of the generator `{generator}` of reasoning-gym {gym.VERSION} (Apache-2.0), frozen with seeds
of their own. Made by one command, which makes the same bytes again:

```sh
crlbench freeze --from reasoning_gym:{generator} --name {name} --levels '{json.dumps(levels)}'
```

| level | settings |
|---|---|
{table}

Scoring: the library's own scorer, paid only at 1; the audit pays the gold answer alone. Key: a
hash of the question's words. The floor of each split, in `frozen.toml`, is what policies without
knowledge earn; `--report` lists what the library itself would pay them in parts.
"""
