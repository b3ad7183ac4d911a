"""Reads a job's windows as they come, from the file that it writes or the endpoint that it serves; and what drifts in them."""

from __future__ import annotations

import http.client
import logging
import os
import stat
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urlsplit

import msgspec

from pipefix.vocabulary.errors import BadUsage, UnreadableFile
from pipefix.vocabulary.files import is_at
from pipefix.vocabulary.urls import is_remote
from pipefix.watching import baseline as baselines
from pipefix.watching import sentences as sentences  # for the command, which reads windows through this module alone
from pipefix.watching import window as windows
from pipefix.watching.drift import Drift
from pipefix.watching.window import Window as Window

EVERY = 2.0
"""Seconds between two looks at a file."""
_TIMEOUT = 10.0
SILENT_WINDOWS, SILENT_SECONDS = 10, 300.0
"""A job that writes nothing for so many windows, and for so many seconds at least, was killed: it could not write its last one."""
UNANSWERED = 3
"""Questions in a row that a job's endpoint may leave without an answer."""
LONGEST_LINE = 1_000_000
"""Bytes of a window, in a file or as an endpoint's answer; ours have about a thousand."""
log = logging.getLogger("pipefix.watch")
Say = Callable[[str], object]


def follow(
    source: str, *, baseline: Path | None = None, once: bool = False, every: float = EVERY,
    sleep: Callable[[float], object] = time.sleep, say: Say = log.warning,
) -> Iterator[list[Window]]:  # fmt: skip
    """The windows from ``source`` (a file, an http address, a port of this machine) with what drifted by then.

    Known ones come first, then each as it comes.

    A job that has not begun is waited for, `SILENT_SECONDS` at most. Ends with the job (for a file also where nothing comes any
    more), or at ``once``. ``say`` is told what is waited for, and why it ends.

    Drift is what the job itself found; with a baseline it is found here.
    """
    source = _address(source)
    remote = source.startswith(("http://", "https://"))
    held = baselines.read(baseline) if baseline is not None else None
    drift = Drift(held) if held is not None else None
    last = 0
    asked = _scraped(source, once, every, sleep, say) if remote else _read(Path(source), once, every, sleep, say)
    for group in asked:
        judged = []
        for window in group:
            if drift is not None:
                if window.number <= last:
                    drift = Drift(held)  # another job began to write
                notices = drift.feed(window)
                window = msgspec.structs.replace(window, notices=notices, drifting=drift.drifting)
            last = window.number
            judged.append(window)
        yield judged


def by_job(group: Sequence[Window], before: Window | None) -> list[list[Window]]:
    """Windows by the job that wrote them: one that begins anew with the first window is another, which appends to the same file.

    ``before``: the last window before these. Where it was another job's, the first list is empty.
    """
    jobs: list[list[Window]] = [[]]
    for window in group:
        if before is not None and window.number <= before.number:
            jobs.append([])
        jobs[-1].append(window)
        before = window
    return jobs


def _address(source: str) -> str:
    """A port, of this machine or HOST:PORT, as the address that a job serves there; a file and an address as they are."""
    host, _, port = source.rpartition(":")
    if port.isdecimal() and "/" not in host and not Path(source).exists():
        if not 0 < int(port) < 2**16:
            problem = f"{source} is neither a file nor a port of this machine (1 to 65535); a job is not found by its process id."
            raise BadUsage(problem, advice="Name what the job names in pipefix.watch(loader, prometheus=9400): pipefix watch 9400")
        return f"http://{host or '127.0.0.1'}:{port}/metrics"
    if is_remote(source) and not source.startswith(("http://", "https://")):
        raise BadUsage(
            f"{source} cannot be followed: a job's windows are read from a file, or from an address that begins with http:// or https://.",
            advice="A job serves one with pipefix.watch(loader, prometheus=9400): pipefix watch http://HOST:9400/metrics",
        )
    return source


def _read(path: Path, once: bool, every: float, sleep: Callable[[float], object], say: Say) -> Iterator[list[Window]]:
    file = _opened(path, once, every, sleep, say)
    known, silent, patience, damaged = False, 0.0, SILENT_SECONDS, 0
    try:
        while True:
            group = []
            for line in file.lines():
                try:
                    group.append(windows.decode(line, origin=str(path)))
                except UnreadableFile as error:
                    torn = error.__cause__ is not None and b'"pipefix.watch/' in line  # by a disk that was full
                    if not known and not group and not torn:
                        raise  # it is no file of ours
                    damaged += 1
                    if damaged == 1:
                        say(f"A line is passed over: {error}")
            if group:
                known, silent, patience = True, 0.0, max(SILENT_SECONDS, SILENT_WINDOWS * group[-1].seconds)
                yield group
            if once or (group and group[-1].ended):
                break
            if known and silent > patience:
                say(f"Nothing was written to {path} for {silent:.0f} s: the job has ended without its last window.")
                break
            if not known and not silent:
                say(f"{path} holds no window yet: waiting for the job to write one. Ctrl-C ends.")
            sleep(every)
            silent += every
    finally:
        file.close()
    if not known:
        raise UnreadableFile(f"{path} holds no window yet.", advice="A job writes its first one after half a minute.")


