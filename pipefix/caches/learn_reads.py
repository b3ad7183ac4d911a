"""Learns from a few samples how a dataset reads its files, for a ``source`` cache."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pipefix.caches.maker import EndOfStream, decoded, getter, root_of, source_record
from pipefix.caches.witness import Reads, Witness
from pipefix.vocabulary.errors import PipefixError, TargetError
from pipefix.vocabulary.tracebacks import frames, summary
from pipefix.vocabulary.urls import is_remote

_LEARNED_FROM = 6


def learn(dataset: Any, indices: Sequence[int], witness: Witness) -> tuple[str | None, float, float, float]:
    """Run some samples whole, then only as far as their reading goes: the witness then knows how far that is.

    Gives the root below which the files lie; and of a sample, on average, the bytes that it reads, those that tell in its record
    which ranges of which files these are, and those that it reads in ways that a ``source`` cache cannot answer.
    """
    get = decoded(getter(dataset, None))
    # From all over: the first ones may lie in one folder of several.
    spaced = dict.fromkeys((*indices[:: max(1, len(indices) // _LEARNED_FROM)], *indices))
    runs = list(good(lambda index: witness.whole(get, index)[1], [*spaced], _LEARNED_FROM))
    chosen = [index for index, _ in runs]
    witness.install()  # for what the first samples imported
    again = [witness.again(get, index) for index in chosen]
    if any(before.given - after.given for (_, before), (after, _) in zip(runs, again, strict=True)):
        # A sample that maps a file only the first time keeps that map for others: it is not the sample's own, and not kept whole.
        witness.maps = False
        again = [witness.again(get, index) for index in chosen]
    reads_again, unseen = zip(*again, strict=True)
    files = dict.fromkeys(path for reads in reads_again for path in reads.files)
    if not files:
        raise TargetError(
            f"Samples were made, and none of the {len(chosen)} looked at read a file in a way that can be seen.",
            advice="Store the samples themselves instead: --store sample",
        )
    # A client that the first sample of a process makes may decode on the way (botocore its JSON): stopped there, it never asks.
    learned = not any(map(is_remote, files)) and witness.learn(get, chosen, reads_again)
    root = root_of(dataset, [*files])

    def sizes(reads: Reads) -> tuple[int, int]:
        """Of a shard, not those of its other samples."""
        files.update(dict.fromkeys(reads.files))
        held = sum(len(data) for read in reads.files.values() for data in read.chunks)
        return held, len(source_record(reads, root, {}, 0)) - held

    short = (size for _, size in good(lambda index: sizes(witness.read_only(get, index)), indices))
    held, described = zip(*(short if learned else map(sizes, reads_again)), strict=True)
    return root_of(dataset, [*files]), statistics.fmean(held), statistics.fmean(described), statistics.median(unseen)


def good(make: Callable[[int], Any], indices: Sequence[int], count: int | None = None) -> Iterator[tuple[int, Any]]:
    """So many samples that can be made, with their numbers; of damaged ones it is told when their part is made."""
    good_count, last, failed = 0, None, 0
    for index in indices:
        if good_count == count:
            break
        try:
            value = make(index)
        except EndOfStream:
            break
        except PipefixError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever the user's code raises on a damaged sample
            last, failed = error, index
        else:
            good_count += 1
            yield index, value
    if not good_count:
        reason = f": {summary(last)}" if last is not None else ""
        advice = f"Run dataset[{failed}] by itself to see the error in full."
        if "CUDA in forked subprocess" in reason:  # by itself it would run
            advice = "Let this process alone make the samples, which use CUDA: --workers 0"
        raise TargetError(
            f"None of the samples that were looked at could be read{reason}",
            advice=advice,
            user_traceback=frames(last) if last is not None else None,
        )
