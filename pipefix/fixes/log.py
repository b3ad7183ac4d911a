"""``pipefix.log.jsonl``: what was tried, kept, refused, taken back, and why. Written ahead of what it tells of; only appended to.

Whatever moment the power goes, log and plan together say what holds: a step is begun in the log before anything is made for it, and
is in effect from the moment that the plan file is replaced. `steps` reads that out of the entries, and decides nothing else.
"""

from __future__ import annotations

import datetime
import errno
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any

import msgspec

from pipefix.vocabulary.errors import BadUsage, UnreadableFile
from pipefix.vocabulary.version import VERSION

NAME = "pipefix.log.jsonl"

OPEN = ("begun", "keeping", "undoing")
"""What an interruption can leave a step in."""


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line."""

    at: str = ""
    event: str
    """started, refused, begun, keeping, kept, dropped, undoing, undone, swept, left or ended."""
    step: Annotated[int, msgspec.Meta(ge=0, le=2**53)] | None = None
    id: str | None = None
    """Of the remedy."""
    target: str | None = None
    pipefix: str | None = None
    makes: str | None = None
    """What the step puts on the disk, relative to the log."""
    before: str | None = None
    """The plan file's text before the step; None where there was none."""
    after: str | None = None
    """Its text with the step in it."""
    why: str | None = None
    predicted: Any = None
    measured: Any = None
    same: Any = None


class LoggedStep(msgspec.Struct, frozen=True, kw_only=True):
    """One change as far as it got."""

    number: int
    id: str
    status: str
    """begun, keeping, kept, dropped, undoing or undone."""
    makes: str | None = None
    before: str | None = None
    after: str | None = None
    interrupted: bool = False


def steps(entries: Sequence[Entry]) -> list[LoggedStep]:
    found: dict[int, LoggedStep] = {}
    for entry in entries:
        if entry.step is None:
            continue
        if entry.event == "begun":
            made = LoggedStep(number=entry.step, id=entry.id or "", status="begun", makes=entry.makes, before=entry.before)
            found[entry.step] = made
        elif entry.step in found:
            now = found[entry.step]
            after = entry.after if entry.event == "keeping" else now.after
            interrupted = entry.event == "dropped" and entry.why == INTERRUPTED
            found[entry.step] = msgspec.structs.replace(now, status=entry.event, after=after, interrupted=interrupted)
    return [found[number] for number in sorted(found)]


INTERRUPTED = "interrupted before it was in effect"


class Log:
    """The log of one folder, held by one process at a time. Reads and writes through the one open file that bears the lock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / NAME
        self._file: Any = None
        self.entries: list[Entry] = []
        self._read = 0
        """Entries that were there before this process wrote any."""

    def __enter__(self) -> Log:
        try:
            self._file = self._open()
        except OSError as error:
            raise UnreadableFile(
                f"The log {self.path} cannot be written: {error.strerror or error}.",
                advice="Choose a directory that you may write to: --out DIR",
            ) from error
        self._lock()
        self._file.seek(0)
        self.entries = read_entries(self._file.read(), origin=str(self.path))
        self._read = len(self.entries)
        return self

    def _open(self) -> Any:
        """The file, new or not. Through a link something else would be written to, and a pipe never ends."""
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(self.path, flags, 0o666)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError(errno.EINVAL, "it is not a regular file")
        return open(descriptor, "a+b", buffering=0)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._file.close()
        if self.path.exists() and not self.path.stat().st_size:
            self.path.unlink()

    def _lock(self) -> None:
        import fcntl

        try:
            # A record lock goes with this process, however that ends; processes forked from it do not hold it.
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise BadUsage(
                f"Another pipefix fix is at work in {self.folder}.", advice="Wait until it is done, or give this one --out DIR."
            ) from None

    def write(self, event: str, **facts: Any) -> Entry:
        """Append one line and bring it to the disk: only then does what it tells of begin."""
        entry = Entry(at=datetime.datetime.now().astimezone().isoformat(timespec="seconds"), event=event, **facts)
        line = _encoded(entry) + b"\n"
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
            raise UnreadableFile(
                f"The log {self.path} could not be written: {error.strerror or error}.",
                advice="Make room, and run the same command again: it goes on from what the log says.",
            ) from error
        self.entries.append(entry)
        return entry

    def begin(self, target: str) -> None:
        self.write("started", target=target, pipefix=VERSION)

    @property
    def left_alone(self) -> dict[str, str]:
        """What this process was to remove and did not, by its name in the log; and why."""
        return {
            entry.makes: entry.why for entry in self.entries[self._read :] if entry.event == "left" and entry.makes and entry.why
        }

    def told_left_alone(self) -> list[str]:
        return [f"{makes} is left alone: {why}." for makes, why in self.left_alone.items()]

    @property
    def steps(self) -> list[LoggedStep]:
        return steps(self.entries)

    @property
    def next_step(self) -> int:
        return max((step.number for step in self.steps), default=0) + 1


def _encoded(entry: Entry) -> bytes:
    try:
        return msgspec.json.encode(entry)
    except UnicodeEncodeError:
        return msgspec.json.encode(_writable(msgspec.to_builtins(entry)))


def _writable(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _writable(inner) for key, inner in value.items()}
    return writable(value) if isinstance(value, str) else value


def writable(text: str) -> str:
    """A file name that is not UTF-8 reaches us as lone surrogates; they are written as escapes, here and in plans."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def read_entries(data: bytes, *, origin: str) -> list[Entry]:
    """Every whole line. One that was cut short by a crash is passed over; a file of something else is refused."""
    found, unread = [], 0
    for line in data.split(b"\n"):
        if not line.strip():
            continue
        try:
            found.append(msgspec.json.decode(line, type=Entry, strict=False))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            unread += 1
    if unread and not found and data.endswith(b"\n"):
        raise UnreadableFile(
            f"{origin} is not a log of pipefix fix: none of its lines can be read.", advice="Give fix another folder: --out DIR"
        )
    return found
