"""`KnownLoops`: which loop a loader belongs to, by where it was made, where it is gone through, and what it is."""

from __future__ import annotations

import math
import sys
import threading
import weakref
from typing import Any

from .lines import users_line, way_to_users_line
from .loops import Loop, clock
from .notes import Notes

MOST_OF_A_KIND = 4
"""Loops that are told apart by nothing but which loader they are over: the loaders of a hundred clients are not a hundred loops."""


class KnownLoops:
    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self.all: list[Loop] = []
        self._alike: dict[tuple[str, ...], list[Loop]] = {}
        """By the line that made their loaders, and the lines that first asked them for an iterator."""
        self._made: weakref.WeakKeyDictionary[Any, tuple[str, float]] = weakref.WeakKeyDictionary()
        """Where loaders were made, and when."""
        self._over: weakref.WeakKeyDictionary[Any, Loop] = weakref.WeakKeyDictionary()
        """By loader: one that is asked for an iterator at another line has still the same loop."""

    def made(self, loader: Any) -> str | None:
        """The line that makes it now; None where that is known, because a subclass calls its base class."""
        if loader in self._made:
            return None
        self._made[loader] = users_line(), clock()
        return self._made[loader][0]

    def over(self, loader: Any, **facts: Any) -> Loop:
        """The loop that it is gone through in.

        One line may make the loaders of training and of evaluation, and one line go through both: they are of two loops if they are
        of two kinds, or if one was there already when the other was first gone through. One that is made anew each epoch is not.
        """
        loop = self._over.get(loader)
        if loop is None:
            way = way_to_users_line()
            place, made = self._made.get(loader, ("", math.inf))
            place = place or (way or ("",))[-1]
            # What differs between loaders for training and for evaluation, and not from epoch to epoch.
            of_types = (type(getattr(loader, "sampler", None)), type(getattr(loader, "dataset", None)))
            alike, kind = self._alike.setdefault((place, *way), []), (sys.modules["torch"].is_grad_enabled(), *of_types)
            of_kind = [loop for loop in alike if loop.kind == kind]
            fitting = [loop for loop in of_kind if loop.asked < made]
            if not fitting and len(of_kind) == MOST_OF_A_KIND:
                fitting = of_kind[-1:]
            # Those that were not asked for longest: of two that are made anew each epoch, the first comes first again.
            loop = min(fitting, key=lambda loop: loop.asked, default=None) or self._new(alike, place, way, facts)
            loop.kind, loop.asked = kind, clock()
            self._over[loader] = loop
        return loop

    def without_loader(self) -> Loop:
        """Of steps outside any loop over a loader."""
        return self._new([], "", (), {"workers": 0, "batch_size": None})

    def _new(self, alike: list[Loop], place: str, way: tuple[str, ...], facts: dict[str, Any]) -> Loop:
        loop = Loop(len(self.all), place)
        self.all.append(loop)
        alike.append(loop)
        main_thread = threading.current_thread() is threading.main_thread()
        facts |= {"iterated": way[-1] if way else "", "nth": len(alike), "main_thread": main_thread}
        self._notes.write("loop", loop=loop.number, loader=place, **facts)
        return loop

    def forget(self) -> None:
        """In a process forked from this one."""
        self.all.clear()
        self._alike.clear()
        self._over.clear()
