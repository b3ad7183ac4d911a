"""Seconds that a CUDA device was idle while its loop waited for a batch: by events, and nothing waits for them.

A loop asks for a batch when it has queued its step, not when the device is done with it. What the device idled is what passes on it
between the end of that step and the beginning of the next. Of one step a note the parts are told as well, by events between them.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections import deque
from contextlib import suppress
from typing import Any

from .model_calls import compiles

MOST_OPEN = 256
"""Waits whose events the device has not reached yet; a loop that is further ahead is not followed."""
MOST_STEPS = 8
"""The same of steps whose parts are told."""


class DeviceWaits:
    def __init__(self, cuda: Any) -> None:
        self._cuda = cuda
        self._open: deque[tuple[Any, Any, Any]] = deque()
        """Loop, and the events at the end of a step and at the beginning of the next."""
        self._free: list[Any] = []
        self._begun: tuple[Any, Any] | None = None
        """Loop, and the event at the beginning of its latest step that the device has come to."""
        self._end: Any = None
        self.step: StepParts | None = None
        """The present step, where its parts are told."""
        self._ended_steps: deque[StepParts] = deque()

    def asked(self, loop: Any) -> None:
        """A step of ``loop`` has been queued, and its loop asks for the next batch."""
        if self.step is not None:
            step, self.step = self.step, None
            step.end(requested=step.loop is loop)  # else the step of a loop around this one
            self._ended_steps.append(step)
        self._end = self.now()

    def got(self, loop: Any) -> None:
        """The batch is there, and what is queued from now on works on it. ``loop`` counts what the device idled before."""
        end, self._end = self._end, None
        begin = self.now() if end is not None else None
        if begin is not None:
            self._open.append((loop, end, begin))
        self.collect()

    def collect(self) -> None:
        """Count the waits that the device has passed."""
        with suppress(RuntimeError):  # it has failed, as the program is told by its own next call
            while self._open and self._open[0][2].query():
                loop, end, begin = self._open.popleft()
                loop.device_wait_s += max(0.0, end.elapsed_time(begin)) / 1e3
                loop.device_steps += 1
                before, self._begun = self._begun, (loop, begin)
                if before is not None and before[0] is loop and len(loop.on_device_durations) < len(loop.durations):
                    loop.on_device_durations.append(before[1].elapsed_time(end) / 1e3)
                self._free += [end, *([before[1]] if before is not None else [])]
            while self._ended_steps and self._ended_steps[0].counted():
                self._free += self._ended_steps.popleft().events()

    def look_into_step(self, loop: Any) -> None:
        """Tell the parts of the step that begins now."""
        if self.step is None and len(self._ended_steps) < MOST_STEPS and not compiles():
            self.step = StepParts(self.now, loop)

    def now(self) -> Any:
        """An event that the device reaches when it has done all that is queued; None where none can be, as where it failed."""
        with suppress(RuntimeError):
            if len(self._open) < MOST_OPEN and not self._cuda.is_current_stream_capturing():
                event = self._free.pop() if self._free else self._cuda.Event(enable_timing=True)
                event.record()
                return event
        return None


class StepParts:
    """One step by the device's clock: its parts, as the program reaches their ends, and copies to the device apart."""

    def __init__(self, now: Any, loop: Any) -> None:
        self._now, self.loop = now, loop
        self._thread = threading.get_ident()
        self._marks: list[tuple[str, Any]] = [("", now())]
        self._copies: list[tuple[int, Any, Any]] = []
        """With the place in `_marks` of the part that each belongs to: the next one to end."""
        self._patched = _copies_timed(self._copying)

    def reached(self, part: str) -> None:
        """What was queued since the last mark was ``part``: forward, backward, optimizer or other."""
        if threading.get_ident() == self._thread:
            self._marks.append((part, self._now()))

    def _copying(self, copy: Any) -> Any:
        if threading.get_ident() != self._thread:
            return copy()
        begin = self._now()
        result = copy()
        if getattr(result, "is_cuda", False):
            self._copies.append((len(self._marks), begin, self._now()))
        return result

    def forget(self) -> None:
        """Nothing is timed any more."""
        self._thread = 0
        self._patched()

    def end(self, *, requested: bool) -> None:
        """``asked``: the loop asks for its next batch; else the step is not told."""
        self._patched()
        self._patched = None  # it held this, in a cycle: a worker that collected it would free events, and end
        self.reached("other")
        if not requested or any(event is None for event in self.events()):
            self._marks, self._copies = [], []

    def events(self) -> list[Any]:
        return [event for _, event in self._marks] + [event for _, *pair in self._copies for event in pair]

    def counted(self) -> bool:
        """Whether the device has come to its end; its loop knows of its parts then."""
        if not self._marks:
            return True
        if not self._marks[-1][1].query():
            return False
        parts = self.loop.on_device
        for place, (part, event) in enumerate(self._marks[1:], 1):
            copies = sum(begin.elapsed_time(end) for of, begin, end in self._copies if of == place) / 1e3
            seconds = self._marks[place - 1][1].elapsed_time(event) / 1e3
            parts["copies"] = parts.get("copies", 0.0) + copies
            parts[part] = parts.get(part, 0.0) + max(0.0, seconds - copies)
        self.loop.on_device_steps += 1
        return True


def _copies_timed(around: Any) -> Any:
    """``around(copy)`` is called for each ``Tensor.to`` and ``Tensor.cuda`` of a tensor on the CPU. What this returns ends that."""
    tensor = sys.modules["torch"].Tensor
    own = {name: vars(tensor)[name] for name in ("to", "cuda") if name in vars(tensor)}
    ours: dict[str, Any] = {}
    for name in ("to", "cuda"):
        ours[name] = _timed(getattr(tensor, name), around)
        setattr(tensor, name, ours[name])

    def undo() -> None:
        for name, timed in ours.items():
            if vars(tensor).get(name) is not timed:
                continue  # somebody else has put a function around it since; it goes on working, and times nothing
            if name in own:
                setattr(tensor, name, own[name])
            else:
                delattr(tensor, name)

    return undo


def _timed(copy: Any, around: Any) -> Any:
    @functools.wraps(copy)
    def timed(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            if tensor.is_cuda:
                return copy(tensor, *args, **kwargs)
            return around(lambda: copy(tensor, *args, **kwargs))
        except BaseException as error:
            frames = error.__traceback__
            while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
                frames = frames.tb_next
            error.__traceback__ = frames
            raise

    return timed


def in_use() -> DeviceWaits | None:
    """Of the device that the program works on; None as long as it has not begun to."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    return DeviceWaits(cuda) if cuda is not None and cuda.is_initialized() else None
