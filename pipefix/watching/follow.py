"""Reads a job's windows as they come, from the file that it writes or the endpoint that it serves; and what drifts in them."""

from __future__ import annotations

import http.client
import logging
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from pipefix.vocabulary.errors import BadUsage, UnreadableFile
from pipefix.vocabulary.urls import is_remote
from pipefix.watching import baseline as baselines
from pipefix.watching import sentences as sentences
from pipefix.watching import window as windows
from pipefix.watching.drift import Drift
from pipefix.watching.window import Window as Window
from pipefix.watching.window import encode as encode

EVERY = 2.0
"""Seconds between two looks at a file."""
LONGEST_LINE = 1_000_000
"""Bytes of a window, in a file or as an endpoint's answer; ours have about a thousand."""
_TIMEOUT = 10.0
SILENT_WINDOWS, SILENT_SECONDS = 10, 300.0
"""A job that writes nothing for so many windows, and for so many seconds at least, was killed: it could not write its last one."""
log = logging.getLogger("pipefix.watch")


def follow(
    source: str,
    *,
    baseline: Path | None = None,
    once: bool = False,
    every: float = EVERY,
    sleep: Callable[[float], object] = time.sleep,
) -> Iterator[list[Window]]:
    """The windows from ``source`` (a file, an http address, a port of this machine) with what drifted by then.

    Known ones come first, then each as it comes.

    Ends with the job (for a file also where nothing comes any more), or at ``once``.

    Drift is what the job itself found; with a baseline it is found here.
    """
    source = _address(source)
    remote = source.startswith(("http://", "https://"))
    held = baselines.read(baseline) if baseline is not None else None
    drift = Drift(held) if held is not None else None
    last = 0
    for group in _scraped(source, once, every, sleep) if remote else _read(Path(source), once, every, sleep):
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


def _address(source: str) -> str:
    """A port of this machine as the address that a job serves there; a file and an address as they are."""
    if source.isdecimal() and not Path(source).exists():
        if not 0 < int(source) < 2**16:
            raise BadUsage(
                f"{source} is neither a file nor a port of this machine (1 to 65535); a job is not found by its process id.",
                advice="Name what the job names in pipefix.watch(loader, prometheus=9400): pipefix watch 9400",
            )
        return f"http://127.0.0.1:{source}/metrics"
    if is_remote(source) and not source.startswith(("http://", "https://")):
        raise BadUsage(
            f"{source} cannot be followed: a job's windows are read from a file, or from an address that begins with http:// or https://.",
            advice="A job serves one with pipefix.watch(loader, prometheus=9400): pipefix watch http://HOST:9400/metrics",
        )
    return source


def _read(path: Path, once: bool, every: float, sleep: Callable[[float], object]) -> Iterator[list[Window]]:
    try:
        file = path.open("rb")
    except (OSError, ValueError) as error:  # the latter: a NUL in the name
        raise UnreadableFile(
            f"{path} could not be read: {getattr(error, 'strerror', None) or error}.",
            advice="A job writes one with: pipefix.watch(loader, jsonl='watch.jsonl')",
        ) from error
    known, silent, patience = False, 0.0, SILENT_SECONDS
    with file:
        rest = b""
        while True:
            group = []
            while line := _line(file, path):
                rest += line
                if not rest.endswith(b"\n"):
                    break  # It is still being written.
                if rest.strip():
                    group.append(windows.decode(rest, origin=str(path)))
                rest = b""
            if len(rest) >= LONGEST_LINE:
                raise UnreadableFile(f"{path} is not what pipefix.watch writes: a line is longer than {LONGEST_LINE:,} bytes.")
            if group:
                known, silent, patience = True, 0.0, max(SILENT_SECONDS, SILENT_WINDOWS * group[-1].seconds)
                yield group
            if once or (group and group[-1].ended):
                break
            if known and silent > patience:
                log.warning("Nothing was written to %s for %d s: the job has ended without its last window.", path, silent)
                break
            sleep(every)
            silent += every
    if not known:
        raise UnreadableFile(f"{path} holds no window yet.", advice="A job writes its first one after half a minute.")


def _line(file: BinaryIO, path: Path) -> bytes:
    try:
        return file.readline(LONGEST_LINE)
    except OSError as error:
        raise UnreadableFile(f"{path} could not be read: {error.strerror or error}.") from error


def _scraped(url: str, once: bool, every: float, sleep: Callable[[float], object]) -> Iterator[list[Window]]:
    from pipefix.watching.prometheus import WINDOW

    last: Window | None = None
    while True:
        try:
            answer = _asked(url.removesuffix("/metrics").rstrip("/") + WINDOW)
        except (OSError, ValueError, http.client.HTTPException) as error:
            if last is not None:
                return  # the job has ended, and its endpoint with it
            reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
            raise UnreadableFile(
                f"{url} does not answer: {reason}.",
                advice="A job serves one with: pipefix.watch(loader, prometheus=9400), at http://127.0.0.1:9400/metrics",
            ) from error
        if not answer and not once:
            sleep(every)  # the job has just begun
            continue
        window = windows.decode(answer, origin=url)
        if last is None or window.number != last.number:
            yield [window]
            last = window
        if once or window.ended:
            return
        sleep(every)


def _asked(url: str) -> bytes:
    """The whole answer, if it comes in time and is no longer than ours."""
    until = time.monotonic() + _TIMEOUT
    data = bytearray()
    with urllib.request.urlopen(url, timeout=_TIMEOUT) as answer:
        while piece := answer.read1(65_536):
            data += piece
            if len(data) > LONGEST_LINE:
                raise ValueError(f"it answers with more than {LONGEST_LINE:,} bytes, and is no endpoint of pipefix.watch")
            if time.monotonic() > until:
                raise TimeoutError("timed out")
    return bytes(data)
