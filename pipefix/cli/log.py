"""List what was done in a folder: probes, programs that were run, steps that fix kept or left, and the plan.

DIR is where run files, plans and logs were written; nothing is measured and nobody's code runs. With --epochs, and --price for an
hour of the machine, it also tells what the steps that fix kept save.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from pipefix.cli import arguments, console


def prepare_parser(parser: ArgumentParser) -> None:
    parser.usage = "pipefix log [DIR] [options]"
    parser.add_argument("folder", metavar="DIR", nargs="?", type=Path, default=Path(), help="the folder (default: where you are)")
    parser.add_argument("--epochs", type=arguments.batch_size, metavar="N", help="epochs that are to come")
    parser.add_argument("--price", type=arguments.price, metavar="AMOUNT", help="of an hour of the machine")
    parser.add_argument("--json", action="store_true", help="print it as JSON")


def run(arguments: Namespace) -> int:
    from pipefix.api.history import history
    from pipefix.report import history_report

    told = history(arguments.folder)
    if arguments.json:
        console.as_json(told)
    else:
        console.show(history_report.report(told, epochs=arguments.epochs, price=arguments.price))
    return 0
