"""All readers that are fuzzed, by name.

A new one is a :class:`~tests.fuzz.target.Target` in the list of one of these files.
"""

from tests.fuzz.target import Target
from tests.fuzz.targets import archives, commands, entries, models, results, runs

TARGETS: dict[str, Target] = {
    target.name: target
    for file in (entries, runs, results, archives, commands, models)
    for target in file.TARGETS
}
