"""Reads defaults of options from ``[tool.pipefix]`` in pyproject.toml and from variables such as ``PIPEFIX_BUDGET=20s``.

What is typed counts most, then the environment, then the table of the command, ``[tool.pipefix.probe]``, then ``[tool.pipefix]``.
Only options that take a value, and a few switches that change how much is told, can be set so: what writes, removes or agrees to
something is typed.
"""

from __future__ import annotations

import os
from argparse import Action, ArgumentParser, ArgumentTypeError
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pipefix.cli.command import nearest
from pipefix.vocabulary.errors import BadUsage, UnreadableFile

FILE, PREFIX = "pyproject.toml", "PIPEFIX_"
SWITCHES = frozenset({"quiet", "full"})
TYPED = frozenset({"arg", "out", "html", "trace", "write", "fail_on", "only", "run", "to"})
"""Options with a value that belong to one call: files to write would be written by every one."""


def apply(parsers: Mapping[str, ArgumentParser], command: str, typed: Sequence[str]) -> None:
    """Set the defaults of a command's options; those that cannot stand beside what counts more are left."""
    parser = parsers.get(command)
    if parser is None:
        return
    table = _table(Path.cwd(), parsers)
    # A table of a command is no value of the option of that name, such as --run.
    general = {name: value for name, value in table.items() if name not in parsers}
    settable, settled = _settable(parser), _excluded(parser, typed)
    environment: dict[str, Any] = {_name(action): os.environ.get(PREFIX + action.dest.upper()) or None for action in settable}
    for settings in (environment, table.get(command, {}), general):
        new = [action for action in settable if settings.get(_name(action)) is not None and action not in settled]
        for action in new:
            value = str(settings[_name(action)])
            is_on = value.lower() in ("1", "true", "yes", "on")
            action.default = is_on if action.nargs == 0 else _checked(action, value)
        settled += new + _excluded(parser, [option for action in new for option in action.option_strings])


def _settable(parser: ArgumentParser) -> list[Action]:
    valued = [action for action in parser._actions if action.option_strings and action.dest not in TYPED]
    return [action for action in valued if action.nargs is None or action.dest in SWITCHES]


def _name(action: Action) -> str:
    """As it is typed, without the dashes."""
    return max(action.option_strings, key=len).lstrip("-")


def _excluded(parser: ArgumentParser, typed: Sequence[str]) -> list[Action]:
    """Options that exclude one which was typed."""
    words = {word.partition("=")[0] for word in typed}
    groups = [group._group_actions for group in parser._mutually_exclusive_groups]
    return [action for group in groups if any(words & set(member.option_strings) for member in group) for action in group]


def _checked(action: Action, text: str) -> str:
    wrong = ""
    if action.choices is not None and text not in action.choices:
        wrong = f"{_name(action)} cannot be {text!r}: it is one of {', '.join(action.choices)}."
    if callable(action.type):
        try:
            action.type(text)
        except (ArgumentTypeError, ValueError) as error:
            wrong = f"{_name(action)}, which was not typed: {error}"
    if wrong:
        raise BadUsage(wrong, advice=f"Mend it in {FILE}, or in the environment ({PREFIX}{action.dest.upper()}).")
    return text  # argparse reads a text as if it had been typed


def _table(folder: Path, parsers: Mapping[str, ArgumentParser]) -> dict[str, Any]:
    """``[tool.pipefix]`` of the nearest pyproject.toml, here or above; empty where there is none."""
    path = next((place / FILE for place in (folder, *folder.parents) if (place / FILE).is_file()), None)
    try:
        text = path.read_text(encoding="utf-8") if path is not None else ""
    except (OSError, UnicodeDecodeError):
        return {}
    if "tool.pipefix" not in text:
        return {}
    import msgspec

    try:
        table = _as_table(_as_table(msgspec.toml.decode(text), "tool"), "pipefix")
        for command in set(table) & set(parsers):
            _as_table(table, command)
    except (ValueError, RecursionError) as error:
        raise UnreadableFile(f"{path} cannot be read: {error}.", advice="Mend it: pipefix takes its defaults from it.") from error
    _refuse_unknown(path, None, table, parsers)
    for command in table.keys() & parsers.keys():
        _refuse_unknown(path, command, table[command], parsers)
    return dict(table)


def _as_table(holder: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    held = holder.get(name, {})
    if not isinstance(held, dict):
        raise ValueError(f"{name} is no table")
    return held


def _refuse_unknown(path: Path | None, command: str | None, names: Iterable[str], parsers: Mapping[str, ArgumentParser]) -> None:
    """A name that no option has is a mistake that would otherwise never be told."""
    where = [parsers[command]] if command else list(parsers.values())
    known = {_name(action) for parser in where for action in _settable(parser)} | (set() if command else set(parsers))
    for name in sorted(set(names) - known):
        meant = nearest(name, known)
        table = f"[tool.pipefix.{command}]" if command else "[tool.pipefix]"
        problem = f"{path}: {table} sets {name!r}, which can be set for no command."
        raise BadUsage(problem, advice=f"Did you mean {meant!r}?" if meant else f"It may set: {', '.join(sorted(known))}.")
