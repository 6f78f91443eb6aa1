"""``crlbench evaluate``: from flags to plans, runs, a table and a page."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from crlbench.commands.console import out
from crlbench.commands.flags import STRATEGIES, add_training_flags
from crlbench.errors import OK

READS_MODELS = True

EXAMPLES = """\
examples:
  crlbench evaluate --model tiny2-llama --short
  crlbench evaluate --model tiny2-llama --model tiny2-qwen2 --arm real,placebo,mode --seeds 10
  crlbench evaluate --model ./checkpoint --track small --tasks addition --dry-run
  crlbench evaluate --model tiny-llama --track mini@1 --dry-run

mini@1 is mini at version 1, the current version or an archived one: docs/task-versions.md.
"""


def add_flags(parser: ArgumentParser) -> None:
    add_training_flags(parser, "--model", "--track")
    parser.add_argument("--recipe", metavar="R",
        help="algorithm, also with a flip: grpo+clip.high=0.28 (ppo)")
    add_training_flags(parser, "--tasks")
    add_training_flags(parser, "--seeds",
        help="seed indices 0..N-1 (5); a rank needs 5, 10 or 20, and --arm real,placebo,mode")
    add_training_flags(parser, "--out")
    add_training_flags(parser, "--dry-run",
        help="print what would run, for how long and the plan hash; write nothing")
    parser.add_argument("--smoke", action="store_true", default=None,
        help="try every stage once: 2 tasks, 1 seed, 3 iterations; marked partial")
    parser.add_argument("--short", action="store_true", default=None,
        help="one seed of the track's first 3 tasks: a preview in minutes; never ranks")
    group = parser.add_argument_group("Advanced")
    more = group.add_argument
    more("--arm", metavar="A,B",
         help="arms to run, of real, placebo, mode, stress, wrong: real,placebo (real)")
    add_training_flags(group, "--data", "--jobs")
    add_training_flags(group, "--set",
        help="change a condition, e.g. optimization.epochs=2 (then in the open division)")
    more("--stage", metavar="NAME",
         help="of a chain, run this stage alone and what it reads, and show its product")
    more("--config", metavar="F", help="TOML with any of these flags and [conditions.*]")
    more("--print-config", action="store_true", default=None,
         help="print the resolved configuration as TOML and stop")
    more("--limit", metavar="N", type=int, help="at most N items per evaluation; marked partial")
    add_training_flags(group, "--fresh", "--repeat")
    more("--shard", metavar="i/N",
         help="only every N-th run, for several machines, each with its own --out")
    add_training_flags(group, "--max-hours", "--ignore-memory", "--logger", "--device")
    more("--devices", metavar="N", type=int,
         help="devices that train one run together; with --device cpu: processes (1)")
    more("--num-nodes", metavar="N", type=int,
         help="machines that train one run together, each with --devices: docs/devices.md (1)")
    more("--strategy", metavar="S",
         help=f"how several devices hold the weights: {', '.join(STRATEGIES)} (auto: ddp)")


def run(options: Namespace) -> int:
    """Run the missing cells of one or several models; see ``commands.settings.Settings``."""
    from crlbench.commands.job import declare, read_request, run_job
    from crlbench.commands.publish import publish
    from crlbench.commands.running import say_end
    from crlbench.commands.settings import as_toml

    request = read_request(options)
    if request.settings.print_config:
        out(as_toml(request.settings, request.board))
        return OK
    job = declare(options, request)
    if job.settings.stage is not None:
        from crlbench.commands.stage import run_stage

        return run_stage(options, job)
    if job.settings.dry_run:
        from crlbench.commands.dry_run import dry_run

        return dry_run(options, job)
    ending = run_job(options, job, lambda: publish(options, job.folders))
    return OK if ending is None else say_end(options, *ending)
