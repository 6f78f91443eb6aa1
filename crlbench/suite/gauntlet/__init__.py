"""The gauntlet: the rules that every task keeps, each tried on the task itself.

``CHECKS`` holds one check per rule, ``run`` puts a task through all of them, ``examine`` does
the same for a folder that may be too broken to load.
"""

from __future__ import annotations

from crlbench.suite.gauntlet.examine import examine
from crlbench.suite.gauntlet.report import Outcome, Report
from crlbench.suite.gauntlet.rules import CHECKS, MEANINGS, run

__all__ = ["CHECKS", "MEANINGS", "Outcome", "Report", "examine", "run"]
