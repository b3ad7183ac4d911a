"""What reading a sample back from a cache would take: tried on a few of them, beside the probe."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

import numpy as np

from pipefix.caches import read_back as trial
from pipefix.caches.read_back import ReadBack
from pipefix.diagnosis.diagnosis import Diagnosis
from pipefix.loader.fusing.apart import apart
from pipefix.loader.fusing.look import spread
from pipefix.measurement.measurement import KeptRecord
from pipefix.measurement.statistics import bootstrap, interval
from pipefix.plan.remedy import WORTH_TRYING
from pipefix.subject.subject import Subject
from pipefix.vocabulary.stage import IN_SAMPLE

SAMPLES = 3
PATIENCE = 10.0
"""Seconds after which the trial is left."""


def record(subject: Subject, diagnosis: Diagnosis) -> KeptRecord | None:
    """None where there is too little to be gained, or it could not be tried."""
    length = subject.settings.length
    if subject.iterable or not length or diagnosis.part_of_making(*IN_SAMPLE) <= WORTH_TRYING:
        return None
    with tempfile.TemporaryDirectory(prefix="pipefix-read-back-") as folder:
        found = apart(partial(trial.read_back, subject.dataset, spread(length, SAMPLES), Path(folder)), PATIENCE)
    return told(found) if isinstance(found, ReadBack) else None


def told(found: ReadBack) -> KeptRecord | None:
    if found.why_not:
        return KeptRecord(why_not=found.why_not)
    if not found.seconds:
        return None
    spent = np.array(found.seconds)[:, None]
    return KeptRecord(interval(bootstrap([spent], lambda rows: rows.mean(axis=0))[:, 0], float(spent.mean())), found.bytes)
