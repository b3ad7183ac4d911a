"""What noting a step costs the program."""

from __future__ import annotations

from time import thread_time
from typing import Any

from .loops import Epoch, Loop, clock

_STEPS = 200


def cost_of_a_step(twin: Any) -> float:
    """Seconds that noting one costs, timed now with an `Observer` that sees nothing else.

    Nothing is imported for it: a program that Ctrl-C ended would then end with another exit code.
    """
    loop = Loop(0, "")
    epoch = Epoch(loop, loop, 1, 0.0)
    epoch.delivered = clock()
    twin.epochs[loop] = epoch
    twin.notes.silent = True  # else a slow machine would find that it is time for a note
    begun = clock()
    for _ in range(_STEPS):  # what `patches` does around a batch as well
        twin.epochs.get(loop)
        used = thread_time() if epoch.looks_at_cpu() else None
        requested = clock()
        twin.took(loop, epoch, requested, clock(), None, False, None if used is None else thread_time() - used)
    return (clock() - begun) / _STEPS
