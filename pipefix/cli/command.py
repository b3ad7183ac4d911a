"""Finds the commands, by what was mistyped too, and calls a command's verb.

A command is a module with ``prepare_parser(parser)``, which adds its arguments, and ``run(arguments)``, which does it and returns
an exit code; its docstring is its help. With ``TAKES_PROGRAM = True`` it may be given a program, TARGET -- ARGUMENTS: these are
``arguments.program``. Nothing has to be registered: `find` walks the package. What a command needs is imported inside ``run``, so
that ``--help`` stays quick.
"""

from __future__ import annotations

import importlib
import os
from argparse import Namespace
from collections.abc import Callable, Iterable
from functools import partial
from types import ModuleType
from typing import Any

import pipefix
import pipefix.cli as package


def find() -> dict[str, ModuleType]:
    """Every command by the name a user types."""
    commands = {}
    names = {name.partition(".")[0] for place in package.__path__ for name in os.listdir(place) if name.endswith((".py", ".pyc"))}
    for name in sorted(names - {"__init__"}):  # pkgutil would load inspect for this, which takes longer than the rest
        module = importlib.import_module(f"{package.__name__}.{name}")
        if hasattr(module, "prepare_parser") and hasattr(module, "run"):
            commands[name.replace("_", "-")] = module
    return commands


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that somebody who typed ``word`` most likely meant."""
    import difflib

    names = list(known)
    begun = [name for name in names if len(word) > 3 and name.startswith(word)]
    return next(iter(begun or difflib.get_close_matches(word, names, n=1)), None)


_OF_THE_COMMAND = frozenset({"arg", "color", "command", "full", "html", "is_module", "json", "program", "quiet", "target"})
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
