"""Work done once and kept: the bytes packed together, smaller images, decoded arrays, samples up to what is random."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import ClassVar

import numpy as np

from pipefix.measurement import experiments
from pipefix.measurement.experiments import Experiment
from pipefix.measurement.measurement import KeptRecord
from pipefix.plan import commands
from pipefix.plan.model import Line, Part, at_most, draws
from pipefix.plan.plan import Step
from pipefix.plan.remedy import Remedy
from pipefix.plan.situation import Situation
from pipefix.vocabulary.quantity import Interval, percent, seconds, size
from pipefix.vocabulary.stage import Stage

FIND_SECONDS = Interval(10e-6, 4e-6, 30e-6)
"""Looking one record up in a memory-mapped cache and making a sample of it, where that was not tried."""
COPY_RATE = Interval(16e9, 6e9, 24e9)
"""Bytes a second out of the page cache into a fresh array."""
WRITE_RATE = 200e6
"""Bytes a second that a cache is written with."""
RESIZED = 256


class Cache(Remedy):
    """A cache of what a sample is at one point of its way."""

    arm: ClassVar[Experiment]

    def judge(self, at: Situation) -> Iterable[Step]:
        yield self._judge(at)

    def _judge(self, at: Situation) -> Step:
        if at.found.settings.kind == "iterable":
            return self.declined("an IterableDataset has no index that records could be looked up by")
        why = self.useless(at)
        if why is not None:
            return self.declined(why)
        kept = self.record_bytes(at)
        if kept is None:
            return self.declined("how large a record would be could not be measured, so neither can its worth")
        disk = kept.value * at.length if at.length is not None else None
        read = reading(kept, at.found.record)
        tried = at.found.record.gain if at.found.record is not None else None
        measured = tried is not None and self.finished(at)
        if disk is not None and at.memory is not None and disk > at.memory:
            measured = False
            if at.disk_seconds is None:
                return self.declined(
                    f"the cache would take {size(disk)}, more than the {size(at.memory)} of free memory, and how fast this disk "
                    "reads was not measured"
                )
            read = _from_disk(at, read, kept)
        gain = at.after(self.arm, self.line(at, read), name=self.id)
        if tried is not None:
            # Nothing is left to be done to a finished sample: no cache makes the loader faster than those of them did.
            gain = tried if measured else at_most(gain, tried)
        once = self.making_seconds(at)
        return self.proposed(
            f"{self.saves(at)}; reading a record of {size(kept.value)} back takes about {seconds(float(read.wall[0]))}"
            + (", and the loader was run over a few of them" if measured else ""),
            gain,
            commands.cache(self.id, at.target, at.verbs),
            disk_bytes=disk,
            seconds=at.length * once + (disk or 0.0) / WRITE_RATE if at.length is not None else None,
            risk=self.risk(at),
            measured=measured,
        )

    @abstractmethod
    def useless(self, at: Situation) -> str | None:
        """Why this cache makes no sense here."""

    @abstractmethod
    def record_bytes(self, at: Situation) -> Interval | None: ...

    def finished(self, at: Situation) -> bool:
        """Whether what is kept is the sample as the dataset gives it."""
        return False

    @abstractmethod
    def line(self, at: Situation, read: Part) -> Line:
        """The pipeline with the cache in place."""

    @abstractmethod
    def saves(self, at: Situation) -> str: ...

    def making_seconds(self, at: Situation) -> float:
        """Seconds a sample to make the record."""
        return at.line.wall(Stage.STORAGE) + at.line.wall(Stage.DECODE)

    def risk(self, at: Situation) -> str | None:
        return None


def reading(kept: Interval, tried: KeptRecord | None) -> Part:
    """``tried``: a record that was read back; what this one holds more or less than it is copied, or is not."""
    copied = draws(kept, "record") / draws(COPY_RATE, "copy")
    if tried is None or tried.why_not:
        wall = draws(FIND_SECONDS, "find") + copied
    else:
        known = draws(tried.seconds, "find")
        wall = np.maximum(known + copied - tried.bytes / draws(COPY_RATE, "copy"), known / 2)
    return Part(wall, wall)


def unstorable(at: Situation) -> str | None:
    """Why finished samples cannot be records; None where they can, or nobody tried."""
    tried = at.found.record
    return f"a sample was to be stored, and could not be: {tried.why_not}" if tried is not None and tried.why_not else None


def _from_disk(at: Situation, read: Part, kept: Interval) -> Part:
    """A cache that does not fit into memory is read from the disk each time: all workers wait for the one disk."""
    waiting = draws(kept, "record") * (at.disk_seconds or 0.0) * max(1, at.found.workers)
    return Part(read.wall + waiting, read.cpu)


class CacheSource(Cache):
    """The bytes that each sample reads, in one file: no opening, no small reads, no latency; the code stays as it is."""

    id = "cache-source"
    stage = Stage.STORAGE
    title = "Cache the source bytes in one file"
    arm = experiments.NO_STORAGE

    def useless(self, at: Situation) -> str | None:
        return at.nothing_to_keep

    def record_bytes(self, at: Situation) -> Interval | None:
        return Interval(at.source_bytes, at.source_bytes, at.source_bytes)

    def line(self, at: Situation, read: Part) -> Line:
        return at.line.replacing(Stage.STORAGE, read)

    def saves(self, at: Situation) -> str:
        return f"Reading takes {seconds(at.wall(Stage.STORAGE))} a sample"

    def making_seconds(self, at: Situation) -> float:
        return at.line.wall(Stage.STORAGE)


class CacheResized(Cache):
    """The same pictures with fewer pixels: less to read and much less to decode."""

    id = f"cache-resized-{RESIZED}"
    stage = Stage.DECODE
    title = f"Cache the images resized to {RESIZED} pixels"
    arm = experiments.NO_DECODE

    def useless(self, at: Situation) -> str | None:
        if not at.operations.pictures:
            return "no operation that decodes pictures was seen"
        part = self._part(at)
        if part is None:
            return "neither the pictures' pixels nor their bytes could be measured"
        if part.value > 0.8:
            pixels = at.pixels
            assert pixels is not None
            return (
                f"the images are small already: {_about(part)}{pixels.value / 1e6:.2f} megapixels, {RESIZED} pixels on the shorter "
                f"side leave {percent(part.value)} of them"
            )
        return None

    def _part(self, at: Situation) -> Interval | None:
        """Pixels that are left, of those there are; images of 4:3."""
        if at.pixels is None:
            return None
        left = RESIZED * RESIZED * 4 / 3
        return Interval(*(min(1.0, left / pixels) for pixels in (at.pixels.value, at.pixels.high, at.pixels.low)))

    def record_bytes(self, at: Situation) -> Interval | None:
        part = self._part(at)
        return part.scaled(at.source_bytes) if part is not None and at.source_bytes else None

    def line(self, at: Situation, read: Part) -> Line:
        part = self._part(at)
        assert part is not None
        return at.line.replacing(Stage.STORAGE, read).scaled(Stage.DECODE, draws(part, "pixels"))

    def saves(self, at: Situation) -> str:
        part = self._part(at)
        assert part is not None
        return (
            f"Decoding takes {seconds(at.wall(Stage.DECODE))} a sample; {_about(part)}{percent(part.value)} of the pixels "
            "would be left"
        )

    def making_seconds(self, at: Situation) -> float:
        return at.line.wall(Stage.STORAGE) + 2 * at.line.wall(Stage.DECODE)

    def risk(self, at: Situation) -> str | None:
        return (
            f"Crops see at most {RESIZED} pixels on the shorter side: check the accuracy if training crops are larger than 224 "
            "pixels."
        )


def _about(part: Interval) -> str:
    """Pixels told from the files' size are a guess, and said to be one."""
    return "about " if part.low < part.high else ""


