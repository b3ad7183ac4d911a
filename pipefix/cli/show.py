"""Print a run file that probe --out wrote, or turn it into an HTML report. Nothing is measured.

RUN is the file's name, the folder that pipefix run wrote, or - for standard input.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace

import pipefix
from pipefix.cli import arguments, destination
from pipefix.cli.deliver import deliver


def prepare_parser(parser: ArgumentParser) -> None:
    parser.usage = "pipefix show RUN [options]"
    parser.add_argument("run", metavar="RUN", help="a run file (JSON), or a folder of pipefix run")
    parser.add_argument("--full", action="store_true", help="print every figure, the verdict last")
    parser.add_argument("--json", action="store_true", help="print the run file as this version of pipefix reads it")
    arguments.add_html(parser)


def run(arguments: Namespace) -> int:
    from pipefix.report import runfile
    from pipefix.report.shown import shown

    destination.check(html=arguments.html)
    if arguments.run == "-":
        data = sys.stdin.buffer.read() if sys.stdin is not None else b""  # None: it is closed
        run = shown(runfile.decode(data, origin="standard input"))
    else:
        run = pipefix.load(arguments.run)
    deliver(run, json=arguments.json, full=arguments.full, html=arguments.html)
    return 0