def _opened(path: Path, once: bool, every: float, sleep: Callable[[float], object], say: Say) -> GrowingFile:
    """The file; where none is there yet but its folder is, a job is given time to begin."""
    waited = 0.0
    while True:
        try:
            return GrowingFile(path)
        except (OSError, ValueError) as error:  # the latter: a NUL in the name
            absent = isinstance(error, FileNotFoundError) and path.parent.is_dir()
            if once or not absent or waited >= SILENT_SECONDS:
                problem = f"{path} could not be read: {getattr(error, 'strerror', None) or error}."
                raise UnreadableFile(problem, advice="A job writes one with: pipefix.watch(loader, jsonl='watch.jsonl')") from error
        if not waited:
            say(f"{path} is not there: waiting up to {SILENT_SECONDS:.0f} s for a job to write it. Ctrl-C ends.")
        sleep(every)
        waited += every


def _scraped(url: str, once: bool, every: float, sleep: Callable[[float], object], say: Say) -> Iterator[list[Window]]:
    from pipefix.watching.prometheus import WINDOW

    last: Window | None = None
    waited, unanswered, told = 0.0, 0, False
    while True:
        try:
            answer = _asked(url.rstrip("/").removesuffix(WINDOW).removesuffix("/metrics") + WINDOW)
        except (OSError, ValueError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
            refused = any(isinstance(each, ConnectionRefusedError) for each in (error, reason))
            if last is None and (once or not refused or waited >= SILENT_SECONDS):
                raise UnreadableFile(
                    f"{url} does not answer: {reason}.",
                    advice="A job serves one with: pipefix.watch(loader, prometheus=9400), at http://127.0.0.1:9400/metrics",
                ) from error
            unanswered += 1
            if last is not None and (refused or unanswered >= UNANSWERED):
                end = "the job has ended" if refused else "the job hangs, or its machine is gone"
                say(f"{url} does not answer any more ({reason}): {end}.")
                return
            if last is None and not waited:
                say(f"Nobody serves {url}: waiting up to {SILENT_SECONDS:.0f} s for a job to begin. Ctrl-C ends.")
            waited += every
        else:
            unanswered = 0
            if answer:
                window = windows.decode(answer, origin=url)
                if last is None or (window.number, window.time) != (last.number, last.time):
                    yield [window]
                    last = window
                if once or window.ended:
                    return
            elif once:
                raise UnreadableFile(f"{url} tells no window yet.", advice="A job closes its first one after half a minute.")
            elif not told:
                say(f"The job at {url} has no window yet: waiting for its first. Ctrl-C ends.")
                told = True
        sleep(every)


def _asked(url: str) -> bytes:
    """The whole answer, if it comes in time and is no longer than ours."""
    until = time.monotonic() + _TIMEOUT
    data = bytearray()
    here = urlsplit(url).hostname in ("127.0.0.1", "localhost", "::1")  # a proxy (http_proxy) would ask its own machine
    opener = urllib.request.build_opener(*([urllib.request.ProxyHandler({})] if here else []))
    with opener.open(url, timeout=_TIMEOUT) as answer:
        while piece := answer.read1(65_536):
            data += piece
            if len(data) > LONGEST_LINE:
                raise ValueError(f"it answers with more than {LONGEST_LINE:,} bytes, and is no endpoint of pipefix.watch")
            if time.monotonic() > until:
                raise TimeoutError("timed out")
    return bytes(data)


class GrowingFile:
    """The lines of a file that another process appends to, under its name: also after it was cut or another file took its place.

    Raises OSError or ValueError where it cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: BinaryIO = path.open("rb")
        self._rest = b""

    def close(self) -> None:
        self._file.close()

    def lines(self) -> Iterator[bytes]:
        """Those that were completed since they were last asked for."""
        yield from self._complete()
        if self._is_another():
            yield from self._complete()

    def _complete(self) -> Iterator[bytes]:
        try:
            while line := self._file.readline(LONGEST_LINE):
                self._rest += line
                if not self._rest.endswith(b"\n"):
                    break  # It is still being written.
                whole, self._rest = self._rest, b""
                if whole.strip():
                    yield whole
        except OSError as error:
            raise UnreadableFile(f"{self.path} could not be read: {error.strerror or error}.") from error
        if len(self._rest) >= LONGEST_LINE:
            raise UnreadableFile(f"{self.path} is not what pipefix.watch writes: a line is longer than {LONGEST_LINE:,} bytes.")

    def _is_another(self) -> bool:
        """Whether the name stands for another file now, or for a shorter one, which is then read from its beginning."""
        try:
            held = os.fstat(self._file.fileno())
            if not is_at(self._file.fileno(), self.path):
                file = self.path.open("rb")
                self._file.close()
                self._file = file
            elif stat.S_ISREG(held.st_mode) and held.st_size < self._file.tell():
                self._file.seek(0)
            else:
                return False
        except OSError:  # moved away, and nothing has its name yet
            return False
        self._rest = b""
        return True
