"""The log that `fix` appends to, `undo`, and the removal of caches that no plan names any more.

``pipefix.log.jsonl`` is a record for people: appended to, never obeyed. No path of what is removed comes from a file: a cache goes
where it bears a name that `fix` gives, says itself that it is ours, and no plan in the folder, backups included, names it; what is
removed of it, and what is left, is decided by `pipefix.caches.folder`.
"""

from __future__ import annotations

import datetime
import errno
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import msgspec

from pipefix.caches import folder as cache_folder
from pipefix.fixes.outcome import Undone
from pipefix.plan import backups, planfile
from pipefix.plan.planfile import CACHES
from pipefix.vocabulary import files, versioned
from pipefix.vocabulary.errors import BadUsage, UnreadableFile
from pipefix.vocabulary.folder_lock import taken

LOG = "pipefix.log.jsonl"
_CALLED = re.compile(r"pipefix\.log\.jsonl\Z")
NAMES = ("source", "resized-256", "decoded", "sample")


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    at: str = ""
    event: str
    """started, refused, begun, kept, dropped, undone, removed or ended."""
    step: Annotated[int, msgspec.Meta(ge=0, le=2**53)] | None = None
    id: str | None = None
    """Of the remedy."""
    target: str | None = None
    pipefix: str | None = None
    makes: str | None = None
    """What the step puts on the disk, relative to the log."""
    why: str | None = None
    predicted: Any = None
    measured: Any = None
    same: Any = None


class Log:
    """The log of one folder, which is made where it is missing; held by one process at a time, where the file system has locks.
    Reads and writes through the one open file that bears the lock."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, folder / LOG
        self._file: Any = None
        self._entries: list[Entry] = []
        """Those that were there before this process wrote any."""
        self._is_new = False
        self.unwritten: list[str] = []
        """A sentence where lines could not be written."""

    def __enter__(self) -> Log:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._is_new = not os.path.lexists(self.path)
            self._file = files.open_own(self.path)
            held = taken(self._file, needed=False)
        except OSError as error:
            what = f"The log {self.path} cannot be written" if os.path.isdir(self.folder) else f"{self.folder} cannot be made"
            advice = "Choose a directory that you may write to: --out DIR"
            raise UnreadableFile(f"{what}: {error.strerror or error}.", advice=advice) from error
        if not held:
            self._file.close()
            problem = f"Another pipefix fix is at work in {self.folder}."
            raise BadUsage(problem, advice="Wait until it is done, or give this one --out DIR.")
        self._file.seek(0)
        try:
            self._entries = read_entries(self._file.read(), origin=str(self.path))
        except UnreadableFile:
            self._file.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_new and not os.fstat(self._file.fileno()).st_size:
            files.remove(self.path, _CALLED)
        self._file.close()

    def write(self, event: str, **facts: Any) -> None:
        """Append one line and bring it to the disk. Where that cannot be done, what it tells of holds all the same."""
        entry = Entry(at=datetime.datetime.now().astimezone().isoformat(timespec="seconds"), event=event, **facts)
        line = versioned.text(entry, indent=False).encode()
        try:
            size = self._file.seek(0, os.SEEK_END)
            if size:
                self._file.seek(size - 1)
                if self._file.read(1) != b"\n":
                    line = b"\n" + line  # a line that was cut short stays, and is passed over by readers
            if self._file.write(line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(self._file.fileno())
        except OSError as error:
            self.unwritten = [f"The log {self.path} could not be written to its end: {error.strerror or error}."]

    def name_of(self, step: int) -> str:
        """What an earlier run called a step that it made, for people to read; empty where the log does not say."""
        made = (entry for entry in reversed(self._entries) if entry.event in ("begun", "kept") and entry.step == step)
        return next((entry.id or "" for entry in made), "")


def read_entries(data: bytes, *, origin: str) -> list[Entry]:
    """Every whole line. One that was cut short by a crash is passed over; a file of something else is refused."""
    entries, unread = [], 0
    for line in data.split(b"\n"):
        if not line.strip():
            continue
        try:
            entries.append(msgspec.json.decode(line, type=Entry, strict=False))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            unread += 1
    if unread and not entries and data.endswith(b"\n"):
        problem = f"{origin} is not a log of pipefix fix: none of its lines can be read."
        raise UnreadableFile(problem, advice="Give fix another folder: --out DIR")
    return entries


# -- caches that fix made -----------------------------------------------------------------------------------------------------


def unused(folder: Path) -> list[str]:
    """Caches of ours, finished or begun, that no plan in ``folder`` names, relative to it."""
    ours = [f"{CACHES}/{name}" for name in NAMES if cache_folder.is_ours(folder / CACHES / name)]
    if not ours:
        return []
    named = _named(folder)
    return [] if named is None else [path for path in ours if os.path.realpath(folder / path) not in named]


def _named(folder: Path) -> set[str] | None:
    """Real paths of the caches that the plans in a folder name, however they write them; None where one may name any."""
    named = set()
    for path in sorted(folder.glob("*.toml")):
        if backups.is_undone(path):
            continue
        try:
            text = planfile.text_of(path)
            plan = planfile.decode(text, origin=path.name) if text else None
        except UnreadableFile:
            mentioned = b""
            with suppress(OSError):
                mentioned = files.read_regular(path, planfile.LARGEST)
            if path.stem.startswith(Path(planfile.NAME).stem) or CACHES.encode() in mentioned:
                return None
            continue
        if plan is not None and plan.cache is not None:
            named.add(os.path.realpath(folder / plan.cache.path))
    return named


def remove_unused(folder: Path, only: str | None = None) -> tuple[list[str], list[str]]:
    """What is removed, and sentences on what is not, and why. ``only``: no other than this one."""
    removed, left = [], []
    for path in unused(folder):
        if only is not None and path != only:
            continue
        why = f"{CACHES} is a symbolic link" if (folder / CACHES).is_symlink() else cache_folder.remove(folder / path)
        if why is None:
            removed.append(path)
        else:
            left.append(f"{path} is left alone: {why}.")
    if removed:
        files.remove_empty_folder(folder / CACHES)
    return removed, left


def settle(folder: Path) -> int | None:
    """Clear up what an interrupted run left of its writing. The number of a change that was begun and never made."""
    files.remove_drafts(folder)
    return backups.drop_unused(folder / planfile.NAME)


def undo(folder: Path) -> Undone:
    """Take back the last change of the plan; or, after an interruption, no more than what that left."""
    plan = folder / planfile.NAME
    if not backups.numbers(plan) and not unused(folder):
        nothing = "no backup of a plan (pipefix.plan.before-1.toml), and no cache of fix's that no plan names"
        problem = f"There is nothing to take back in {folder}: {nothing}."
        raise BadUsage(problem, advice="Name its folder: pipefix fix --undo --out DIR")
    with Log(folder) as log:
        dropped = settle(folder)
        removed, left = remove_unused(folder)
        finished = dropped is None and not removed and bool(backups.numbers(plan))
        number, undone_plan = dropped or 0, None
        if finished:
            number, undone_plan = backups.put_back(plan)
            removed, left = remove_unused(folder)
        name = log.name_of(number)
        log.write("undone" if finished else "dropped", step=number, id=name, why=None if finished else "it was not in effect")
        for cache in removed:
            log.write("removed", makes=cache)
        return Undone(
            folder=str(folder), id=name, step=number, finished=finished, removed=removed,
            plan=planfile.NAME if plan.exists() else None, kept_as=undone_plan.name if undone_plan is not None else None,
            left_alone=[*left, *log.unwritten],
        )  # fmt: skip
