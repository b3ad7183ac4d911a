"""Remedies that store work done once: source bytes, smaller images, decoded arrays, samples up to the first random operation."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import numpy as np

from pipefix.diagnosis.throughput import PipelineModel, StageTime, at_most, draws
from pipefix.measurement import experiments
from pipefix.measurement.experiments import Experiment
from pipefix.measurement.measurement import KeptRecord, TriedCache
from pipefix.plan import cache_disk
from pipefix.plan.case import Case
from pipefix.plan.plan import Step
from pipefix.plan.planfile import CACHES, CacheChange
from pipefix.plan.remedy import Remedy
from pipefix.vocabulary.commands import on_target
from pipefix.vocabulary.gain import MeasuredGain, Modelled
from pipefix.vocabulary.quantity import Interval, exactly, percent, seconds, size
from pipefix.vocabulary.stage import Stage

FIND_SECONDS = Interval(10e-6, 4e-6, 30e-6)
"""Looking one record up in a memory-mapped cache and making a sample of it, where that was not tried."""
COPY_RATE = Interval(16e9, 6e9, 24e9)
"""Bytes a second out of the page cache into a fresh array."""
WHOLE_RATE = Interval(0.4e9, 0.15e9, 1e9)
"""Bytes a second of a file that is kept whole for each sample's sake, into memory that was not used before: of HDF5, of a map."""
KEPT_WHOLE = 4.0
"""How many times what a sample reads its record holds at least, where that is whole files."""
WRITE_RATE = 200e6
"""Bytes a second that a cache is written with."""
RESIZED = 256
DESCRIBED_BYTES = 40.0
"""In which a record of a source cache says which range of which file it holds, where none was made."""
NOT_TRIED = "There was no time to see whether some samples can be converted, and what they take: --dry-run tells."
_LATER = ("source", "resized", "decoded", "sample")
"""What is stored, by how far a sample has come."""
_CONNECTIONS = ("socket.", "ssl.", "http.client.request", "http.client.getresponse")
"""Operations of connections, where no client that a source cache can stand in for made them."""


