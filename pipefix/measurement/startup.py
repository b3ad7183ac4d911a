"""Seconds to the first batch, and to the first of the next epoch, of the user's own loader, untouched."""

from __future__ import annotations

import time
import warnings

from pipefix.hooks.torch_internals import end_workers, hands_out_of_one
from pipefix.measurement.experiments import START_UP
from pipefix.measurement.measurement import Measurement
from pipefix.measurement.worker_endings import abandon
from pipefix.subject.failure import summary
from pipefix.subject.subject import Subject


def measure(subject: Subject, measurement: Measurement, seconds_left: float) -> None:
    """Fill in the first-batch latency and, where time allows, the restart of an epoch."""
    if hands_out_of_one(subject.loader):
        measurement.declined[START_UP] = "the loader hands batches out of one iterator, which the file that made it has begun"
        return
    try:
        measurement.first_batch = first = _first_batch(subject)
        if subject.loader.persistent_workers:
            # Workers stay: a new epoch costs only the refilling of the pipeline, which the steady state already shows.
            making = [row.trace.ended - row.trace.begun for row in measurement.rows("real")]
            measurement.epoch_restart = min(first, sum(making) / len(making) / 1e9) if making else first
        elif seconds_left > 2 * first:
            measurement.epoch_restart = _first_batch(subject)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the user's code again: what was measured before stays worth telling
        measurement.declined[START_UP] = f"an epoch's first batch raised {summary(error)}"


def _first_batch(subject: Subject) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        begun = time.perf_counter()
        iterator = iter(subject.loader_to_run())
        try:
            next(iterator)
            return time.perf_counter() - begun
        except BaseException:
            abandon(iterator)
            raise
        finally:
            end_workers(iterator)
