"""Find the loader settings that keep the consumer fed with the least, within hard limits.

TARGET is what `pipefix probe` takes, a training program included; loading it runs its code. Few settings are tried, each in a
process of its own beside the best one so far; what is tried next follows from the trials. The winner is measured against the
settings as they are once more, and these stay where it does not win. Memory, /dev/shm, open files and CPU are predicted before a
trial and watched while it runs.

With a consumer (train_step or model in the same file, --step-ms or --target-rate) the fewest workers that keep it fed are sought;
without one, or where it cannot be fed, the settings that deliver most. The result is a plan file. Ctrl-C reports what is known.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from pipefix.cli import arguments, console, destination
from pipefix.cli.command import options, used
from pipefix.cli.deliver import delivered
from pipefix.vocabulary.errors import Interrupted

PLAN = Path("pipefix.plan.toml")

TAKES_PROGRAM = True


def prepare_parser(parser: ArgumentParser) -> None:
    parser.usage = "pipefix tune TARGET [options] [-- ARGUMENTS]"
    arguments.add_target(parser, "what to tune")
    parser.add_argument(
        "--stall", type=arguments.share, default=0.01, metavar="SHARE", help="of the time that the consumer may wait (default: 1%%)"
    )
    arguments.add_consumer(parser)
    parser.add_argument("--budget", type=arguments.seconds, default=90.0, metavar="SECONDS", help="time to spend (default: 90)")
    parser.add_argument("--trials", type=arguments.batch_size, default=8, metavar="N", help="settings to try at most (default: 8)")
    parser.add_argument(
        "--batch-size", type=arguments.batch_size, metavar="N", help="instead of the loader's, or where there is none"
    )
    parser.add_argument("--workers", type=arguments.workers, metavar="N", help="worker processes to begin with, likewise")
    parser.add_argument("--batch-sizes", action="store_true", help="also show what other batch sizes deliver; none is chosen")
    parser.add_argument("--max-workers", type=arguments.workers, metavar="N", help="never try more workers")
    parser.add_argument(
        "--max-memory", type=arguments.size, metavar="SIZE", help="of the whole loop, such as 8GB (default: what is free)"
    )
    parser.add_argument("--max-shm", type=arguments.size, metavar="SIZE", help="of /dev/shm (default: what is free)")
    parser.add_argument("--max-files", type=arguments.batch_size, metavar="N", help="open in one process (default: ulimit -n)")
    parser.add_argument("--max-cores", type=arguments.cores, metavar="N", help="CPU cores that the loop may keep busy")
    parser.add_argument("--max-vram", type=arguments.size, metavar="SIZE", help="of the device (default: what is free)")
    parser.add_argument("--keep-order", action="store_true", help="never try in_order=False")
    place = parser.add_mutually_exclusive_group()
    place.add_argument("--write", type=Path, default=PLAN, metavar="PATH", help=f"the plan file (default: {PLAN})")
    place.add_argument("--no-write", action="store_const", const=None, dest="write", help="write no plan file")
    arguments.add_html(parser)
    parser.add_argument("--json", action="store_true", help="print the result as JSON instead of text")
    parser.add_argument("--seed", type=arguments.seed, default=0, metavar="N", help="seed of the sampler's order (default: 0)")
    arguments.add_quiet(parser)


def run(arguments: Namespace) -> int:
    destination.check(plan=arguments.write, html=arguments.html)
    report = delivered(
        lambda progress: used("tune", arguments)(**options(arguments), progress=progress),
        quiet=arguments.quiet, json=arguments.json, html=arguments.html,
    ).report  # fmt: skip
    if report.written is not None:
        console.note(f"plan: {report.written}")
    if report.partial:
        raise Interrupted("Interrupted: the figures above are what was known by then, and no plan was written.")
    return 0
