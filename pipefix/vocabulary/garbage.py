"""Keeps the garbage collector from looking at objects that exist already."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager

_within = 0


@contextmanager
def existing_objects_skipped() -> Iterator[None]:
    """Within, no collection looks at the objects that exist now; in a process that is forked within, none ever does.

    An object that has threads, such as a pipeline of DALI, crashes the forked process that frees it: its threads are not there.

    What a user has frozen stays frozen, and nothing is added to it: freezing cannot be undone for some objects only. So where
    anything is frozen before, or somebody freezes meanwhile, it is left as it is: only the forked process freezes what is there.
    """
    global _within
    _within += 1
    frozen = not gc.get_freeze_count()
    if frozen:
        gc.freeze()
    made_since: list[None] = []
    try:
        yield
    finally:
        _within -= 1
        # Frozen too where somebody froze meanwhile. Counting what is frozen would take tens of milliseconds.
        if frozen and any(tracked is made_since for tracked in gc.get_objects()):
            gc.unfreeze()


os.register_at_fork(after_in_child=lambda: gc.freeze() if _within else None)