class Cache(Remedy):
    """A cache of what a sample is at one point of its way."""

    arm: ClassVar[Experiment]
    change: ClassVar[CacheChange]
    sized_by_trial: ClassVar[bool] = True
    """Whether records that were made on a few samples tell how large they are better than the pipeline's own figures."""

    def answer(self, case: Case) -> Step:
        if case.measurement.settings.kind == "iterable":
            return self.declined("an IterableDataset has no index that records could be looked up by")
        if (length := case.length) is None:
            return self.declined("the dataset tells no length, so which samples a cache would hold cannot be told")
        record, finished = case.measurement.record, self.finished(case)
        tried_cache = case.measurement.tried_caches.get(self.change.store, TriedCache())
        why = self.useless(case) or tried_cache.refused
        if not why and finished and record is not None and record.why_not:
            why = f"a sample was to be stored, and could not be: {record.why_not}"
        if why:
            return self.declined(why)
        tried_bytes = tried_cache.record_bytes if self.sized_by_trial else None
        record_bytes = exactly(tried_bytes) if tried_bytes else self.record_bytes(case)
        if record_bytes is None:
            return self.declined("how large a record would be could not be measured, so neither can its worth")
        disk_bytes = self.disk_bytes(case, length, record_bytes.value, tried_cache)
        read, taken_bytes = reading(record_bytes, record), record_bytes.value
        if tried_cache.record_bytes and tried_cache.record_bytes > KEPT_WHOLE * taken_bytes:
            taken_bytes = tried_cache.record_bytes
            copied = draws(exactly(taken_bytes), "whole") / draws(WHOLE_RATE, "copy whole")
            read = StageTime(read.wall + copied, read.cpu + copied)
        tried = record.gain if record is not None else None
        measured = finished and tried is not None
        if case.memory is not None and disk_bytes > case.memory:
            measured = False
            if case.disk_seconds is None:
                needed = f"the cache would take {size(disk_bytes)}, more than the {size(case.memory)} of free memory"
                return self.declined(f"{needed}, and how fast this disk reads was not measured")
            # It is read from the disk each time: all workers wait for the one disk.
            waiting = draws(record_bytes, "record") * case.disk_seconds * max(1, case.measurement.workers)
            read = StageTime(read.wall + waiting, read.cpu)
        gain = case.after(self.arm, self.with_cache(case, read), name=self.id)
        if tried is not None:
            # Nothing is left to be done to a finished sample: no cache makes the loader faster than those of them did.
            gain = tried if measured else at_most(gain, tried)
        known = MeasuredGain(gain, record.pairs) if measured and record is not None else Modelled(gain)
        once, store = self.making_seconds(case), self.change.store
        disk: float | None = disk_bytes
        if tried_cache.late and self.sized_by_trial:
            disk = None  # what calls gave back is no measure of what samples hold: a decoder may be called hundreds of times
        sized = {"size": RESIZED} if store == "resized" else {}
        return self.proposed(
            f"{self.saves(case)}; reading a record of {size(taken_bytes)} back takes about {seconds(float(read.wall[0]))}"
            + (", and the loader was run over a few of them" if measured else ""),
            known,
            on_target("convert", case.target, to="lmdb", store=store, **sized, out=f"cache-{store}"),
            disk_bytes=disk,
            seconds=length * once + (disk or 0.0) / WRITE_RATE,
            risk=" ".join(filter(None, (self.risk(case), NOT_TRIED if tried_cache.late else None))) or None,
        )

    @abstractmethod
    def useless(self, case: Case) -> str | None:
        """Why this cache makes no sense here."""

    @abstractmethod
    def record_bytes(self, case: Case) -> Interval | None: ...

    def disk_bytes(self, case: Case, length: int, record_bytes: float, tried_cache: TriedCache) -> float:
        """What records of all samples take."""
        part_samples = tried_cache.part_samples or length
        return cache_disk.of_parts(length, part_samples, part_samples * cache_disk.of_record(record_bytes))

    def finished(self, case: Case) -> bool:
        """Whether what is kept is the sample as the dataset gives it."""
        return False

    @abstractmethod
    def with_cache(self, case: Case, read: StageTime) -> PipelineModel:
        """The pipeline with the cache in place."""

    @abstractmethod
    def saves(self, case: Case) -> str: ...

    def risk(self, case: Case) -> str | None:
        """What may be lost by it."""
        return None

    def making_seconds(self, case: Case) -> float:
        """Seconds a sample to make the record."""
        return case.model.wall(Stage.STORAGE) + case.model.wall(Stage.DECODE)


def kept_already(store: str, now: str, place: object) -> str | None:
    """Why a cache of this store adds nothing to one of ``now``, which samples are read from; None where it does."""
    if now not in _LATER or _LATER.index(store) > _LATER.index(now):
        return None
    later = "the same" if store == now else "what comes later on a sample's way"
    return f"the pipeline reads from {place} already, which holds {later}"


def reading(record_bytes: Interval, tried: KeptRecord | None) -> StageTime:
    """``tried``: a record that was read back; what this one holds more or less than it is copied, or is not."""
    copied = draws(record_bytes, "record") / draws(COPY_RATE, "copy")
    if tried is None or tried.why_not:
        wall = draws(FIND_SECONDS, "find") + copied
    else:
        known = draws(tried.seconds, "find")
        wall = np.maximum(known + copied - tried.bytes / draws(COPY_RATE, "copy"), known / 2)
    return StageTime(wall, wall)


