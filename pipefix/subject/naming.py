"""Parses the words of a TARGET, as far as that goes without running any code: nothing here needs torch."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pipefix.vocabulary.commands import of_a_notebook
from pipefix.vocabulary.errors import BadUsage, TargetError
from pipefix.vocabulary.files import open_regular

_CALL = re.compile(r"(?P<name>.*:[\w.]+)\((?P<given>.*)\)", re.S)
"""``data.py:Photos(root='data')``: what is called, and with what."""


class NamedTarget(NamedTuple):
    """A directory, a file of Python, or a module that is to be imported."""

    location: str
    """As it was written."""
    path: Path | None
    """Of a directory or a file; None for a module."""
    attribute: str = ""
    """What of it is named; empty where that is to be found."""
    given: tuple[tuple[Any, ...], dict[str, Any]] = ((), {})
    """Arguments that the name is called with, as literals of Python."""


def named(target: str) -> NamedTarget:
    """What ``target`` names.

    Raises:
        TargetError: It names a file that is not there, or cannot be read as Python.
    """
    if not target.strip():
        advice = "Is it a variable that is not set? A target is FILE.py or FILE.py:name."
        raise TargetError("TARGET is an empty text.", advice=advice)
    if "://" in target.partition("(")[0]:
        advice = "Name the file that makes the dataset which reads from there: FILE.py or FILE.py:name"
        raise TargetError(f"{target!r} is an address, and a target lies on this machine.", advice=advice)
    path = Path(target).expanduser()
    if path.is_dir():
        return NamedTarget(target, path)
    called = _CALL.fullmatch(target)
    arguments = _given(called["given"] if called is not None else "", target)
    target = called["name"] if called is not None else target
    location, colon, attribute = target.rpartition(":")
    if not colon or path.is_file():
        location, attribute = target, ""
    file = Path(location).expanduser()
    if location.endswith(".py") or file.is_file():
        _refuse(file)
        return NamedTarget(location, file, attribute, arguments)
    words = (target.replace("::", ":"), f"{target}.py")
    meant = next((word for word in words if Path(re.sub(r":[^:/]*$", "", word)).expanduser().is_file()), None)
    if meant is not None:
        raise TargetError(_not_found(path), advice=f"Did you mean {meant}?")
    if colon:
        return NamedTarget(location, None, attribute, arguments)
    meant = None if path.exists() else _meant(path)
    raise TargetError(_not_found(path), advice=f"Did you mean {meant}?" if meant else None)


def _given(written: str, target: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    try:
        call = ast.parse(f"f({written})", mode="eval").body
        assert isinstance(call, ast.Call)
        positional = tuple(ast.literal_eval(argument) for argument in call.args)
        return positional, {argument.arg or "**": ast.literal_eval(argument.value) for argument in call.keywords}
    except (SyntaxError, ValueError, AssertionError) as error:
        advice = "Give texts and numbers: FILE.py:NAME --arg root=data"
        raise BadUsage(f"The arguments in {target!r} are no literals of Python.", advice=advice) from error


def with_arguments(target: str, written: Sequence[str]) -> str:
    """``data.py:Photos`` and ``["root=data"]`` as ``data.py:Photos(root='data')``, which is a target like any other.

    Raises:
        BadUsage: One of them is not NAME=VALUE, or nothing that could take them is named.
    """
    if not written:
        return target
    keywords: list[str] = []
    for argument in written:
        name, equals, value = argument.partition("=")
        if not equals or not name.isidentifier():
            raise BadUsage(f"--arg {argument!r} is not NAME=VALUE.", advice="Write it as in: --arg root=data")
        if any(keyword.partition("=")[0] == name for keyword in keywords):
            raise BadUsage(f"--arg {name} is given twice.", advice=f"Give it once: --arg {argument}")
        try:  # numbers, booleans and the like as Python writes them
            literal = ast.literal_eval(value)
        except (SyntaxError, ValueError):
            literal = value
        keywords.append(f"{name}={literal!r}")
    location, colon, _ = target.rpartition(":")
    if not colon or not location:
        message = f"--arg {written[0]} is an argument of a class or a function, and {target!r} names none."
        raise BadUsage(message, advice=f"Name it: {target}:NAME --arg {written[0]}")
    return f"{target}({', '.join(keywords)})"


def _refuse(path: Path) -> None:
    if not path.exists():
        meant, near = _meant(path), sorted(path.parent.glob("*.py"))[:5] if path.parent.is_dir() else []
        hint = f"The folder {str(path.parent)!r} holds no Python files."
        if near:
            hint = f"Python files there: {', '.join(map(str, near))}."
        advice = f"Did you mean {meant}?" if meant else f"{hint} A target is FILE.py or FILE.py:name."
        raise TargetError(f"There is no file {str(path)!r}.", advice=advice)
    if path.suffix != ".py":
        instead = of_a_notebook(str(path)) if path.suffix == ".ipynb" else None
        raise TargetError(f"{str(path)!r} cannot be imported as Python: its name must end in .py.", advice=instead)
    try:
        open_regular(path).close()
    except OSError as error:
        message = f"{str(path)!r} cannot be read: {error.strerror or error}."
        raise TargetError(message, advice="Check its permissions: ls -l FILE.py") from error


def _meant(path: Path) -> str | None:
    """The Python file beside it whose name is nearest to a mistyped one."""
    import difflib

    names = [neighbour.name for neighbour in path.parent.glob("*.py")] if path.parent.is_dir() else []
    return next((str(path.parent / name) for name in difflib.get_close_matches(path.name, sorted(names), n=1)), None)


def _not_found(path: Path) -> str:
    if path.exists():
        return f"{str(path)!r} is not a Python file or a directory."
    if path.suffix:
        return f"There is no file {str(path)!r}."
    return f"There is no file or directory {str(path)!r}, and it is not of the form package.module:name."
