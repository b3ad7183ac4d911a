"""Is the changed pipeline the same, and is it faster? Both are looked at before a change is kept."""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from pipefix.fixes import fused
from pipefix.fixes.compare import SampleDifference, differences, fingerprint
from pipefix.fixes.outcome import Measured, Sameness
from pipefix.fixes.whole_loader import WholeLoader, suits
from pipefix.hooks.torch_internals import end_workers, processes_of
from pipefix.measurement import experiments, failing
from pipefix.measurement.consumer import Consumer
from pipefix.measurement.replay import Pool, abandon
from pipefix.measurement.stand_in_options import StandInOptions
from pipefix.measurement.statistics import ratio, spread_around
from pipefix.subject import failure
from pipefix.subject.subject import Subject, length_of
from pipefix.vocabulary import death
from pipefix.vocabulary.generators import untouched
from pipefix.vocabulary.quantity import Interval
from pipefix.vocabulary.random_state import seeded

SAMPLES = 24
"""Compared, from all over the dataset."""
STREAMED = 192
"""Samples of a stream that are looked at for repetitions."""
FEWEST_PAIRS, MOST_PAIRS = 3, 24
SHORTEST = 0.08
"""Seconds of a block."""
STARTS = 3
"""Epochs whose beginning is timed."""
EPOCH_BATCHES = 3
"""Of such an epoch, for each worker."""

Say = Callable[[str, float], None]


@dataclass(frozen=True)
class Pipeline:
    """A subject and what consumes its batches."""

    subject: Subject
    consumer: Consumer


# -- the same? ---------------------------------------------------------------------------------------------------------------