class CacheSource(Cache):
    """The bytes that each sample reads, in one file: no opening, no small reads, no latency; the code stays as it is."""

    id = "cache-source"
    stage = Stage.STORAGE
    title = "Cache the source bytes in one file"
    change = CacheChange(path=f"{CACHES}/source", store="source")
    arm = experiments.NO_STORAGE
    sized_by_trial = False  # what was read of thousands of samples says more

    def useless(self, case: Case) -> str | None:
        if not (reading_s := case.wall(Stage.STORAGE)):
            return "nothing is read from storage while samples are made"
        if not case.source_bytes:
            return f"storage takes {seconds(reading_s)} a sample, but no bytes were seen that could be kept"
        return _past_clients(case)

    def record_bytes(self, case: Case) -> Interval | None:
        return exactly(case.source_bytes)

    def disk_bytes(self, case: Case, length: int, record_bytes: float, tried_cache: TriedCache) -> float:
        """A file that several samples of one part read is kept once in it, and one that is mapped, or HDF5, is kept whole."""
        described_bytes = tried_cache.described_bytes or DESCRIBED_BYTES
        if not tried_cache.part_samples:
            return super().disk_bytes(case, length, record_bytes + described_bytes, tried_cache)
        part_samples, reads = min(length, tried_cache.part_samples), case.measurement.read_once
        kept_bytes = part_samples * cache_disk.of_record(record_bytes + described_bytes)
        if reads:
            kept_bytes = cache_disk.of_part(record_bytes, described_bytes, reads, part_samples)
        mapped = cache_disk.of_record((tried_cache.record_bytes or 0.0) + described_bytes)
        kept_bytes = max(kept_bytes, mapped + (part_samples - 1) * cache_disk.of_record(described_bytes))
        return cache_disk.of_parts(length, part_samples, kept_bytes)

    def with_cache(self, case: Case, read: StageTime) -> PipelineModel:
        return case.model.replacing(Stage.STORAGE, read)

    def saves(self, case: Case) -> str:
        return f"Reading takes {seconds(case.wall(Stage.STORAGE))} a sample"

    def making_seconds(self, case: Case) -> float:
        return case.model.wall(Stage.STORAGE)


def _past_clients(case: Case) -> str | None:
    """Why what is read cannot be kept: it comes through connections that the code keeps itself, in a protocol of its own."""
    cost = case.diagnosis.stages[Stage.STORAGE]
    bare = [op for op in cost.ops if op.name.startswith(_CONNECTIONS)]
    if sum(op.wall_s for op in bare) < cost.wall.value / 2:
        return None
    largest = max(bare, key=lambda op: op.wall_s)
    return f"samples read through {largest.name}, for which a source cache cannot answer: it does for files, requests, fsspec, …"


class CacheResized(Cache):
    """The same pictures with fewer pixels: less to read and much less to decode."""

    id = f"cache-resized-{RESIZED}"
    stage = Stage.DECODE
    relieves = (Stage.STORAGE,)
    title = f"Cache the images resized to {RESIZED} pixels"
    change = CacheChange(path=f"{CACHES}/resized-{RESIZED}", store="resized")
    arm = experiments.NO_DECODE

    def risk(self, case: Case) -> str | None:
        check = "check the accuracy if training crops are larger than 224 pixels."
        return f"Crops see at most {RESIZED} pixels on the shorter side: {check}"

    def useless(self, case: Case) -> str | None:
        if not case.operations.pictures:
            return "no operation that decodes pictures was seen"
        if case.pixels is None:
            return "neither the pictures' pixels nor their bytes could be measured"
        part = self._part(case)
        if part.value > 0.8:
            leaves = f"{RESIZED} pixels on the shorter side leave {percent(part.value)} of them"
            return f"the images are small already: {_about(part)}{case.pixels.value / 1e6:.2f} megapixels, {leaves}"
        return None

    def _part(self, case: Case) -> Interval:
        """Pixels that are left, of those there are; images of 4:3."""
        left = RESIZED * RESIZED * 4 / 3
        return case.pixels.mapped(lambda pixels: min(1.0, left / pixels)) if case.pixels is not None else exactly(1.0)

    def record_bytes(self, case: Case) -> Interval | None:
        return self._part(case).scaled(case.source_bytes) if case.source_bytes else None

    def with_cache(self, case: Case, read: StageTime) -> PipelineModel:
        return case.model.replacing(Stage.STORAGE, read).scaled(Stage.DECODE, draws(self._part(case), "pixels"))

    def saves(self, case: Case) -> str:
        spent, part = seconds(case.wall(Stage.DECODE)), self._part(case)
        return f"Decoding takes {spent} a sample; {_about(part)}{percent(part.value)} of the pixels would be left"

    def making_seconds(self, case: Case) -> float:
        return case.model.wall(Stage.STORAGE) + 2 * case.model.wall(Stage.DECODE)


