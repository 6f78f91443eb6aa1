"""Names of stored files: those of a run, of a result and of a task."""

from __future__ import annotations

RECORD_NAME = "record.json"
ITEMS = "items.npz"
SAMPLES = "samples.jsonl.zst"
DIGESTS = "digests.jsonl"
RUN_FILES = (DIGESTS, ITEMS, RECORD_NAME, SAMPLES)
"""Files of a run that are packed; its weights, logs and tables stay where they were made."""
EPISODES = "episodes.jsonl.zst"
"""Beside the samples of an environment: the same episodes turn by turn."""
PACKED_FILES = (*RUN_FILES, EPISODES)
"""The same, and those that only some runs have."""
POLICY_NAME = "policy.safetensors"

MODE_PART = "_mode"
"""Ends the name of the start model's answers to the training prompts of a task, as in
``addition_mode.npz``, beside the runs of a model."""

PRODUCT_NAME = "product.json"
"""In the folder of what a stage of a chain left: what made it."""

PLAN_NAME = "plan.json"
PROGRESS_NAME = "progress.json"
"""In a run folder while a command runs its cells, and no longer."""
VERIFICATION_NAME = "verification.jsonl"

CODE = "task.py"
FROZEN = "frozen.toml"
