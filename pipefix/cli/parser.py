"""The command line parser: argparse whose errors are raised, not printed, with a suggestion for what was mistyped."""

from __future__ import annotations

import os
import re
import textwrap
from argparse import REMAINDER, Action, ArgumentError, ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Sequence
from types import ModuleType
from typing import Any, NoReturn

from pipefix.cli import console, defaults
from pipefix.cli.command import nearest
from pipefix.vocabulary.commands import command as written
from pipefix.vocabulary.errors import BadUsage
from pipefix.vocabulary.version import VERSION

EPILOG = "Start with: pipefix run train.py, or pipefix probe TARGET. Each command explains itself: pipefix COMMAND --help"
FIRST = ("run", "probe", "fix")
"""What a newcomer needs is listed first, in this order."""
_NEGATIVE = re.compile(r"-[.\d]")


class Wrapped(RawDescriptionHelpFormatter):
    """Paragraphs as wide as the terminal, each by itself; lines that are indented stay as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        filled = (each if "\n " in each else textwrap.fill(" ".join(each.split()), width) for each in text.strip().split("\n\n"))
        return "\n\n".join(filled)


class Parser(ArgumentParser):
    """Raises `BadUsage` where argparse would print and leave."""

    def __init__(self, **settings: Any) -> None:
        settings.setdefault("formatter_class", Wrapped)
        super().__init__(allow_abbrev=False, **settings)

    def error(self, message: str) -> NoReturn:
        raise BadUsage(f"{self.prog}: {message}", advice=f"See what it takes with: {self.prog} --help")

    def _print_message(self, message: str, file: Any = None) -> None:
        """What argparse prints is help and versions. Where it cannot be written, argparse says nothing."""
        console.print_lines(message.splitlines())

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Namespace, list[str]]:
        return super().parse_known_args(self._with_values_joined(list(args or ())), namespace)

    def _with_values_joined(self, words: list[str]) -> list[str]:
        """Flags with their values where argparse would read something else.

        A flag whose value may be left out takes one after ``=`` only: what follows it is the first word of a program. A value
        such as ``-5%``, which no flag takes, is refused for what it is, and not as a flag that is not known.
        """
        known, joined = self._option_string_actions, list[str]()
        for place, word in enumerate(words):
            flag = known.get(joined[-1]) if joined else None
            waits = flag is not None and flag.nargs is None
            if self.takes_program and not waits and not word.startswith("-"):
                return joined + words[place:]
            if waits and _NEGATIVE.match(word):
                joined[-1] += f"={word}"
            elif word in known and known[word].nargs == "?":
                joined.append(f"{word}={known[word].const}")
            else:
                joined.append(word)
        return joined

    def _check_value(self, action: Action, value: Any) -> None:
        try:
            super()._check_value(action, value)
        except ArgumentError as error:
            meant = nearest(str(value).lower(), map(str, action.choices or ()))
            if meant is None:
                raise
            raise BadUsage(f"{self.prog}: {error}", advice=f"Did you mean {meant}?") from error

    @property
    def takes_program(self) -> bool:
        """Whether all from the first word on belongs to a program."""
        return any(action.nargs == REMAINDER for action in self._actions)

    def flags(self) -> list[str]:
        return list(self._option_string_actions)

    def unknown_flags(self, words: Sequence[str]) -> list[str]:
        """Those that are no flags of this command, nor numbers."""
        dashed = [word for word in words if word.startswith("-") and word != "-" and not _NEGATIVE.match(word)]
        return [word for word in dashed if word.partition("=")[0] not in self._option_string_actions]


def build(commands: dict[str, ModuleType]) -> tuple[Parser, dict[str, Parser]]:
    about = "Finds out what is slow in a PyTorch data pipeline, and what each fix is worth."
    top = Parser(prog="pipefix", usage="pipefix COMMAND ...", description=about, epilog=EPILOG)
    top.add_argument("-V", "--version", action="version", version=f"pipefix {VERSION}")
    choices = top.add_subparsers(dest="command", metavar="COMMAND", title="commands", required=True)
    parsers: dict[str, Parser] = {}
    for name in sorted(commands, key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST)):
        command = commands[name]
        text = (command.__doc__ or "").strip()
        parsers[name] = choices.add_parser(name, prog=f"pipefix {name}", help=text.split("\n", 1)[0], description=text)
        command.prepare_parser(parsers[name])
        if getattr(command, "TAKES_PROGRAM", False):
            parsers[name].add_argument("-m", dest="is_module", action="store_true", help="TARGET is a module, run as a program")
        parsers[name].add_argument("--color", choices=console.COLORS, default="auto", help="whether text is coloured")
    return top, parsers


def parse(argv: Sequence[str], commands: dict[str, ModuleType]) -> Namespace:
    top, parsers = build(commands)
    argv = command_first(list(argv))
    word = argv[0] if argv else "--help"
    if not word.startswith("-") and word not in parsers:
        meant = written("run", word) if word.endswith(".py") else nearest(word.lower(), parsers)
        others = f"Its commands are {', '.join(sorted(parsers))}; start with: pipefix probe TARGET"
        raise BadUsage(f"pipefix has no command {word!r}.", advice=f"Did you mean: pipefix {meant}?" if meant else others)
    if word.startswith("-") and word not in top.flags():
        _refuse([word], top)
    words, program = list(argv), None
    if getattr(commands.get(word), "TAKES_PROGRAM", False) and "--" in words:
        words, program = words[: words.index("--")], words[words.index("--") + 1 :]
    defaults.apply(parsers, word, words[1:])
    try:
        arguments, unknown = top.parse_known_args(words or ["--help"])
    except BadUsage as error:
        unknown = [] if parsers[word].takes_program else parsers[word].unknown_flags(words[1:])
        if unknown and "are required" in str(error):
            _refuse(unknown, parsers[word])
        raise
    arguments.program = program
    if getattr(arguments, "is_module", False) and arguments.target is not None:
        arguments.target, arguments.program = "-m", [arguments.target, *(program or ())]
    if unknown:
        _refuse(unknown, parsers[arguments.command])
    return arguments


def command_first(argv: list[str]) -> list[str]:
    """``help``, ``help COMMAND``, ``version``, and ``--color never`` or ``-q`` before the command are what people type as well."""
    before = 0
    while argv[before:] and argv[before].partition("=")[0] in ("--color", "-q", "--quiet"):
        before += 2 if argv[before] == "--color" else 1
    if argv[before:]:
        argv = [argv[before], *argv[:before], *argv[before + 1 :]]
    if argv[:1] == ["help"]:
        return [*argv[1:2], "--help"]
    return ["--version"] if argv[:1] == ["version"] else argv


def _refuse(unknown: list[str], parser: Parser) -> NoReturn:
    flags, see = [word for word in unknown if word.startswith("-") and word != "-"], f"See what it takes with: {parser.prog} --help"
    if not flags:
        is_unit = re.fullmatch(r"%|[a-zA-Z]{1,3}", unknown[0])
        advice = "A number and its unit are one word, such as 8GB, 90s or 5%." if is_unit else see
        raise BadUsage(f"{parser.prog}: {unknown[0]!r} is one argument too many.", advice=advice)
    flag = flags[0].split("=", 1)[0]
    meant = nearest(flag, parser.flags())
    advice = f"Did you mean {meant}?" if meant else see
    if parser.prog == "pipefix run":
        advice = f"Flags of the program's own come after it: pipefix run train.py {flag} ... {advice}"
    elif "-m" in parser.flags():
        advice = f"A program's own arguments come after --: {parser.prog} train.py -- {flag} ... {advice}"
    if os.path.exists(flag):
        advice = f"The file of that name is written ./{flag}"
    if flag == "-m":
        advice = "A module is run as a program, and its loader probed there, by: pipefix run --probe -m MODULE"
    raise BadUsage(f"{parser.prog}: there is no flag {flag}.", advice=advice)
