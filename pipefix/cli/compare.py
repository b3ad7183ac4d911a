"""Compare two run files: what became faster or slower, and whether the difference is more than noise.

With --max-regression the exit code is 1 where AFTER delivers less than BEFORE by more than that share, for a gate in CI.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from pipefix.cli import arguments, console
from pipefix.vocabulary.errors import GateFailed


def prepare_parser(parser: ArgumentParser) -> None:
    parser.usage = "pipefix compare BEFORE AFTER [options]"
    parser.add_argument("before", type=Path, metavar="BEFORE", help="a run file (JSON)")
    parser.add_argument("after", type=Path, metavar="AFTER", help="another one")
    parser.add_argument(
        "--max-regression", type=arguments.share, metavar="SHARE", help="exit with 1 where throughput fell by more, such as 5%%"
    )
    parser.add_argument("--json", action="store_true", help="print what changed as JSON instead of text")
    parser.add_argument("--force", action="store_true", help="compare runs of different machines or targets all the same")


def run(arguments: Namespace) -> int:
    from pipefix.report import compare, runfile

    before, after = runfile.read(arguments.before), runfile.read(arguments.after)
    found = compare.compare(before, after, force=arguments.force)
    if arguments.json:
        console.results([compare.encode(found).decode("utf-8").rstrip("\n")])
    else:
        console.results(compare.lines(found, **console.manner()))
    if arguments.max_regression is not None:
        sentence = compare.gate_sentence(found, arguments.max_regression)
        if compare.regressed(found, arguments.max_regression):
            raise GateFailed(sentence)
        console.note(sentence)
    return 0
