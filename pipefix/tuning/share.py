"""One rank's part of a machine that several ranks of a training job share: cores, memory, and CPUs to run on."""

from __future__ import annotations

import os

from pipefix.vocabulary import launched


def ranks_here() -> int:
    """How many ranks run on this machine, as ``torchrun`` and other launchers say; 1 where nobody does."""
    return launched.number("LOCAL_WORLD_SIZE") or 1


def own_cpus(cores: float, ranks: int) -> tuple[int, ...]:
    """The CPUs that this rank's trials run on, while other ranks would keep the rest busy; empty where there are no others.

    ``cores``: CPU seconds a second that all ranks together may use.
    """
    if ranks == 1 or not hasattr(os, "sched_getaffinity"):
        return ()
    allowed = sorted(os.sched_getaffinity(0))
    each = max(1, min(int(cores), len(allowed)) // ranks)
    first = (launched.number("LOCAL_RANK") or 0) * each % len(allowed)
    return tuple((allowed + allowed)[first : first + each])