class CacheDecoded(Cache):
    """Decoded arrays: nothing left to decode, at the price of disk."""

    id = "cache-decoded"
    stage = Stage.DECODE
    title = "Cache the decoded arrays"
    arm = experiments.DECODED

    def useless(self, at: Situation) -> str | None:
        if not at.wall(Stage.DECODE):
            return "nothing is decoded"
        return unstorable(at) if self.finished(at) else None

    def finished(self, at: Situation) -> bool:
        return not at.wall(Stage.AUGMENT)

    def record_bytes(self, at: Situation) -> Interval | None:
        return at.decoded_bytes

    def line(self, at: Situation, read: Part) -> Line:
        return at.line.without(Stage.DECODE).replacing(Stage.STORAGE, read)

    def saves(self, at: Situation) -> str:
        spent = at.line.wall(Stage.STORAGE) + at.line.wall(Stage.DECODE)
        return f"Reading and decoding take {seconds(spent)} a sample"


class CacheSample(Cache):
    """Samples as they are before their first random operation; what is random stays live."""

    id = "cache-sample"
    stage = Stage.AUGMENT
    title = "Cache samples up to the last deterministic operation"
    arm = experiments.SAMPLES

    def useless(self, at: Situation) -> str | None:
        operations = at.operations
        if not at.wall(Stage.AUGMENT):
            return "nothing is done to samples after decoding, so this is the same as cache-decoded"
        if not operations.fixed:
            return (
                f"the first operation on decoded samples, {operations.first_random or 'unnamed'}, may be random: the same as "
                "cache-decoded"
            )
        return unstorable(at) if self.finished(at) else None

    def finished(self, at: Situation) -> bool:
        return at.operations.all_fixed

    def record_bytes(self, at: Situation) -> Interval | None:
        if at.operations.all_fixed:
            return Interval(at.sample_bytes, at.sample_bytes, at.sample_bytes) if at.sample_bytes else None
        # Between decoding and the finished sample lies whatever the fixed operations leave: no more than the larger of the two.
        decoded = at.decoded_bytes
        if decoded is None or not at.sample_bytes:
            return decoded
        return Interval(max(decoded.value, at.sample_bytes), min(decoded.low, at.sample_bytes), max(decoded.high, at.sample_bytes))

    def _kept(self, at: Situation) -> float:
        """Seconds a sample of the operations whose results would be kept."""
        return sum(op.wall for op in at.operations.fixed)

    def line(self, at: Situation, read: Part) -> Line:
        line = at.line.without(Stage.DECODE).replacing(Stage.STORAGE, read)
        return line.without(Stage.AUGMENT) if at.operations.all_fixed else line.shortened(Stage.AUGMENT, self._kept(at))

    def saves(self, at: Situation) -> str:
        spent = at.line.wall(Stage.STORAGE) + at.line.wall(Stage.DECODE) + self._kept(at)
        last = at.operations.fixed[-1].name
        return f"Everything up to {last} takes {seconds(spent)} a sample and always gives the same"

    def making_seconds(self, at: Situation) -> float:
        return super().making_seconds(at) + self._kept(at)
