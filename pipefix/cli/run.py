"""Run a training program as it is, and say at its end how long its loops waited for data.

COMMAND is what you would type without pipefix: train.py and its arguments, -m package.module, or a program that starts Python, such
as torchrun or accelerate launch. Its arguments, streams, signals and exit code are its own. When it has ended, pipefix writes to
standard error what it saw, and run.json into the folder that --out names.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import shutil
import signal
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from pipefix.cli import arguments, console, destination
from pipefix.vocabulary import amounts, launched
from pipefix.vocabulary.commands import command
from pipefix.vocabulary.errors import BadUsage, PipefixError, UnreadableFile

if TYPE_CHECKING:
    from pipefix.report.shown import ShownRun

PROBE = "60"


def prepare_parser(parser: ArgumentParser) -> None:
    add = parser.add_argument
    parser.usage = "pipefix run [options] [--] COMMAND ..."
    add("words", metavar="COMMAND", nargs=argparse.REMAINDER, help="the program and its arguments")
    add("-m", dest="module", metavar="MODULE", nargs=argparse.REMAINDER, help="run a module, with its arguments")
    add(
        "--probe", type=arguments.seconds, nargs="?", const=PROBE, metavar="=SECONDS",
        help="probe the training loop's loader inside the program, which then goes on (--probe alone: 60 seconds)",
    )  # fmt: skip
    add("--plan", type=Path, metavar="PLAN", help="a plan that fix or tune made for this program, put in place")
    add("--out", type=Path, default=Path(launched.run_folder()), metavar="DIR",
        help="the folder for run.json and report.html (default: pipefix-run; in a Slurm job pipefix-run-JOB)")  # fmt: skip
    add("--seconds", type=arguments.seconds, metavar="TIME", help="end the program after so long, as Ctrl-C would, and exit with 0")
    add("--steps", type=arguments.batch_size, metavar="N", help="end it so after N optimizer steps")
    add("--no-stages", action="store_true", help="do not look into the making of batches")
    arguments.add_quiet(parser)


def run(arguments: Namespace) -> int:
    from pipefix.api.run import EndedUntold, check, run_program, start
    from pipefix.cli.main import unforeseen

    words = ["-m", *arguments.module] if arguments.module is not None else list(arguments.words)
    if words[:1] == ["--"]:
        del words[0]
    if arguments.probe is not None:
        _check_amount(words)
    started = check(words, arguments.plan)
    if os.environ.get("PIPEFIX") == "0":
        start(started, lambda words: os.execvp(words[0], [*words]))  # unseen, and in the place of this process
    _check_folder(arguments.out)
    where = f"run file: {arguments.out / 'run.json'}"
    try:
        result = run_program(
            words, out=arguments.out, seconds=arguments.seconds, steps=arguments.steps, probe=arguments.probe, plan=arguments.plan,
            stages=not arguments.no_stages,
        )  # fmt: skip
    except UnreadableFile as error:
        if error.known is None:
            raise
        # Only the file is lost: the figures are told, with --quiet too, and the exit code is the program's.
        arguments.quiet = False
        result, where = cast("ShownRun", error.known), f"pipefix: {error}\n  {error.advice}"
    except EndedUntold as error:
        if isinstance(error.__cause__, KeyboardInterrupt):
            _tell_interrupted(arguments.out)
        else:
            unforeseen(cast("Exception", error.__cause__))
        return _as_the_program_ended(error.exit_code)
    assert result.program is not None
    if result.stages:
        where += f"\nevery figure: {command('pipefix', 'show', '--full', str(arguments.out))}"
    try:
        if not arguments.quiet:
            for document in result.printed():
                console.aside(document)
            console.note(where)
        page = arguments.out / "report.html"
        try:
            result.html(page)
            if not arguments.quiet:
                console.note(f"report: {page}")
        except UnreadableFile as error:  # that costs nothing else
            console.note(f"pipefix: {error}")
    except KeyboardInterrupt:
        _tell_interrupted(arguments.out)
    except Exception as error:  # noqa: BLE001 - a fault of pipefix's is not the program's
        unforeseen(error)
    return 0 if result.program.at_limit else _as_the_program_ended(result.program.exit_code or 0)


def _tell_interrupted(folder: Path) -> None:
    """Of a second Ctrl-C, as a rule: the first one ended the program."""
    console.note(f"pipefix: interrupted. What was seen of the program is told by: {command('pipefix', 'show', folder)}")


def _check_amount(words: list[str]) -> None:
    """``--probe 20 train.py``, as options are given elsewhere: what follows ``--probe`` may be the program, so it takes a ``=``."""
    try:
        amounts.seconds(words[0])
    except (IndexError, ValueError):
        return
    if shutil.which(words[0]) is None:
        problem = f"--probe takes its seconds after a =, and {words[0]} would be the program."
        raise BadUsage(problem, advice=f"Write it so: {command('pipefix', 'run', f'--probe={words[0]}', *words[1:])}")


def _check_folder(folder: Path) -> None:
    """Before the program starts, and not after it ran for a day."""
    advice = f"Choose another folder: {command('pipefix', 'run', '--out', 'FOLDER', 'train.py')}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        disk = shutil.disk_usage(folder)
        if disk.total and not disk.free:
            raise UnreadableFile(f"--out {folder}: there is no room on its disk.")
        destination.check("--out", out=folder / "run.json", html=folder / "report.html")
    except OSError as error:
        problem = f"--out {folder}: the folder cannot be made: {error.strerror or error}."
        raise UnreadableFile(problem, advice=advice) from error
    except PipefixError as error:  # of the files in it nobody chooses the names
        error.advise(advice)
        raise


def _as_the_program_ended(code: int) -> int:
    """The exit code, or the signal that ended it: a shell and a batch system see what they would see without pipefix."""
    if code >= 0:
        return code
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if -code not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return 128 - code
