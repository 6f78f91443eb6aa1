"""What is tried on environments before anything runs: what would stop a run, or make it worthless.

The rules are those of the gauntlet that say whether episodes can be played at all, tried on a part
of the starts (seconds). ``crlbench validate`` tries all rules on more of them.
"""

from __future__ import annotations

from functools import lru_cache

from crlbench.catalog.frozen import Task
from crlbench.disk.names import CODE
from crlbench.errors import CrlbenchError, EnvironmentUnfit, Interrupted, ValidationError
from crlbench.suite.gauntlet import episodes
from crlbench.suite.gauntlet.report import Finding

RULES = ("episode-total", "terminates", "episode-pure", "no-leak", "panel")
"""Rules that every environment keeps before it is trained on, in the order in which they are
tried."""


@lru_cache(maxsize=64)
def check_environment(task: Task) -> None:
    """Refuse an environment whose functions raise, return another type, change their arguments,
    tell what is hidden, or do not end.

    Raises:
        ValidationError: the file, the rule, the first finding and the number of findings.
    """
    for rule in RULES:
        finding = _tried(rule, task)
        if finding.problems:
            tries = "".join(f" in {count} {name}" for name, count in finding.figures.items())
            raise ValidationError(
                f"{task.folder / CODE}: task '{task.name}' breaks the rule {rule} "
                f"({episodes.MEANINGS[rule]}): {finding.problems[0]}. Findings: "
                f"{len(finding.problems)}{tries}. Correct the task; crlbench validate "
                f"{task.folder} shows more."
            )


def _tried(rule: str, task: Task) -> Finding:
    try:
        if rule == "episode-pure":  # `validate` tries it in another process too
            return episodes.check_step_purity(task, "quick", elsewhere=False)
        return episodes.CHECKS[rule](task, "quick")
    except (EnvironmentUnfit, Interrupted):
        raise
    except CrlbenchError as error:
        return Finding([str(error)])
    except Exception as error:  # the task's own code may raise anything
        return Finding([f"{type(error).__name__}: {error}"])
