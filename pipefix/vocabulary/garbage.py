"""Keeps the garbage collector from looking at objects that exist already."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def existing_objects_skipped() -> Iterator[None]:
    """Within, no collection looks at the objects that exist now; in a process that is forked within, none ever does.

    An object that has threads, such as a pipeline of DALI, crashes the forked process that frees it: its threads are not there.

    What a user has frozen stays frozen, and nothing is added to it: freezing cannot be undone for some objects only. So where
    anything is frozen before, or somebody freezes meanwhile, it is left as it is.
    """
    if gc.get_freeze_count():
        yield
        return
    gc.freeze()
    made_since: list[None] = []
    try:
        yield
    finally:
        # Frozen too where somebody froze meanwhile. Counting what is frozen would take tens of milliseconds.
        if any(tracked is made_since for tracked in gc.get_objects()):
            gc.unfreeze()
