"""Whose step a moment belongs to where a program goes through several loops: one inside another's step, or two in turn."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Iterator
from typing import Any

from .loops import Epoch, Loop
from .notes import Notes


class Here(threading.local):
    """What a thread of the program does: two that train, or evaluate beside each other, are not inside one another."""

    current: Epoch | None = None
    """Whose batch it works on."""
    latest: Epoch | None = None
    """What it exhausted last: an optimizer's step on its last batch may come after that."""
    asked: Epoch | None = None
    """That it waits for a batch of: what is asked meanwhile makes that batch."""
    beginning: Any = None
    """The loader that it asks for an iterator: its class may ask its base class for one, and give another around that."""
    inner: tuple[Any, Any] | None = None
    """What that base class gave, and what is known of how it was made."""


class Turns:
    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._asked: dict[int, Epoch] = {}
        """By thread: what it asked last."""
        self.waited = 0.0
        """Seconds of all waits in the main thread."""

    def asked(self, epoch: Epoch) -> None:
        self._asked[threading.get_ident()] = epoch

    def elsewhere(self, *, ended: bool = False) -> Epoch | None:
        """What another thread goes through, and this one may train on; ``ended``: or went through."""
        here = threading.get_ident()
        others = [epoch for thread, epoch in self._asked.copy().items() if thread != here]
        others = [epoch for epoch in others if epoch.delivered or (ended and epoch.loop.trains)]
        return max(others, key=lambda epoch: epoch.delivered, default=None)

    def leave_all(self, here: Epoch | None) -> None:
        """The program ends; ``here``: whose batch this thread works on."""
        own = threading.get_ident()
        for around in (here, *(epoch for thread, epoch in self._asked.copy().items() if thread != own)):
            for epoch in chain(around):
                left_at_mark(epoch)
                epoch.loop.saved_outside_s += epoch.saved_s  # after its last step: training waited for none of that

    def forget(self) -> None:
        self._asked.clear()

    def begins(self, loop: Loop, current: Epoch | None, now: float) -> bool:
        """Whether ``loop``, which is gone through anew, had been left before its end, as far as what this thread works on tells."""
        latest = loop.latest
        if latest is not None and latest.batches == 1 and latest.trains and latest.left is not None and latest.left[1] is not None:
            loop.inner_s, latest.inner_s = loop.inner_s + latest.inner_s, 0.0
            self._left_for(latest, *latest.left)  # ``next(iter(loader))`` for each batch of another one
        inside = [*chain(current)]
        before = next((epoch for epoch in inside if epoch.loop is loop), None)
        if before is None:
            return False
        left_at_mark(before)
        del inside[inside.index(before) :]
        if inside:
            # Those inside it may go on, or have been left as well: then each batch of these loaders has an iterator of its own.
            inside[-1].outer, before.left = before.outer, (now, None)
            each_anew = all(epoch.batches == 1 for epoch in (before, *inside)) and inside[0].loop.begun > 1
            if each_anew and inside[0].trains and not before.trains:
                for one, other in itertools.combinations((loop, *(epoch.loop for epoch in inside)), 2):
                    self._are_in_turn(one, other)
        return True

    def worked(self, epoch: Epoch, requested: float, now: float) -> None:
        """Its step is over: at ``requested`` the next batch was asked for, which was there, or known not to come, ``now``.

        Of two loops that are asked in turn neither is inside the other: each has the time from its batch to where the other is
        asked.
        """
        loop = epoch.loop
        loop.inner_s += epoch.inner_s
        if epoch.left is None:
            loop.step_s += requested - epoch.delivered
            if epoch.outer is not None:
                epoch.outer.inner_s += now - epoch.delivered
            return
        self._left_for(epoch, *epoch.left)
        if epoch.outer is not None:
            epoch.outer.inner_s += now - requested

    def _left_for(self, epoch: Epoch, at: float, outer: Epoch | None) -> None:
        """Its step was over when a batch was asked for of a loop that is not inside it: it is a part of the step of ``outer``."""
        epoch.loop.step_s += at - epoch.delivered
        if outer is not None:
            outer.loop.inner_s += at - epoch.delivered
            self._are_in_turn(epoch.loop, outer.loop)
        epoch.left, epoch.delivered = None, at

    def _are_in_turn(self, loop: Loop, other: Loop) -> None:
        if other is not loop and other not in loop.in_turn:
            loop.in_turn.add(other)
            other.in_turn.add(loop)
            self._notes.write("in turn", loop=loop.number, other=other.number)

    def has_waited(self, epoch: Epoch, seconds: float) -> None:
        epoch.loop.waited_s += seconds
        if epoch.thread == threading.main_thread().ident:
            self.waited += seconds


def in_turn_with(epoch: Epoch, epochs: Iterable[Epoch]) -> list[Epoch]:
    """Those gone through now whose batches its steps work on as well."""
    return [other for other in epochs if other.loop in epoch.loop.in_turn and other.delivered and other.loader() is not None]


def chain(epoch: Epoch | None) -> Iterator[Epoch]:
    """It, and those around it."""
    while epoch is not None:
        yield epoch
        epoch = epoch.outer


def leave_for(epoch: Epoch, current: Epoch | None, requested: float) -> Epoch | None:
    """Those inside ``epoch`` are left, and its own loop's other epoch; None where it is none of those that are gone through."""
    inside, around = [], current
    while around is not None and around is not epoch:
        inside.append(around)
        around = around.outer
    if around is None:
        inside = inside[:1] if inside and inside[0].loop is epoch.loop else []
    for other in inside:
        if other.left is None and other.thread == epoch.thread:
            other.left = requested, other.outer
    return around


def left_at_mark(epoch: Epoch) -> None:
    """No further batch of this epoch may be asked for: its latest step is known up to its backward pass or optimizer's step."""
    if epoch.delivered and epoch.marked > epoch.delivered:
        epoch.loop.step_s += epoch.marked - epoch.delivered
        epoch.loop.inner_s += epoch.inner_by_mark
        epoch.delivered, epoch.inner_s, epoch.inner_by_mark = epoch.marked, epoch.inner_s - epoch.inner_by_mark, 0.0
