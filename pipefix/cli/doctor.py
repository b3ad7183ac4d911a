"""Look for mistakes in the machine's and the loader's settings, without measuring a pipeline.

With a TARGET the loader's own settings are audited too; loading a target runs its code.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from pipefix.cli import console


def prepare_parser(parser: ArgumentParser) -> None:
    parser.usage = "pipefix doctor [TARGET] [options]"
    parser.add_argument("target", metavar="TARGET", nargs="?", help="what to audit (default: the machine alone)")
    parser.add_argument("--json", action="store_true", help="print machine and findings as JSON")


def run(arguments: Namespace) -> int:
    with console.stdout_reserved():
        from pipefix import api

        machine, findings = api.doctor(arguments.target)
    if arguments.json:
        import msgspec

        text = msgspec.json.format(msgspec.json.encode({"machine": machine, "audit": findings}), indent=1)
        console.results([text.decode("utf-8")])
    else:
        from pipefix.report import checkup

        console.results(checkup.lines(machine, findings, **console.manner()))
    return 0
