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
    add = parser.add_argument
    parser.usage = "pipefix tune TARGET [options] [-- ARGUMENTS]"
    arguments.add_target(parser, "what to tune")
    add(
        "--stall", type=arguments.share, default=0.01, metavar="SHARE", help="of the time that the consumer may wait (default: 1%%)"
    )
    arguments.add_consumer(parser)
    add("--budget", type=arguments.seconds, default=90.0, metavar="SECONDS", help="time to spend (default: 90)")
    add("--trials", type=arguments.batch_size, default=8, metavar="N", help="settings to try at most (default: 8)")
    add("--batch-size", type=arguments.batch_size, metavar="N", help="instead of the loader's, or where there is none")
    add("--workers", type=arguments.workers, metavar="N", help="worker processes to begin with, likewise")
    add("--batch-sizes", action="store_true", help="also show what other batch sizes deliver; none is chosen")
    add("--max-workers", type=arguments.workers, metavar="N", help="never try more workers")
    add("--max-memory", type=arguments.size, metavar="SIZE", help="of the whole loop, such as 8GB (default: what is free)")
    add("--max-shm", type=arguments.size, metavar="SIZE", help="of /dev/shm (default: what is free)")
    add("--max-files", type=arguments.batch_size, metavar="N", help="open in one process (default: ulimit -n)")
    add("--max-cores", type=arguments.cores, metavar="N", help="CPU cores that the loop may keep busy")
    add("--max-vram", type=arguments.size, metavar="SIZE", help="of the device (default: what is free)")
    add("--keep-order", action="store_true", help="never try in_order=False")
    place = parser.add_mutually_exclusive_group()
    place.add_argument("--write", type=Path, default=PLAN, metavar="PATH", help=f"the plan file (default: {PLAN})")
    place.add_argument("--no-write", action="store_const", const=None, dest="write", help="write no plan file")
    arguments.add_html(parser)
    add("--json", action="store_true", help="print the result as JSON instead of text")
    add("--seed", type=arguments.seed, default=0, metavar="N", help="seed of the sampler's order (default: 0)")
    arguments.add_quiet(parser)


def run(arguments: Namespace) -> int:
    destination.check(plan=arguments.write, html=arguments.html)
    report = delivered(lambda progress: used("tune", arguments)(**options(arguments), progress=progress), arguments).report
    if report.written is not None:
        console.note(f"plan: {report.written}")
    if report.partial:
        raise Interrupted("Interrupted: the figures above are what was known by then, and no plan was written.")
    return 0
