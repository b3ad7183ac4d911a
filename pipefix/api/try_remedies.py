"""Beside a probe: fused calls, a cache of samples and FastLoader's hand-over, tried on a few samples for what they would bring."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from torch.utils.data import DataLoader, Dataset

from pipefix.caches import estimate
from pipefix.caches.convert import recipe_of
from pipefix.caches.dataset import CachedDataset, cache_of
from pipefix.caches.estimate import ReadBack
from pipefix.caches.survey import FirstRecords, first_records
from pipefix.diagnosis.diagnosis import Diagnosis
from pipefix.fixes import fused_trial
from pipefix.fixes.same_samples import mode_of
from pipefix.fixes.speedup import Pipeline, faster
from pipefix.loader.fusing.child_process import in_child_process
from pipefix.loader.fusing.errors import NotFused
from pipefix.loader.fusing.pixel_difference import spread
from pipefix.loader.planning import as_planned
from pipefix.measurement.consumer import Consumer
from pipefix.measurement.measurement import FusedCall, KeptRecord, TriedCache
from pipefix.measurement.statistics import Floats, bootstrap, interval
from pipefix.plan.advise import WORTH_MAKING
from pipefix.plan.case import Case
from pipefix.plan.operations import pictures_of
from pipefix.plan.plan import Proposed
from pipefix.plan.remedies.caches import kept_already
from pipefix.plan.remedies.moving_batches import HandoverSlots
from pipefix.plan.remedies.pictures import FuseCalls
from pipefix.plan.remedy import WORTH_TRYING
from pipefix.subject.subject import Subject
from pipefix.vocabulary.errors import PipefixError
from pipefix.vocabulary.gain import MeasuredGain
from pipefix.vocabulary.quantity import Interval
from pipefix.vocabulary.stage import IN_SAMPLE, Stage

MODES = ("exact", "close")
LOOKING, RUNNING = 0.35, 0.5
"""Parts of the time in which pictures are made both ways, and the loader is run with fused calls; the rest goes to starting
processes, and to finding out how to fuse."""
MADE_TO_FUSE, LONGEST = 18, 4.0
"""Samples that a trial makes at least, counted by their own code's time; and how many times the time that it has it may take."""
SAMPLES = 3
MOST_RECORDS = 8
MADE_FOR_RECORD = 4
"""How often a sample is made for one record: to see whether it is random, where transforms begin, and what it reads."""
PATIENCE = 10.0
"""Seconds after which the trial is left."""
LATE = 2.0
"""A first batch that takes so many times what there is for a loader's trial: it would have to come twice."""


def making(diagnosis: Diagnosis) -> float:
    """Seconds in which one process makes a sample."""
    return sum(diagnosis.stages[stage].wall.value for stage in IN_SAMPLE if stage in diagnosis.stages)


def fused_calls(subject: Subject, diagnosis: Diagnosis, seconds: float) -> dict[str, FusedCall]:
    """By mode, in about so long; empty where no pictures are decoded or read from a cache (what would make them takes seconds to
    load), where there is too little to be gained by any, or samples take too long to make."""
    if subject.iterable or diagnosis.part_of_making(Stage.DECODE, Stage.AUGMENT) <= WORTH_TRYING:
        return {}
    if not pictures_of(diagnosis) and cache_of(subject.dataset) is None:
        return {}
    if (told := mode_of(subject.loader)) is not None:
        return {told: FusedCall(why_not=f"the loader is told to use fused calls already (fuse = {told!r})")}
    if MADE_TO_FUSE * making(diagnosis) * len(MODES) > LONGEST * seconds:
        return {}
    import pipefix.loader.fusing.source  # noqa: F401 - once here, rather than in each of the processes that try it

    return {mode: _tried(subject, mode, LOOKING * seconds / len(MODES)) for mode in MODES}


def _tried(subject: Subject, mode: str, seconds: float) -> FusedCall:
    try:
        return fused_call(in_child_process(partial(fused_trial.try_on_dataset, subject.loader, mode, seconds)))
    except NotFused as error:
        return FusedCall(why_not=f"one call cannot make these samples: {error}")


def fused_call(trial: fused_trial.DatasetTrial) -> FusedCall:
    return FusedCall(
        left=_left(np.column_stack([trial.fused, trial.own])), pictures=len(trial.own), apart=trial.distance, draws=trial.draws,
        processes=trial.processes,
    )  # fmt: skip


def _left(pairs: Floats) -> Interval:
    """The part of the time that fused calls take, of pairs of fused and own."""

    def ratio(pairs: Floats) -> Floats:
        fused, own = pairs.sum(axis=0)
        return np.atleast_1d(fused / own)

    return interval(bootstrap([pairs], ratio)[:, 0], float(ratio(pairs)[0]))


