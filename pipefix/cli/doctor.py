"""Look for mistakes in the machine's and the loader's settings, without measuring a pipeline.

With a TARGET the loader's own settings are audited too; loading a target runs its code.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

import pipefix
from pipefix.cli import arguments, console


def prepare_parser(parser: ArgumentParser) -> None:
    parser.usage = "pipefix doctor [TARGET] [options]"
    arguments.add_target(parser, "what to audit (default: the machine alone)", optional=True)
    parser.add_argument("--json", action="store_true", help="print machine and findings as JSON")


def run(arguments: Namespace) -> int:
    with console.stdout_reserved():
        machine, findings = pipefix.doctor(arguments.target)
    if arguments.json:
        console.as_json({"machine": machine, "audit": findings})
    else:
        from pipefix.report import doctor_report

        console.show(doctor_report.report(machine, findings))
    return 0