def _about(part: Interval) -> str:
    """Pixels told from the files' size are a guess, and said to be one."""
    return "about " if part.low < part.high else ""


class CacheDecoded(Cache):
    """Decoded arrays: nothing left to decode, at the price of disk."""

    id = "cache-decoded"
    stage = Stage.DECODE
    relieves = (Stage.STORAGE,)
    title = "Cache the decoded arrays"
    change = CacheChange(path=f"{CACHES}/decoded", store="decoded")
    arm = experiments.DECODED

    def answer(self, case: Case) -> Step:
        sample = case.measurement.tried_caches.get("sample")
        if sample is None or not (sample.whole and sample.uncut) or not case.wall(Stage.AUGMENT):
            return super().answer(case)
        finished = CacheSample().answer(case)
        why = "no transforms can be held apart, so it would keep finished samples: the same as cache-sample"
        return self.declined(why, finished.gain, disk_bytes=finished.disk_bytes, seconds=finished.seconds)

    def useless(self, case: Case) -> str | None:
        return None if case.wall(Stage.DECODE) else "nothing is decoded"

    def finished(self, case: Case) -> bool:
        return not case.wall(Stage.AUGMENT)

    def record_bytes(self, case: Case) -> Interval | None:
        return exactly(case.sample_bytes) if self.finished(case) and case.sample_bytes else case.decoded_bytes

    def with_cache(self, case: Case, read: StageTime) -> PipelineModel:
        return case.model.without(Stage.DECODE).replacing(Stage.STORAGE, read)

    def saves(self, case: Case) -> str:
        return f"Reading and decoding take {seconds(self.making_seconds(case))} a sample"


class CacheSample(Cache):
    """Samples as they are before their first random operation; what is random stays live."""

    id = "cache-sample"
    stage = Stage.AUGMENT
    relieves = (Stage.STORAGE, Stage.DECODE)
    title = "Cache samples up to the last deterministic operation"
    change = CacheChange(path=f"{CACHES}/sample", store="sample")
    arm = experiments.SAMPLES

    def useless(self, case: Case) -> str | None:
        operations = case.operations
        if not case.wall(Stage.AUGMENT):
            return "nothing is done to samples after decoding, so this is the same as cache-decoded"
        if not operations.fixed and not operations.same:
            first = operations.first_random or "unnamed"
            return f"the first operation on decoded samples, {first}, may be random: the same as cache-decoded"
        return None

    def finished(self, case: Case) -> bool:
        return case.operations.all_fixed

    def record_bytes(self, case: Case) -> Interval | None:
        if case.operations.all_fixed:
            return exactly(case.sample_bytes) if case.sample_bytes else None
        # Between decoding and the finished sample lies whatever the fixed operations leave: no more than the larger of the two.
        decoded = case.decoded_bytes
        if decoded is None or not case.sample_bytes:
            return decoded
        finished = case.sample_bytes
        return Interval(max(decoded.value, finished), min(decoded.low, finished), max(decoded.high, finished))

    def _kept(self, case: Case) -> float:
        """Seconds a sample of the operations whose results would be kept."""
        return sum(op.wall_s for op in case.operations.fixed)

    def with_cache(self, case: Case, read: StageTime) -> PipelineModel:
        part = self._kept(case) / (case.model.wall(Stage.AUGMENT) or float("inf"))
        left = 0.0 if case.operations.all_fixed else max(0.0, 1 - part)
        return case.model.without(Stage.DECODE).replacing(Stage.STORAGE, read).scaled(Stage.AUGMENT, left)

    def saves(self, case: Case) -> str:
        spent = self.making_seconds(case)
        if case.operations.same_by_trial:
            return f"Making a sample takes {seconds(spent)}, and a few that were made twice came out the same"
        last = case.operations.fixed[-1].name
        return f"Everything up to {last} takes {seconds(spent)} a sample and always gives the same"

    def making_seconds(self, case: Case) -> float:
        return super().making_seconds(case) + self._kept(case)

    def risk(self, case: Case) -> str | None:
        warning = "A random step that is taken too seldom to show in a few samples would be stored as it came out."
        return warning if case.operations.same_by_trial else None
