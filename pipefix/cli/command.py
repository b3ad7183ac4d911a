"""Finds the commands (modules with `prepare_parser` and `run`; the docstring is the help) and calls a command's verb.

Nothing has to be registered: `find` walks the package. A command imports what it needs inside `run`; ``--help`` stays quick.
"""

from __future__ import annotations

import importlib
import os
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, cast

import pipefix
import pipefix.cli as package


class Command(Protocol):
    """With ``TAKES_PROGRAM = True`` a command may be given a program, TARGET -- ARGUMENTS. These are ``arguments.program``."""

    def prepare_parser(self, parser: ArgumentParser) -> None:
        """Add the command's arguments."""

    def run(self, arguments: Namespace) -> int:
        """Do it, and return the exit code."""


def find() -> dict[str, Command]:
    """Every command by the name a user types."""
    commands: dict[str, Command] = {}
    names = {name.partition(".")[0] for place in package.__path__ for name in os.listdir(place) if name.endswith((".py", ".pyc"))}
    for name in sorted(names - {"__init__"}):  # pkgutil would load inspect for this, which takes longer than the rest
        module = importlib.import_module(f"{package.__name__}.{name}")
        if hasattr(module, "prepare_parser") and hasattr(module, "run"):
            commands[name.replace("_", "-")] = cast(Command, module)
    return commands


_OF_THE_COMMAND = frozenset({"arg", "color", "command", "full", "html", "json", "program", "quiet", "target"})
"""What a command answers to itself."""


def options(arguments: Namespace, *own: str) -> dict[str, Any]:
    """What was typed, for the verb: options have the names of its parameters, but for those that are the command's ``own``."""
    return {name: value for name, value in vars(arguments).items() if name not in _OF_THE_COMMAND and name not in own}


def used(verb: str, arguments: Namespace) -> Callable[..., Any]:
    """The verb on the target; or inside the program, where one was given or the target is one."""
    from pipefix.api.in_program import imported_or_run, in_program

    if arguments.program is None:
        return partial(imported_or_run, getattr(pipefix, verb), arguments.target)
    return partial(in_program, verb, [arguments.target, *arguments.program])
