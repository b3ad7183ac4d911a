"""What records of a cache take on disk, those of a ``source`` cache too: what several samples of a part read is kept once. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pipefix.measurement.measurement import DistinctReads

PAGE, PAGE_HEADER, ENTRY = 4096, 16, 18
"""Bytes of a page of LMDB, of its header, and of what a record has beside its own: a header, a key and its place in the page."""
INDEX = 24
"""Bytes a sample in the index of a part."""
A_PART, A_CACHE = 4.5 * PAGE, PAGE
"""Bytes that a part takes however few its samples are (LMDB's account of itself, the facts, the end of the index), and a cache
however few its parts are: its manifest."""
ALL_DIFFERENT = 0.8
"""Where so many samples of all seem to read bytes of their own, all do."""
AS_MUCH = 0.995
"""Part of what was read later that had not been read before, above which samples read nothing that others do."""


def of_record(record_bytes: float) -> float:
    """Bytes that LMDB takes for a record: whole pages of its own, or, as at least two fit, its part of a page that is not split."""
    fit = int((PAGE - PAGE_HEADER) // (record_bytes + ENTRY))
    whole = math.ceil((record_bytes + PAGE_HEADER) / PAGE) * PAGE + 2 * ENTRY
    return PAGE / fit if fit >= 2 else float(whole)


def of_parts(length: int, part_samples: int, part_bytes: float) -> float:
    """What a cache takes in which records of so many samples take ``part_bytes``."""
    part_samples = min(length, part_samples)
    return A_CACHE + math.ceil(length / part_samples) * A_PART + length * (INDEX + part_bytes / part_samples)


def of_part(record_bytes: float, described_bytes: float, reads: Sequence[DistinctReads], samples: int) -> float:
    """Bytes that a part with so many samples takes of what they read, and of what tells where each of them finds it.

    Either every sample reads something that all do, such as an archive's directory, beside bytes of its own; or samples read now
    and then what another has read. Whichever comes closer to what was seen is believed.
    """
    half, whole = reads[0], reads[-1]
    later = DistinctReads(whole.distinct_bytes - half.distinct_bytes, whole.bytes - half.bytes, whole.samples - half.samples)
    if later.samples and later.distinct_bytes >= AS_MUCH * later.bytes:
        return samples * of_record(record_bytes + described_bytes)
    each = whole.bytes / whole.samples
    if later.samples:
        own = later.distinct_bytes / later.samples
        shared = later.bytes / later.samples - own
        apart = abs(shared + whole.samples * own - whole.distinct_bytes)
        by_chance = different(whole.distinct_bytes / each, whole.samples, half.samples) * each
        if apart < abs(by_chance - half.distinct_bytes):
            return shared + samples * of_record(max(0.0, record_bytes - shared) + described_bytes)
    kept = different(whole.distinct_bytes / each, whole.samples, samples)
    if kept > ALL_DIFFERENT * samples:
        kept = samples
    return kept * of_record(record_bytes + described_bytes) + (samples - kept) * of_record(described_bytes)


def different(seen: float, drawn: int, length: float) -> float:
    """How many different ones ``length`` samples read, of which ``drawn`` read ``seen``: as of draws from a pool of some size."""
    low, high = math.log(max(seen, 1.0)), math.log(max(length, 1.0) * 1e3)

    def come_across(pool: float, draws: float) -> float:
        return -pool * math.expm1(-draws / pool)

    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if come_across(math.exp(middle), drawn) < seen else (low, middle)
    return min(length, come_across(math.exp(low), length))
