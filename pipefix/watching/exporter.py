"""Exporters, which write windows where somebody reads them: their interface, a file of JSON lines, TensorBoard's scalars, and how
those that were asked for are opened, each rank's of a distributed job under a name of its own."""

from __future__ import annotations

import errno
import fcntl
import itertools
import logging
import os
import re
import stat
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

from pipefix.vocabulary import launched
from pipefix.vocabulary.errors import BadUsage, PipefixError
from pipefix.vocabulary.extras import need
from pipefix.vocabulary.files import is_at
from pipefix.watching import window as windows
from pipefix.watching.window import Window

log = logging.getLogger("pipefix.watch")


class Exporter(Protocol):
    """Takes each window to where somebody reads it.

    It may raise OSError where that place cannot be had just now: that is logged once, and the next window is given to it again.
    Whatever else it raises is logged once, and the watch goes on without it.
    """

    def write(self, window: Window) -> None: ...

    def close(self) -> None: ...


class JsonLines:
    """Appends. Each line is written at once and whole, so that a reader never meets a half one.

    A file that was moved away or removed meanwhile is made anew under its name. Where another watch writes to it, this one takes
    the next free name: ``watch.2.jsonl``.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).absolute()
        """Wherever the program goes from here."""
        self._file = -1
        self._torn = False
        """The last line in the file has no end: a disk was full, or a process killed."""
        for number in itertools.count(1):
            name = self.path if number == 1 else self.path.with_name(f"{self.path.stem}.{number}{self.path.suffix}")
            if str(name) in _written_here:
                continue  # the kernel lets a process lock a file twice, and drops its lock where it closes the file once
            self._open(name)
            if self._claimed(name):
                break
        if name != self.path:
            log.warning("pipefix.watch: another watch writes to %s; this one writes to %s.", self.path, name)
            self.path = name

    def _open(self, path: Path) -> None:
        torn = _refuse_other(path)
        try:
            file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise OSError(
                f"the file {path} could not be opened for writing: {error.strerror or error}. "
                "Choose a place that you may write to, such as jsonl='watch.jsonl'"
            ) from error
        self.close()
        self._file, self._torn = file, torn

    def _claimed(self, path: Path) -> bool:
        """Whether no watch of another process on this machine writes to the file."""
        if not stat.S_ISREG(os.fstat(self._file).st_mode):
            return True  # a pipe or a device is everybody's
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):
                return False  # any other error: this file system knows no locks
        _written_here[str(path)] = self
        return True

    def write(self, window: Window) -> None:
        if stat.S_ISREG(os.fstat(self._file).st_mode) and not is_at(self._file, self.path):  # it was moved away
            self._open(self.path)
            self._claimed(self.path)
        line = b"\n" * self._torn + windows.encode(window)
        written = os.write(self._file, line)
        self._torn = written < len(line)
        if self._torn:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        if _written_here.get(str(self.path)) is self:
            del _written_here[str(self.path)]


_written_here: dict[str, JsonLines] = {}
"""By their names, the files that watches of this process write to."""
os.register_at_fork(after_in_child=_written_here.clear)


def scalars(window: Window) -> dict[str, float]:
    """A window's figures by the names that they have among a training's own curves."""
    figures: dict[str, float | None] = {
        "samples_per_second": window.rate, "waiting": window.waiting, "workers_busy": window.busy, "bytes_a_sample": window.bytes,
    }  # fmt: skip
    if window.wait is not None:
        figures |= {"wait_p50_s": window.wait.p50, "wait_p99_s": window.wait.p99}
    figures |= {f"stage/{name}_s": cost.s for name, cost in window.stages.items()}
    figures |= {f"machine/{name}": value for name, value in window.machine.items()}
    figures["drifting"] = float(len(window.drifting))
    return {f"pipefix/{name}": value for name, value in figures.items() if value is not None}


class Scalars:
    """Windows as TensorBoard scalars, beside the curves of the training: in a directory, or with a ``SummaryWriter`` that the user
    has open (and which then stays open)."""

    def __init__(self, target: str | Path | Any) -> None:
        self._own, self._batches = isinstance(target, (str, Path)), 0
        self._writer: Any = target
        if self._own:
            need("tensorboard", package="tensorboard", why="Writing TensorBoard scalars")
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(str(target))

    def write(self, window: Window) -> None:
        """Over the number of batches, which is what most trainings call the step."""
        self._batches += window.batches
        for name, value in scalars(window).items():
            self._writer.add_scalar(name, value, self._batches)
        for notice in window.notices:
            self._writer.add_text("pipefix/notices", notice.sentence, self._batches)

    def close(self) -> None:
        (self._writer.close if self._own else self._writer.flush)()


def _refuse_other(path: Path) -> bool:
    """A file of somebody else's gets no lines of ours. Whether the last line of one of ours has no end."""
    if not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            head = file.read(4096)
            file.seek(max(0, file.seek(0, os.SEEK_END) - 1))
            end = file.read(1)
    except OSError:
        return False  # told when it is opened for writing
    if head.strip() and b'"pipefix.watch/' not in head:
        problem = f"{path} exists and is not what pipefix.watch writes: nothing will be added to it."
        raise BadUsage(problem, advice="Choose another name.")
    return end not in (b"", b"\n")


def opened(jsonl: str | Path | None, prometheus: int | str | None, textfile: str | Path | None, tensorboard: Any) -> list[Exporter]:
    """Those that were asked for. One whose file or port cannot be had is told of and left out; arguments that are none raise."""
    kinds: list[tuple[Callable[[Any], Exporter], Callable[[Any], Any], Any]] = [(JsonLines, own_file, jsonl)]
    if prometheus is not None or textfile is not None:
        from pipefix.watching.prometheus import Endpoint, Textfile

        kinds += [(Textfile, own_file, textfile), (Endpoint, own_port, prometheus)]
    kinds.append((Scalars, own_folder, tensorboard))
    wanted = [(kind, own(place)) for kind, own, place in kinds if place is not None]
    exporters: list[Exporter] = []
    with ExitStack() as given_up:
        for kind, place in wanted:
            try:
                exporters.append(kind(place))
                given_up.callback(exporters[-1].close)
            except PipefixError:
                raise  # an argument that makes no sense, or a library that is missing, is told at the start
            except Exception as error:  # noqa: BLE001 - whatever the output's library raises
                # Ours are OSErrors that say it all; those of libraries are named.
                said = str(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
                log.warning("pipefix.watch goes on without one of its outputs: %s", said)
        given_up.pop_all()
    return exporters


def rank() -> int | None:
    """Among all processes of the job; None outside of one."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank())
    return launched.number("RANK", "LOCAL_RANK")


def own_file(path: str | Path) -> Path:
    """``watch.jsonl`` for the first rank, ``watch.rank1.jsonl`` for the next. A name that says its rank already stays."""
    file, here = Path(path), rank()
    if not here or re.search(rf"rank[-_. ]?{here}(?!\d)", file.name, re.IGNORECASE):
        return file
    return file.with_name(f"{file.stem}.rank{here}{file.suffix}")


def own_folder(place: Any) -> Any:
    """A folder's part for this rank; a writer of the user's own stays."""
    here = rank()
    return Path(place) / f"rank{here}" if here and isinstance(place, (str, Path)) else place


def own_port(address: int | str) -> int | str:
    """Each process of a machine listens one port further on."""
    host, colon, port = str(address).rpartition(":")
    local = launched.number("LOCAL_RANK")
    here = rank() if local is None else local
    if not here or not port.isdecimal() or not int(port):
        return address
    return f"{host}{colon}{int(port) + here}"
