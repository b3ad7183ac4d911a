"""Workers that stay up between epochs: proposed without a probe, from how long an epoch takes to begin.

Steps that were kept meanwhile may have made the rest of an epoch much shorter, or cannot be seen into by a probe.
"""

from __future__ import annotations

import statistics
from typing import Any

from pipefix.fixes import verify
from pipefix.plan.plan import Proposed
from pipefix.plan.remedies.starting import PersistentWorkers
from pipefix.subject.subject import Subject
from pipefix.vocabulary.quantity import Interval

LEAST_SAVED = 0.5
"""Part of an epoch's start that workers that are up save at least."""


def step_for(subject: Subject, rate: float) -> Proposed | None:
    """``rate``: samples a second once an epoch has begun. None where there is nothing to keep up."""
    loader: Any = subject.loader
    if not loader.num_workers or loader.persistent_workers or subject.epoch is None:
        return None
    start = statistics.median(verify.epoch_starts(subject))
    steady = subject.epoch / rate
    whole = start + steady
    first = min(start, subject.settings.samples_a_batch / rate)
    gain = Interval(whole / (steady + first), whole / (whole - LEAST_SAVED * (start - first)), whole / steady)
    return PersistentWorkers().kept_up(start, whole, gain)
