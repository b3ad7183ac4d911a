"""What reading samples back from a cache takes on this machine: a few of them are really stored, and read again."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipefix.caches import convert as conversion
from pipefix.caches import record
from pipefix.caches.dataset import CachedDataset
from pipefix.caches.maker import getter
from pipefix.caches.survey import plain
from pipefix.vocabulary.errors import PipefixError

MOST_BYTES = 16e6
"""Written for it."""
MOST_RECORDS, LEAST_RECORDS = 2048, 8
"""Copies of the few samples: as many as find no room in a core's own caches, as the records of a real cache do not."""
TIMES = 3


@dataclass(frozen=True)
class ReadBack:
    """How long records took, in memory already and their checksums known."""

    seconds: tuple[float, ...] = ()
    """Of each record, each time; none where records are so large that only copying counts."""
    bytes: float = 0.0
    """Of a record, on average."""
    cache: Path | None = None
    """The records, for who wants to run a loader over them."""
    why_not: str = ""
    """Such samples cannot be stored."""


def read_back(dataset: Any, indices: Sequence[int], folder: Path) -> ReadBack:
    """Store these samples as they are in ``folder``, some of them many times over, and read them in random order."""
    get = getter(dataset, None)
    given = [get(index) for index in indices]
    try:
        each = sum(len(record.encode(plain(sample))) for sample in given) / len(given)
        copies = int(min(MOST_RECORDS, MOST_BYTES / each))
        if copies < LEAST_RECORDS:
            return ReadBack()
        samples = list(itertools.islice(itertools.cycle(given), copies))
        conversion.convert(samples, conversion.recipe_of("lmdb", "sample"), folder / "records", workers=0)
    except (PipefixError, record.Unstorable) as error:
        return ReadBack(why_not=str(error))
    cached = CachedDataset(folder / "records")
    order = list(range(len(cached)))
    spent = []
    for turn in range(TIMES + 1):
        random.Random(turn).shuffle(order)
        for position in order:
            begun = time.perf_counter()
            cached[position]
            ended = time.perf_counter()
            if turn:  # the first time each record's checksum is compared
                spent.append(ended - begun)
    return ReadBack(tuple(spent), each, folder / "records")
