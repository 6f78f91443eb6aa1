"""What some flags of ``evaluate`` may be told; imports nothing, so that ``--help`` is quick."""

from __future__ import annotations

ARMS = ("real", "placebo")
LOGGERS = ("tensorboard", "csv", "none")
DEVICES = ("cpu", "cuda", "auto")
STRATEGIES = ("auto", "ddp", "fsdp")
AXES = ("all", "efficiency", "stability", "generalization")
BY = ("completions", "bytes", "updates", "time")
FORMATS = ("text", "md", "json", "html")
TOLERANCES = ("class", "bitwise")
TABLES = ("entries", "runs", "curves", "pairs")
TABLE_FORMATS = ("csv", "json", "parquet")
