"""`TrainingSteps`: what makes a loop one that trains (backward passes, optimizer steps), and how its steps' time splits."""

from __future__ import annotations

import sys
import threading
from time import sleep
from typing import Any

from .inside import end_program
from .lines import without_this_frame
from .loops import Epoch, Loop, clock
from .model_calls import StepLook, compiles

LEAST_AFTER = 4
"""Backward passes after the end of an epoch that may be of batches which the program took ahead, in an epoch however short."""

HEARD = 1.0
"""Seconds that a program which took its steps waits to be ended."""


def _in_another_step() -> bool:
    """Whether torch calls the hook for a part of another optimizer's step: `ZeroRedundancyOptimizer` and SAM have one inside."""
    frame = sys._getframe(2)
    step = frame.f_code
    while frame := frame.f_back:  # type: ignore[assignment] # by the stack: a step that raised is on it no longer
        if frame.f_code is step:
            return True
    return False


class TrainingSteps:
    """Told by torch's own hooks; which loop they belong to, the observer knows."""

    def __init__(self, observer: Any, stop_after: int) -> None:
        self._observer = observer  # the `Observer`, which has one of these
        self.program: Loop | None = None
        """Steps outside any loop over a loader."""
        self.count = 0
        self._stop_after = stop_after
        """Optimizer steps, after which the program is to end; 0: never."""
        self._optimizer_since = 0.0
        """Since when an optimizer's step computes what is its own: a closure that it calls may go back in it. 0 outside of one."""
        self._after_end = 0
        """Backward passes since the latest epoch of a loop that trains came to its end."""
        self._latest = 0.0
        self._look: StepLook | None = None
        """Into the present step outside any loop over a loader."""
        self._possible = True

    def reached(self, part: str) -> None:
        """The end of a part of the present step."""
        if self._observer.device is not None and self._observer.device.step is not None:
            self._observer.device.step.reached(part)

    def optimizer_begins(self, *_: Any) -> None:
        if _in_another_step():
            return
        self.reached("other")
        self._optimizer_since = clock()

    def optimizer_stepped(self, optimizer: Any = None, *_: Any) -> None:
        if _in_another_step():
            return
        self.reached("optimizer")
        now = clock()
        took = now - self._optimizer_since if self._optimizer_since else 0.0
        self._optimizer_since = 0.0
        if self._look is not None:
            self._look.worked(now - took, now)
        self._observer.calls += 1
        loop, current = self._trains()
        loop.optimizer_steps += 1
        loop.optimizers_changed += loop.optimizer not in (0, id(optimizer))
        loop.optimizer = id(optimizer)
        loop.optimizer_s += took if self._in_its_time(loop) else 0.0
        if current is not None:
            loop.steps_in_thread += current.thread == threading.get_ident()
            current.marked, current.inner_by_mark, current.saved_s = now, current.inner_s, 0.0
        if loop is self.program:
            if not self.count:
                loop.steps = 0  # that its backward passes were counted as
            self._own_step(loop, now)
        self.count += 1
        if self.count == self._stop_after:
            end_program(self._observer.notes.folder)
            try:
                sleep(HEARD)  # Ctrl-C comes meanwhile; at a fork of workers Python would print it, and go on
            except BaseException as error:
                without_this_frame(error)
                raise

    def _own_step(self, loop: Loop, now: float) -> None:
        loop.steps += 1
        if self._latest:
            loop.step_s += now - self._latest
        else:  # when the first one began is not known, so its parts are none of the time that is
            loop.backward_s = loop.optimizer_s = 0.0
        self._latest = now
        look, self._look = self._look, None
        if look is not None:
            seconds, outside = look.end(now)
            loop.looked_into_s += seconds
            loop.outside_s += outside
        if now - loop.since > loop.noted_after:
            self._observer.flush(loop)
            self._look_into_step()

    def _look_into_step(self) -> None:
        """One step a note; none in a program that compiles its models, which hooks would have compiled again."""
        modules = sys.modules.get("torch.nn.modules.module")
        if self._possible and modules is not None and not compiles():
            try:
                self._look = StepLook(modules)
            except Exception as error:  # noqa: BLE001 - what passes outside the models stays unknown
                self._possible = False
                self._observer.failed(error, "pipefix could not look into the steps")

    def _trains(self) -> tuple[Loop, Epoch | None]:
        """The loop whose step it is that is taken, and its epoch: both train."""
        loop: Loop | None = self._observer.worked_on() or self.program
        if loop is None:
            loop = self.program = self._observer.loops.without_loader()
        loop.trains = True
        current: Epoch | None = self._observer.current
        if current is not None:
            current.trains = True
        return loop, current

    def went_back(self, begun: float, now: float) -> None:
        self.reached("backward")
        self._count_pass(self._observer.current, self._observer.here.latest)
        loop, current = self._trains()
        loop.backward_s += now - begun if self._in_its_time(loop) else 0.0
        if self._optimizer_since:
            self._optimizer_since = now
        if self._look is not None:
            self._look.worked(begun, now)
        if current is not None:
            loop.forward_s += begun - current.marked - (current.inner_s - current.inner_by_mark)
            current.marked, current.inner_by_mark, current.saved_s = now, current.inner_s, 0.0
        if loop is self.program and not self.count:
            self._own_step(loop, now)  # a program that changes its parameters without torch's optimizers

    def _count_pass(self, current: Epoch | None, latest: Epoch | None) -> None:
        if current is not None:
            current.loop.passes += 1
            self._after_end = 0
            for other in current.loop.in_turn:
                after_end = other.passes_in_turn() - other.passes_by_end
                if other.ended is not None and after_end > max(LEAST_AFTER, other.passes_by_end):
                    self._tell_from_memory(other)
        elif latest is not None and latest.loop.trains and latest.thread == threading.get_ident():
            was_of_it, self._after_end = not self.is_past(latest), self._after_end + 1
            if was_of_it and self.is_past(latest):
                self._tell_from_memory(latest.loop)

    def _tell_from_memory(self, loop: Loop) -> None:
        """More passes followed on its end than came before it."""
        if loop.begun == 1 and not loop.from_memory:
            loop.from_memory = True
            self._observer.notes.write("from memory", loop=loop.number)

    def is_past(self, epoch: Epoch) -> bool:
        """Whether more passes followed on an epoch that has ended than it can have left batches for: the program has kept them."""
        return self._after_end > max(LEAST_AFTER, epoch.loop.passes)

    def _in_its_time(self, loop: Loop) -> bool:
        """Whether what is done now is of the time that is counted as the loop's: not after its end, but for want of any other."""
        return self._observer.current is not None or loop is self.program or not loop.passes
