"""Refuses output paths that cannot be written, or that hold a file of somebody else, before the work starts."""

from __future__ import annotations

import os
import re
from pathlib import Path

from pipefix.vocabulary.commands import command
from pipefix.vocabulary.errors import BadUsage, UnreadableFile

_MARKS = {
    "out": re.compile(rb'\s*{\s*"format"\s*:\s*"pipefix\.run/'),
    "html": re.compile(rb'.*<meta name="generator" content="pipefix">', re.S),
    "trace": re.compile(rb'\s*{\s*"otherData"\s*:\s*{\s*"writer"\s*:\s*"pipefix"'),
    "plan": re.compile(rb'.*^format = "pipefix\.plan/', re.S | re.M),
}
"""What each kind of file of ours begins with, as no other program would write it."""
_NAMES = {"out": "run.json", "html": "report.html", "trace": "trace.json", "plan": "pipefix.plan.toml"}
_FLAGS = {"plan": "--write"}
"""Where a file is named by another flag than its kind."""
_HEAD = 65536


def check(of_all: str = "", /, **places: Path | None) -> None:
    """Make sure that each flag's file can be written and that nothing of somebody else's would be lost. ``of_all``: the one flag
    that names the folder of all of them."""
    taken: dict[Path, str] = {}
    for name, path in places.items():
        if path is None:
            continue
        flag = of_all or _FLAGS.get(name, f"--{name}")
        where = Path(os.path.abspath(path))
        if where in taken:
            raise BadUsage(f"{taken[where]} and {flag} name the same file, {path}.", advice="Give each its own name.")
        taken[where] = flag
        if where.exists() and not where.is_file() and not where.is_dir():
            continue  # a pipe or a device, such as /dev/stdout, is written straight
        _check_folder(where, flag, _NAMES[name])
        if where.exists():
            _check_existing(where, flag, _MARKS[name])


def _check_folder(path: Path, flag: str, name: str) -> None:
    import tempfile

    folder = path.parent
    if path.is_dir():
        raise BadUsage(f"{flag} {path} is a directory, not a file.", advice=f"Name a file in it: {command(flag, path / name)}")
    if not folder.exists():
        make = command("mkdir", "-p", folder)
        raise BadUsage(f"{flag} {path}: the directory {folder} does not exist.", advice=f"Make it first: {make}")
    if not folder.is_dir():
        raise BadUsage(f"{flag} {path}: {folder} is a file, not a directory.", advice="Name a file in a directory of your own.")
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UnreadableFile(
            f"{flag} {path}: nothing can be written in {folder}: {error.strerror or error}.",
            advice=f"Choose a directory that you may write to, such as {command(flag, Path(tempfile.gettempdir()) / path.name)}",
        ) from error


def _check_existing(path: Path, flag: str, mark: re.Pattern[bytes]) -> None:
    """An older report may be replaced; anything else (a training script, say) may not."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except FileNotFoundError:
        return  # a rank that starts at the same time has removed it just now
    except OSError as error:
        unread = f"{flag} {path}: the file exists and cannot be read: {error.strerror or error}."
        raise UnreadableFile(unread, advice="Choose another name.") from error
    if head and not mark.match(head):
        problem = f"{flag} {path}: the file exists and is not one that {flag} writes; it will not be replaced."
        raise BadUsage(problem, advice=f"Choose another name, or remove it first: {command('rm', path)}")