def sample_record(subject: Subject, consumer: Consumer, case: Case, seconds: float) -> KeptRecord | None:
    """None where there is too little to be gained, or it could not be tried.

    ``seconds``: for the loader over such records, which is left out where its first batch comes late, or nobody knows when.
    """
    length = subject.settings.length
    if subject.iterable or not length or case.diagnosis.part_of_making(*IN_SAMPLE) <= WORTH_TRYING:
        return None
    with tempfile.TemporaryDirectory(prefix="pipefix-read-back-") as folder:
        trial = partial(estimate.read_back, subject.dataset, spread(length, SAMPLES), Path(folder), seconds)
        try:
            result: ReadBack = in_child_process(trial, PATIENCE)
        except NotFused:
            return None
        record = kept_record(result)
        # Of whole batches that are made at once records of single samples show nothing.
        if record is None or result.cache is None or subject.batched_fetch or mode_of(subject.loader) is not None:
            return record
        loader = subject.loader_to_run()
        vars(loader)["dataset"] = _Repeated(CachedDataset(result.cache))
        worth = _gain(subject, consumer, case, loader, seconds)
        return replace(record, gain=worth.interval, pairs=worth.blocks) if worth is not None else record


def begin_cache(subject: Subject, store: str, seconds: float, sample_s: float) -> TriedCache | None:
    """A cache that keeps this of samples, begun on a few of them; None where nothing came of it in so many seconds.

    ``sample_s``: that making one takes; the slower they are, the fewer are looked at.
    """
    cache = cache_of(subject.dataset)
    if cache is not None and (why := kept_already(store, cache.manifest.recipe.store, cache.path)):
        return TriedCache(why)
    if seconds <= 0:
        return None
    count = max(1, min(MOST_RECORDS, int(seconds / (MADE_FOR_RECORD * sample_s)))) if sample_s else MOST_RECORDS
    begin = partial(first_records, subject.dataset, recipe_of("lmdb", store), count)
    try:
        result: FirstRecords = in_child_process(begin, seconds)
    except NotFused:
        return None
    why = f"convert would refuse it: {result.refused}" if result.refused else ""
    if result.keeps_nothing:
        why = "nothing that its transforms give could be stored, so this is the same as cache-decoded"
    made = result.record_bytes, result.described_bytes, result.part_samples
    return TriedCache(why, *made, whole=result.whole, uncut=result.uncut, kept=result.kept)


def kept_record(result: ReadBack) -> KeptRecord | None:
    if result.why_not:
        return KeptRecord(why_not=result.why_not)
    if not result.seconds:
        return None
    spent = np.array(result.seconds)[:, None]
    return KeptRecord(interval(bootstrap([spent], lambda rows: rows.mean(axis=0))[:, 0], float(spent.mean())), result.bytes)


@dataclass
class _Repeated(Dataset[Any]):
    """A few records in the place of a whole dataset: whatever index is asked for, one of them is read."""

    cached: CachedDataset

    def __getitem__(self, index: Any) -> Any:
        return self.cached[int(index) % len(self.cached)]

    def __getitems__(self, indices: Sequence[Any]) -> list[Any]:
        return self.cached.__getitems__([int(index) % len(self.cached) for index in indices])


def fused_loader(subject: Subject, consumer: Consumer, case: Case, seconds: float) -> dict[str, FusedCall]:
    """The fused calls that were tried, those that promise most with what the whole loader gains by them."""
    calls, chosen = case.measurement.fused, FuseCalls().chosen(case)
    if chosen is None or chosen[1].value < WORTH_MAKING:
        return calls
    mode = chosen[0]
    loader = as_planned.with_settings(subject.loader, fuse=mode)
    return calls | {mode: replace(calls[mode], gain=_gain(subject, consumer, case, loader, RUNNING * seconds))}


def handover(subject: Subject, consumer: Consumer, case: Case, seconds: float) -> MeasuredGain | None:
    """None where the arms promise nothing of it, or it could not be tried."""
    step = HandoverSlots().answer(case)
    if not isinstance(step, Proposed) or step.speedup.value < WORTH_MAKING:
        return None
    loader = as_planned.with_settings(subject.loader, engine=HandoverSlots.change.engine)
    return _gain(subject, consumer, case, loader, seconds)


def _gain(subject: Subject, consumer: Consumer, case: Case, loader: DataLoader[Any], seconds: float) -> MeasuredGain | None:
    """How much faster a loader is than the subject's, run in turn; None where that starts too late, or it fails: records of samples
    are perhaps not all that the collate function or the step makes use of."""
    first_batch = case.measurement.first_batch
    if first_batch is None or first_batch > LATE * seconds:
        return None
    both = Pipeline(subject, consumer), Pipeline(replace(subject, loader=loader), consumer)
    try:
        worth = faster(*both, seconds=seconds, from_memory=case.files_fit)
    except (PipefixError, RuntimeError):
        return None
    return MeasuredGain(worth.gain, worth.pairs)
