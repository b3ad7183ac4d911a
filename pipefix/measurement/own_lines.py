"""Samples which line of the user's own code is running where no hook times it: while samples are recorded, and collated.

A thread looks at the making thread's frames every millisecond or so, at first more often: samples of microseconds are soon
recorded. It runs in the recording arm only, whose times nobody reads.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from itertools import accumulate, chain, repeat, starmap, takewhile
from operator import methodcaller
from traceback import walk_stack
from types import FrameType

from pipefix.hooks.sample_timer import SampleTimer
from pipefix.vocabulary.user_modules import is_users

EVERY, AT_FIRST = 0.001, 0.0002
"""Seconds between two looks, and between the first ones."""
FIRST_LOOKS = 100
MOST_LINES = 200
MAKER = "pipefix.measurement.measuring_fetcher"
"""The module that asks for samples and has them collated."""


class OwnLines:
    """Counts looks by line while it is on."""

    def __init__(self, timer: SampleTimer) -> None:
        self.timer = timer
        self.seen: Counter[str] = Counter()
        """``function at file.py:line`` -> looks while a sample was made."""
        self.seen_collating: Counter[str] = Counter()
        self.collating = False
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._switching = 0.0

    def turn(self, *, on: bool) -> None:
        if on and self._thread is None:
            self._stop.clear()
            # Python code gives way to another thread every 5 ms only, which is longer than many samples take.
            self._switching = sys.getswitchinterval()
            sys.setswitchinterval(min(self._switching, AT_FIRST / 2))
            self._thread = threading.Thread(target=self._run, daemon=True, name="pipefix-own-lines")
            self._thread.start()
        elif not on and self._thread is not None:
            self._stop.set()
            self._thread.join()
            self._thread = None
            sys.setswitchinterval(self._switching)

    def _run(self) -> None:
        intervals = chain(repeat(AT_FIRST, FIRST_LOOKS), repeat(EVERY))
        while not self._stop.wait(next(intervals)):
            if self.collating:
                self._look(self.seen_collating)
            elif self.timer.live and self.timer.stage is None:
                self._look(self.seen)

    def _look(self, seen: Counter[str]) -> None:
        # Frames of what makes batches, and not of the program that asked for one.
        line = line_of(takewhile(lambda frame: frame.f_globals.get("__name__") != MAKER, stack(self.timer.owner)))
        if line is not None and (line in seen or len(seen) < MOST_LINES):
            seen[line] += 1


def stack(thread: int) -> list[FrameType]:
    """The frames of another thread, innermost first.

    In one call, during which that thread does not run: where a generator gave its value meanwhile, Python 3.11 follows the way back
    from its frame into memory that is somebody else's by then. Nor may garbage be collected in it: what is freed then may let the
    other thread run (a connection of sqlite3, which only a collection frees, while it is closed).
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        frames: list[FrameType] = []
        innermost = map(methodcaller("get", thread), starmap(sys._current_frames, repeat((), 1)))
        with suppress(AttributeError):  # behind the outermost
            frames.extend(accumulate(chain(innermost, repeat("f_back")), getattr))
        return frames[:-1]  # but for what is behind it: None
    finally:
        if collects:
            gc.enable()


def users_line(frame: FrameType) -> str | None:
    """The innermost line of the user's own code around ``frame``, and the function that it is in."""
    return line_of(frame for frame, _ in walk_stack(frame))


def line_of(frames: Iterable[FrameType]) -> str | None:
    for frame in frames:
        if is_users(frame.f_globals.get("__name__")):
            code = frame.f_code
            name = getattr(code, "co_qualname", code.co_name)  # since Python 3.11
            function = name.partition(".<locals>.<")[0].replace("<locals>.", "")  # that of a comprehension is the one around it
            return f"{function} at {os.path.basename(code.co_filename)}:{frame.f_lineno}"
    return None
