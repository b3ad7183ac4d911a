"""The parser: argparse, with errors that are raised rather than printed, and a suggestion for what was mistyped."""

from __future__ import annotations

import difflib
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from pipefix.cli.command import Command, description
from pipefix.vocabulary.errors import BadUsage
from pipefix.vocabulary.version import VERSION

EPILOG = "Start with: pipefix probe TARGET. Each command explains itself: pipefix COMMAND --help"


class Parser(ArgumentParser):
    """Raises `BadUsage` where argparse would print and leave."""

    def __init__(self, **settings: Any) -> None:
        settings.setdefault("formatter_class", RawDescriptionHelpFormatter)
        super().__init__(allow_abbrev=False, **settings)

    def error(self, message: str) -> NoReturn:
        raise BadUsage(f"{self.prog}: {message}", advice=f"See what it takes with: {self.prog} --help")

    def flags(self) -> list[str]:
        return list(self._option_string_actions)


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word somebody who typed ``word`` most likely meant."""
    names = list(known)
    begun = [name for name in names if len(word) > 3 and name.startswith(word)]
    return next(iter(begun or difflib.get_close_matches(word, names, n=1)), None)


def build(commands: dict[str, Command]) -> tuple[Parser, dict[str, Parser]]:
    top = Parser(
        prog="pipefix",
        usage="pipefix COMMAND ...",
        description="Finds out what is slow in a PyTorch data pipeline, and what each fix is worth.",
        epilog=EPILOG,
    )
    top.add_argument("--version", action="version", version=f"pipefix {VERSION}")
    choices = top.add_subparsers(dest="command", metavar="COMMAND", title="commands", required=True)
    parsers: dict[str, Parser] = {}
    for name, command in commands.items():
        first, whole = description(command)
        parsers[name] = choices.add_parser(name, prog=f"pipefix {name}", help=first, description=whole)
        command.prepare_parser(parsers[name])
    return top, parsers


def parse(argv: Sequence[str], commands: dict[str, Command]) -> Namespace:
    top, parsers = build(commands)
    word = argv[0] if argv else "--help"
    if not word.startswith("-") and word not in parsers:
        meant = nearest(word, parsers)
        others = f"Its commands are {', '.join(parsers)}; start with: pipefix probe TARGET"
        raise BadUsage(f"pipefix has no command {word!r}.", advice=f"Did you mean: pipefix {meant}?" if meant else others)
    if word.startswith("-") and word not in top.flags():
        _refuse([word], top)
    arguments, unknown = top.parse_known_args(argv or ["--help"])
    if unknown:
        _refuse(unknown, parsers[arguments.command])
    return arguments


def _refuse(unknown: list[str], parser: Parser) -> NoReturn:
    flags = [word for word in unknown if word.startswith("-") and word != "-"]
    if not flags:
        raise BadUsage(
            f"{parser.prog}: {unknown[0]!r} is one argument too many.", advice=f"See what it takes with: {parser.prog} --help"
        )
    flag = flags[0].split("=", 1)[0]
    meant = nearest(flag, parser.flags())
    advice = f"Did you mean {meant}?" if meant else f"See what it takes with: {parser.prog} --help"
    raise BadUsage(f"{parser.prog}: there is no flag {flag}.", advice=advice)
