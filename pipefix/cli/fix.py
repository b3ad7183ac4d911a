"""Apply what the probe proposes, one step at a time, and keep only what is proven to help.

TARGET is what pipefix probe takes. Loading it runs its code; nothing of yours is changed. Each step is verified: samples are held
against those of your own pipeline, and both run in turn until the gain is clear; what does not help is taken back. What is kept
lies in DIR/pipefix.plan.toml, which FastLoader(dataset, ..., plan=...) reads, with a log of all that was tried beside it.

TARGET may also be a training program: pipefix fix train.py -- --epochs 3. It runs until its training loop is warm, its loader is
fixed there, and the program is ended. Afterwards pipefix run --plan DIR/pipefix.plan.toml train.py runs it with the plan.

Steps that change what training sees, or take over 1 GB of disk or ten minutes, are asked about; --yes answers.
Interrupted at any moment, the plan says what holds: run it again, or take the last step back with --undo.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from pathlib import Path

import pipefix
from pipefix.cli import arguments, console
from pipefix.cli.command import options, used
from pipefix.cli.deliver import Progress, deliver, delivered
from pipefix.vocabulary.commands import undone_by
from pipefix.vocabulary.errors import BadUsage, Interrupted

TAKES_PROGRAM = True


def prepare_parser(parser: ArgumentParser) -> None:
    add = parser.add_argument
    parser.usage = "pipefix fix TARGET [options] [-- ARGUMENTS]\n       pipefix fix --undo [--out DIR]"
    arguments.add_target(parser, "what to fix", optional=True)
    add("--dry-run", action="store_true", help="say what would be tried, in which order; change nothing")
    add("--only", metavar="ID", help="this remedy alone, such as cache-source or workers")
    add("-y", "--yes", action="store_true", help="do not ask")
    add("--undo", action="store_true", help="take back the last step, what it made on the disk included")
    add("--out", type=Path, metavar="DIR", help="where plan, log and caches lie (default: where you are)")
    add("--min-gain", type=arguments.share, default=0.05, metavar="SHARE", help="stop where the next gain is less (default: 5%%)")
    add("--budget", type=arguments.seconds, default=40.0, metavar="SECONDS", help="time to measure in each round (default: 40)")
    add("--batch-size", type=arguments.batch_size, metavar="N", help="instead of the loader's")
    add("--workers", type=arguments.workers, metavar="N", help="worker processes to begin with, likewise")
    arguments.add_consumer(parser)
    add("--json", action="store_true", help="print the last probe's run file, outcomes included, instead of text")
    add("--seed", type=arguments.seed, default=0, metavar="N", help="seed of the probe's own choices (default: 0)")
    arguments.add_quiet(parser)


def run(arguments: Namespace) -> int:
    if arguments.undo:
        needless = [f"target ({arguments.target!r} was given)"] if arguments.target is not None else []
        needless += [flag for flag, given in (("--only", arguments.only), ("--dry-run", arguments.dry_run)) if given]
        if needless:
            advice = "It takes the last step back, at once: pipefix fix --undo --out DIR. Steps are told by: pipefix log DIR"
            raise BadUsage(f"--undo takes a step back in a folder, and needs no {needless[0]}.", advice=advice)
        deliver(pipefix.undo(arguments.out), json=arguments.json)
        return 0
    if arguments.target is None:
        raise BadUsage("pipefix fix: there is no TARGET to fix.", advice="Name it, or take a step back with: pipefix fix --undo")

    from pipefix.api.fix import check_only

    check_only(arguments.only)  # a program would run until its loop is warm before it is told
    report = delivered(
        lambda progress: used("fix", arguments)(**options(arguments, "undo"), ask=_asking(progress), progress=progress), arguments
    )
    fixed = report.fixed
    if fixed.interrupted and not fixed.applied:
        raise Interrupted("Interrupted: nothing was changed.")
    if fixed.interrupted:
        problem = "Interrupted: the plan holds the steps above and no other."
        advice = f"The same command goes on from there; {undone_by(fixed.folder)} takes the last step back."
        raise Interrupted(problem, advice=advice)
    return 0


def _asking(progress: Progress) -> Callable[[str], bool] | None:
    """Asks on the terminal, where there is somebody at it."""
    if not (console.is_terminal(sys.stderr) and sys.stdin is not None and sys.stdin.isatty()):
        return None

    def ask(question: str) -> bool:
        progress.pause()
        console.note(f"{question} [y/N] ", end="")
        return sys.stdin.readline().strip().lower() in ("y", "yes")

    return ask
