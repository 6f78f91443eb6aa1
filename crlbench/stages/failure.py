"""A stage that broke a rule: its run has failed, and counts as a failed run."""

from __future__ import annotations


class StageFailed(Exception):  # noqa: N818  (an outcome of a run, as a broken rule is)
    """A stage of a chain cannot give what the next one needs; nobody made a mistake.

    The message says what was found and what was needed.
    """