def same(before: Subject, after: Subject, *, alters: str | None = None, untouched: bool = False) -> Sameness:
    """Hold samples of both against each other. ``alters``: what the change is known to alter; ``untouched``: no sample."""
    if fused.mode_of(after.loader) is not None and fused.mode_of(before.loader) is None:
        return fused.same(before, after, alters=alters, untouched=untouched)
    if before.iterable:
        return _streams(before, after)
    if untouched or after.dataset is before.dataset:
        if not after.loader.in_order and before.loader.in_order:
            return Sameness(kind="order", sentence=f"the same samples; {alters or 'batches come in another order'}")
        return Sameness(kind="equal", sentence="the same dataset, asked for the same samples in the same order")
    length = length_of(before.dataset)
    if length is None:
        return Sameness(kind="unchecked", sentence="the dataset tells no length, so which samples to compare is not known")
    if length_of(after.dataset) != length:
        return Sameness(kind="unlike", sentence=f"{length_of(after.dataset)} samples instead of {length}")
    places = sorted({(2 * at + 1) * length // (2 * SAMPLES) for at in range(SAMPLES)})
    found = [one for place in places for one in differences(_sample(before, place), _sample(after, place))]
    compared = len(places)
    if not found:
        told = f"{compared} samples compared, equal to the last bit with random numbers fixed"
        return Sameness(kind="equal", sentence=told, samples=compared)
    odd = next((one for one in found if one.mean is None), None)
    if odd is None and alters is not None:
        return Sameness(kind="different", sentence=_told(found, compared, alters), samples=compared)
    if any(list(differences(_sample(before, place), _sample(before, place))) for place in places[:4]):
        told = (
            "a sample comes out different each time although random numbers are fixed: the dataset draws them in a way of its own"
        )
        return Sameness(kind="unchecked", sentence=told, samples=compared)
    if odd is not None:
        return Sameness(kind="unlike", sentence=odd.what, samples=compared)
    return Sameness(kind="different", sentence=_told(found, compared, alters), samples=compared)


def _sample(subject: Subject, place: int) -> Any:
    with untouched(subject.loader), seeded(7 * 1_000_003 + place), failure.as_target_error(f"dataset[{place}]"):
        return subject.dataset[place]


def _told(found: Sequence[SampleDifference], compared: int, alters: str | None) -> str:
    apart = float(np.mean([one.mean for one in found if one.mean is not None]))
    scale = max((one.scale for one in found), default=0.0)
    said = f"{alters}: " if alters else ""
    return said + f"in {compared} samples compared, values differ by {apart:.2g} on average where their range is {scale:.3g}"


def _streams(before: Subject, after: Subject) -> Sameness:
    """A stream has no index. What can go wrong is that every worker runs the whole of it, which shows as repeated samples."""
    if after.loader.num_workers <= 1 or after.loader.num_workers == before.loader.num_workers:
        return Sameness(kind="equal", sentence="the same stream, read as before")
    once, many = _repeated(before, 0), _repeated(after, after.loader.num_workers)
    if many > once:
        return Sameness(
            kind="unlike",
            sentence=f"every worker runs the whole stream: {many} of {STREAMED} samples came again",
            samples=STREAMED,
        )
    return Sameness(
        kind="order", sentence="the same stream in another order; no sample came twice that did not before", samples=STREAMED
    )  # fmt: skip


def _repeated(subject: Subject, workers: int) -> int:
    """Samples that were seen before, of the first so many. Every worker draws the same random numbers, so that copies are alike."""
    with warnings.catch_warnings(), untouched(subject.loader):
        warnings.simplefilter("ignore")
        loader: DataLoader[Any] = DataLoader(
            subject.dataset, batch_size=None, num_workers=workers, worker_init_fn=_Alike(subject.loader.worker_init_fn),
            multiprocessing_context=subject.loader.multiprocessing_context if workers else None, collate_fn=_prints,
        )  # fmt: skip
        iterator = iter(loader)
        try:
            with seeded(7), failure.as_target_error("Reading the stream"):
                seen = list(islice(iterator, STREAMED))
        finally:
            abandon(iterator)
            end_workers(iterator)
    return len(seen) - len(set(seen))


def _prints(sample: Any) -> str:
    return fingerprint(sample)


class _Alike:
    """Every worker's random numbers begin alike."""

    def __init__(self, then: Callable[[int], object] | None) -> None:
        self.then = then

    def __call__(self, worker: int) -> None:
        import random

        if self.then is not None:
            self.then(worker)
        random.seed(7)
        np.random.seed(7)
        torch.default_generator.manual_seed(7)


# -- faster? -----------------------------------------------------------------------------------------------------------------


def faster(before: Pipeline, after: Pipeline, *, seconds: float, epochs: bool = False, say: Say | None = None) -> Measured:
    """Run both in turn, every second time in the other order, until the difference is clear or the time is spent.

    ``epochs``: the start of each epoch counts.
    """
    pools: dict[str, Any] = {}
    rates: dict[str, list[float]] = {"before": [], "after": []}
    begun = time.perf_counter()
    length = max(SHORTEST, seconds / (2 * 8))
    calm = False
    try:
        for name, one in (("before", before), ("after", after)):
            pools[name] = _pool(one)
        # Not torch.manual_seed: that would also seed CUDA, now or when it wakes up.
        with untouched(before.subject.loader), untouched(after.subject.loader):
            torch.default_generator.manual_seed(0)
            while True:
                done = len(rates["before"])
                if say is not None:
                    say(f"verifying: pair {done + 1}", min(1.0, (time.perf_counter() - begun) / seconds))
                for name in ("before", "after") if done % 2 == 0 else ("after", "before"):
                    rates[name].append(pools[name].block(experiments.PLAIN, length, most=max(2.0, seconds)).rate)
                    pools[name].rest()
                spent = time.perf_counter() - begun
                if done + 1 >= FEWEST_PAIRS and (spent >= seconds * (1 if _clear(rates) else 2) or done + 1 >= MOST_PAIRS):
                    calm = True
                    break
    except RuntimeError as error:
        if not death.is_told_of(error):
            raise
        raise failing.raised("The loader", error, [one for pool in pools.values() for one in pool.processes]) from error
    finally:
        for pool in pools.values():
            pool.close(at_once=not calm)
    if epochs:
        return _whole_epochs(before, after, rates)
    return _measured(rates["before"], rates["after"])


def _clear(rates: dict[str, list[float]]) -> bool:
    gain = ratio(rates["after"], rates["before"])
    return gain.low > 1.0 or gain.high < 1.0


def _measured(before: Sequence[float], after: Sequence[float], *, epochs: bool = False) -> Measured:
    return Measured(
        gain=ratio(after, before), before=_rate(before), after=_rate(after), pairs=len(before), epochs=epochs
    )  # fmt: skip


def _rate(rates: Sequence[float]) -> Interval:
    low, high = (float(end) for end in np.percentile(spread_around(rates), (2.5, 97.5)))
    value = statistics.median(rates)
    return Interval(value, min(low, value), max(high, value))


def _pool(one: Pipeline) -> Pool | WholeLoader:
    if suits(one.subject):
        return WholeLoader(one.subject, one.consumer)
    workers = one.subject.loader.num_workers
    return Pool(one.subject, StandInOptions(0, workers, cut=False), one.consumer)


def _whole_epochs(before: Pipeline, after: Pipeline, rates: dict[str, list[float]]) -> Measured:
    """Samples a second of epochs with their beginnings, each timed in turn; the rest of an epoch runs at the steady rate."""
    length = before.subject.epoch
    if length is None:
        return _measured(rates["before"], rates["after"])
    starts = {"before": epoch_starts(before.subject), "after": epoch_starts(after.subject)}
    whole = {name: [length / (statistics.median(starts[name]) + length / rate) for rate in found] for name, found in rates.items()}
    return _measured(whole["before"], whole["after"], epochs=True)


def epoch_starts(subject: Subject, epochs: int = STARTS) -> list[float]:
    """Seconds to the first batch of epochs after the first one. The epochs are short: a few batches for each worker."""
    loader = subject.loader_to_run()
    batches = max(2, EPOCH_BATCHES * max(1, loader.num_workers))
    own = vars(loader)
    if not subject.iterable:
        name = "batch_sampler" if subject.auto_collation else "sampler"
        own[name] = list(islice(own[name], batches))
    found = []
    iterator: Any = None
    with warnings.catch_warnings(), untouched(subject.loader):
        warnings.simplefilter("ignore")
        try:
            for number in range(epochs + 1):
                begun = time.perf_counter()
                iterator = iter(loader)
                next(iterator)
                if number:
                    found.append(time.perf_counter() - begun)
                for _ in islice(iterator, batches):
                    continue
        except (Exception, SystemExit) as error:
            raise failing.raised("The loader", error, processes_of(iterator)) from error
        finally:
            end_workers(iterator)
    return found
