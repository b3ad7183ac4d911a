"""Compare two run files: what became faster or slower, and whether the difference is more than noise.

With --max-regression the exit code is 1 where AFTER delivers less than BEFORE by more than that share, for a gate in CI. A loss
that the machine explains (others took its CPUs, everything that computes was slower) is told and does not fail.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

import pipefix
from pipefix.cli import arguments, console, destination
from pipefix.cli.deliver import deliver, write
from pipefix.vocabulary.errors import GateFailed

FORMATS = ("text", "json", "markdown", "github", "junit")


def prepare_parser(parser: ArgumentParser) -> None:
    parser.usage = "pipefix compare BEFORE AFTER [options]"
    parser.add_argument("before", type=Path, metavar="BEFORE", help="a run file (JSON), or a folder of pipefix run")
    parser.add_argument("after", type=Path, metavar="AFTER", help="another one")
    parser.add_argument(
        "--max-regression", type=arguments.share, metavar="SHARE", help="exit with 1 where throughput fell by more, such as 5%%"
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--format", choices=FORMATS, default="text", metavar="FORMAT", help=f"one of {', '.join(FORMATS)}")
    how.add_argument("--json", action="store_const", const="json", dest="format", help="the same as --format json")
    arguments.add_html(parser)
    parser.add_argument("--force", action="store_true", help="compare runs of different machines or targets all the same")


def run(arguments: Namespace) -> int:
    destination.check(html=arguments.html)
    comparison = pipefix.compare(arguments.before, arguments.after, force=arguments.force, max_regression=arguments.max_regression)
    if arguments.format in ("text", "json"):
        deliver(comparison, json=arguments.format == "json", html=arguments.html)
    else:
        from pipefix.report.compare import FORMATS as WRITERS

        console.results(WRITERS[arguments.format](comparison))
        write(comparison, html=arguments.html)
    if comparison.gate is not None:
        if comparison.regressed:
            raise GateFailed(comparison.gate)
        console.note(comparison.gate)
    return 0
