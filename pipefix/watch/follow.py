"""A job's windows as they come, from the file that it writes or the endpoint that it serves; and what drifts in them."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from pipefix.vocabulary.errors import UnreadableFile
from pipefix.watch import baseline as baselines
from pipefix.watch import tell as tell
from pipefix.watch import window as windows
from pipefix.watch.drift import Drift
from pipefix.watch.window import Window as Window
from pipefix.watch.window import encode as encode

EVERY = 2.0
"""Seconds between two looks at a file."""
_TIMEOUT = 10.0


def follow(
    source: str,
    *,
    baseline: Path | None = None,
    once: bool = False,
    every: float = EVERY,
    sleep: Callable[[float], object] = time.sleep,
) -> Iterator[list[Window]]:
    """The windows from ``source`` (a file, or an http address) with what drifted by then: known ones first, then each as it comes.

    Ends with the job, or at ``once``. Drift is what the job itself found; with a baseline, and for an endpoint, it is found here.
    """
    remote = source.startswith(("http://", "https://"))
    held = baselines.read(baseline) if baseline is not None else None
    drift = Drift(held) if held is not None or remote else None
    last = 0
    for group in _scraped(source, once, every, sleep) if remote else _read(Path(source), once, every, sleep):
        told = []
        for window in group:
            if drift is not None:
                if window.number <= last:
                    drift = Drift(held)  # another job began to write
                notices = drift.feed(window)
                window = msgspec.structs.replace(window, notices=notices, drifting=drift.drifting)
            last = window.number
            told.append(window)
        yield told


def _read(path: Path, once: bool, every: float, sleep: Callable[[float], object]) -> Iterator[list[Window]]:
    try:
        file = path.open("rb")
    except OSError as error:
        raise UnreadableFile(
            f"{path} could not be read: {error.strerror or error}.",
            advice="A job writes one with: pipefix.watch(loader, jsonl='watch.jsonl')",
        ) from error
    known = False
    with file:
        rest = b""
        while True:
            # A line that is still being written waits for its end.
            *lines, rest = (rest + _all(file, path)).split(b"\n")
            group = [windows.decode(line, origin=str(path)) for line in lines if line.strip()]
            if group:
                known = True
                yield group
            if once or (group and group[-1].ended):
                break
            sleep(every)
    if not known:
        raise UnreadableFile(f"{path} holds no window yet.", advice="A job writes its first one after half a minute.")


def _all(file: object, path: Path) -> bytes:
    try:
        data: bytes = file.read()  # type: ignore[attr-defined]
    except OSError as error:
        raise UnreadableFile(f"{path} could not be read: {error.strerror or error}.") from error
    return data


def _scraped(url: str, once: bool, every: float, sleep: Callable[[float], object]) -> Iterator[list[Window]]:
    from pipefix.watch import prometheus

    last: Window | None = None
    while True:
        try:
            with urllib.request.urlopen(url, timeout=_TIMEOUT) as answer:
                text = answer.read().decode("utf-8", "replace")
        except (OSError, ValueError) as error:
            if last is not None:
                return  # the job has ended, and its endpoint with it
            reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
            raise UnreadableFile(
                f"{url} does not answer: {reason}.",
                advice="A job serves one with: pipefix.watch(loader, prometheus=9400), at http://127.0.0.1:9400/metrics",
            ) from error
        if last is None and "pipefix_window" not in text and not once and not text.strip():
            sleep(every)  # the job has just begun
            continue
        window = prometheus.parse(text, origin=url)
        if last is None or window.number != last.number:
            yield [_since(last, window)]
            last = window
        if once or window.ended:
            return
        sleep(every)


def _since(last: Window | None, window: Window) -> Window:
    """An endpoint counts batches from the job's beginning; a window counts its own."""
    if last is None or window.number != last.number + 1:
        return window
    return msgspec.structs.replace(window, batches=window.batches - last.batches, samples=window.samples - last.samples)
