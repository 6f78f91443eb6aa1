"""A model's entry, however broken: what can be said about it is said, and nothing is raised."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from crlbench.contract.conditions import Conditions
from crlbench.contract.model_card import read_model_card
from crlbench.contribute.models.checks import CHECKS
from crlbench.contribute.models.subject import Absent, Subject
from crlbench.disk.names import FROZEN
from crlbench.errors import CrlbenchError, EnvironmentUnfit
from crlbench.suite.gauntlet.report import Finding, Outcome, Report, Status

ENTRY, REVISION, LEARNING, SAMPLED = "entry", "revision", "learning", "log-probs"
MEANINGS = {
    ENTRY: "the file is well-formed, and its slug is the file's name",
    "filled-in": "nothing is left for a person to fill in",
    REVISION: "a commit or digests pin the weights",
    "hub": "the hub has that commit, with these files",
    "weights": "the files that are here have their digests",
    "config": "[config] is what the checkpoint's config.json says",
    "parameters": "the architecture has as many parameters as stated",
    "context": "the architecture allows the context",
    "tokenizer": "texts come back from their tokens, and completions can end",
    "template": "a prompt shows what is asked; the template has its digest",
    "frame": "no question changes the text around it, and its tokens spell it",
    "architecture": "a toy of it is decoded and trained as it reads itself",
    LEARNING: "two updates of PPO move a toy of it, and stay finite",
    SAMPLED: "the weights give sampled tokens the log-probabilities they learn from",
}
"""All rules in their order; the last one is for ``--full`` alone."""
NEVER_RANKS = "it names no commit, so it runs and never ranks"


def examine(
    path: Path,
    conditions: Conditions,
    home: Path | None,
    silence: Callable[[], str] = lambda: "",
    full: bool = False,
) -> Report:
    """The report on ``models/<slug>.toml``.

    Args:
        conditions: a track's, for the updates of the toy.
        home: CRLBENCH_HOME, where fetched and converted models are.
        silence: says why the hub is not to be asked; "" where it may be.
        full: load the weights too and sample from them.
    """
    start = time.perf_counter()
    effort = "full" if full else "default"
    rules = [rule for rule in MEANINGS if full or rule != SAMPLED]
    try:
        card = read_model_card(path)
    except EnvironmentUnfit as error:
        outcomes = [_not_run(rule, str(error), unfit=True) for rule in rules]
        return Report(path.stem, "", effort, tuple(outcomes), "model")
    except CrlbenchError as error:
        seconds = time.perf_counter() - start
        broken = Outcome(ENTRY, MEANINGS[ENTRY], "broken", (str(error),), seconds=seconds)
        rest = [_not_run(rule, "the file is broken: see above") for rule in rules[1:]]
        return Report(path.stem, "", effort, (broken, *rest), "model")
    subject = Subject(card, home, silence)
    checks: Mapping[str, Callable[[Subject], Finding]] = CHECKS | {
        ENTRY: lambda subject: Finding(),
        REVISION: _revision,
        LEARNING: lambda subject: _learning(subject, conditions),
        SAMPLED: _sampling,
    }
    outcomes = [_try_rule(rule, checks[rule], subject) for rule in rules]
    return Report(card.slug, card.revision[:8], effort, tuple(outcomes), "model")


def _try_rule(rule: str, check: Callable[[Subject], Finding], subject: Subject) -> Outcome:
    """One rule. What it raises becomes part of the outcome."""
    start = time.perf_counter()
    try:
        finding = check(subject)
    except Absent as absent:
        return _not_run(rule, str(absent), unfit=rule == SAMPLED)
    except EnvironmentUnfit as error:
        return _not_run(rule, str(error), unfit=True)
    except CrlbenchError as error:
        finding = Finding([str(error)])
    except Exception as error:  # models, configs and tokenizers raise whatever they trip over
        text = " ".join(str(error).split())[:300]
        finding = Finding([f"{type(error).__name__}: {text}"])
    sound: Status = "does not apply" if finding.skipped else "warning" if finding.warning else "ok"
    return Outcome(
        rule,
        MEANINGS[rule],
        "broken" if finding.problems else sound,
        tuple(finding.problems),
        finding.figures,
        finding.skipped or finding.warning,
        seconds=time.perf_counter() - start,
    )


def _not_run(rule: str, reason: str, unfit: bool = False) -> Outcome:
    return Outcome(rule, MEANINGS[rule], "not run", reason=reason, unfit=unfit)


def _revision(subject: Subject) -> Finding:
    if not subject.card.pinned:
        return Finding(warning=NEVER_RANKS)
    return Finding(figures={"revision": subject.card.revision})


def _learning(subject: Subject, conditions: Conditions) -> Finding:
    from crlbench.contribute.models.trials import two_updates

    problems, figures = two_updates(subject.config, subject.card.adapter, conditions)
    return Finding(problems, figures)


def _sampling(subject: Subject) -> Finding:
    from crlbench.contribute.models.trials import TOLERANCE, largest_gap
    from crlbench.policy.weights.load import Location

    if subject.card.quantisation != "none":
        return Finding(skipped="quantised weights round in every pass")
    place = Location(str(subject.weights))
    gap, tokens = largest_gap(subject.card, place, subject.checkpoint.reader)
    problems = [] if gap <= TOLERANCE else [
        f"sampled and recomputed log-probabilities differ by {gap:.2g} nats; at most {TOLERANCE}"
        " is rounding"
    ]
    return Finding(problems, {"largest gap": f"{gap:.1e} nats", "tokens": tokens})


def is_entry(path: Path) -> bool:
    """Whether a path is that of a model's entry, by its name alone."""
    return path.suffix == ".toml" and path.name != FROZEN and path.is_file()


def entries_in(folder: Path) -> list[Path]:
    """The entries of a folder such as ``models/``."""
    return sorted(filter(is_entry, folder.glob("*.toml")))
