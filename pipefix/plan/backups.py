"""Numbered backups beside a plan file: what it held before each change that pipefix made, to be put back by one rename.

``pipefix.plan.before-3.toml`` is the plan as it was before the third change, to the letter; empty where there was none. The newest
is what undo puts back; the plan that gives way stays as ``pipefix.plan.undone-3.toml``, edits included. Nothing of it is parsed.
"""

from __future__ import annotations

import errno
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipefix.plan import planfile
from pipefix.vocabulary import files
from pipefix.vocabulary.errors import UnreadableFile
from pipefix.vocabulary.quantity import size

PLAN = re.compile(r"[^.].*\.\w+\Z")
BACKUP = re.compile(r"[^.].*\.before-[1-9]\d*\.\w+\Z")
_AGAIN = "Make room, and run the same command again: what held before still holds."


def before(plan: Path, number: int) -> Path:
    return plan.with_name(f"{plan.stem}.before-{number}{plan.suffix}")


def undone(plan: Path, number: int) -> Path:
    return plan.with_name(f"{plan.stem}.undone-{number}{plan.suffix}")


def is_undone(path: Path) -> bool:
    """Whether a file is called as plans that gave way to a backup are."""
    return re.search(r"\.undone-[1-9]\d*\Z", path.stem) is not None


def numbers(plan: Path) -> list[int]:
    """Of the backups that are there. Links and whatever else is no file are none."""
    return [number for number, path in _numbered(plan, "before") if stat.S_ISREG(path.lstat().st_mode)]


def next_number(plan: Path) -> int:
    """One that neither a backup nor a plan that gave way has."""
    return max((number for kind in ("before", "undone") for number, _ in _numbered(plan, kind)), default=0) + 1


def _numbered(plan: Path, kind: str) -> list[tuple[int, Path]]:
    pattern = re.compile(re.escape(f"{plan.stem}.{kind}-") + r"([1-9]\d{0,8})" + re.escape(plan.suffix))
    paths = list(plan.parent.iterdir()) if plan.parent.is_dir() else []
    return sorted((int(match[1]), path) for path in paths if (match := pattern.fullmatch(path.name)))


def replace(plan: Path, text: str) -> int:
    """Put ``text`` in the plan's place, whole or not at all, with a backup of what was there. The backup's number."""
    number, held = next_number(plan), _held(plan)
    with _told(plan, "written"):
        files.write_whole(before(plan, number), held or b"")
    try:
        planfile.write_text(text, plan, advice=_AGAIN)
    except UnreadableFile:
        with _told(plan, "written"):
            files.remove(before(plan, number), BACKUP)
        raise
    return number


def drop_unused(plan: Path) -> int | None:
    """Take away the newest backup where it holds what the plan does: its change was never made, or is gone. Its number."""
    number = max(numbers(plan), default=None)
    if number is None or _held(before(plan, number)) != (_held(plan) or b""):
        return None
    with _told(plan, "put back"):
        files.remove(before(plan, number), BACKUP)
    return number


def put_back(plan: Path, *, written: str | None = None) -> tuple[int, Path | None]:
    """Put the newest backup in the plan's place.

    Args:
        plan: with a backup at least.
        written: what pipefix wrote there itself, of which nothing need be kept.

    Returns:
        The backup's number, and where the plan that gave way is kept; None where there was none, or it is as it was written.
    """
    number, held = max(numbers(plan)), _held(plan)
    older, aside = before(plan, number), undone(plan, number)
    keeps = held is not None and held != (written or "").encode()
    with _told(plan, "put back"):
        if _held(older):
            if held is not None and keeps:
                files.write_whole(aside, held)
            files.move(older, plan, PLAN)
            return number, aside if keeps else None
        # There was no plan: it goes out of the way, and then the sign that there was none.
        if held is not None and keeps:
            files.move(plan, aside, PLAN)
        elif held is not None:
            files.remove(plan, PLAN)
        files.remove(older, BACKUP)
    return number, aside if keeps else None


def _held(path: Path) -> bytes | None:
    """What a plan or a backup holds; None where there is none. An `UnreadableFile` where it is no regular file."""
    try:
        with _told(path, "read"):
            held = files.read_regular(path, planfile.LARGEST + 1)
            if len(held) > planfile.LARGEST:
                raise OSError(errno.EFBIG, f"it is longer than {size(planfile.LARGEST)}")
            return held
    except UnreadableFile as error:
        if isinstance(error.__cause__, FileNotFoundError) and not path.is_symlink():
            return None
        raise


@contextmanager
def _told(path: Path, action: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UnreadableFile(f"The plan file {path} could not be {action}: {error.strerror or error}.", advice=_AGAIN) from error
