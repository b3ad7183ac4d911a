"""A fused pipeline verified: its samples held against those of the dataset's own code."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch.utils.data import DataLoader

from pipefix.fixes.compare import differences
from pipefix.fixes.outcome import Sameness
from pipefix.loader.fast_loader import FastLoader
from pipefix.loader.fusing import dataset_trial
from pipefix.loader.fusing.child_process import in_child_process
from pipefix.loader.fusing.recipe import NotFused
from pipefix.loader.fusing.trial import PixelDifference, difference, spread
from pipefix.subject.subject import Subject, length_of

SAMPLES = 24
"""Compared, from all over the dataset."""


def mode_of(loader: DataLoader[Any]) -> str | None:
    """How close the pixels of a loader's fused calls are to be; None where it fuses nothing."""
    return loader.fuse if isinstance(loader, FastLoader) else None


# -- the same? ---------------------------------------------------------------------------------------------------------------


def same(before: Subject, after: Subject, *, alters: str | None = None, untouched: bool = False) -> Sameness:
    """Samples that ``after`` makes by fused calls against those of ``before``, under the same random numbers. ``untouched``: both
    read from the same place.

    In a process of its own: the user's code may remember what it was given in a picture's place.
    """
    length = length_of(before.dataset)
    if length is None or length_of(after.dataset) != length:
        return Sameness(kind="unlike", sentence=f"{length_of(after.dataset)} samples instead of {length}")
    found = in_child_process(partial(_held, before, after, spread(length, SAMPLES)))
    if isinstance(found, NotFused):
        return Sameness(kind="unchecked", sentence=found.why)
    elsewhere = after.dataset is not before.dataset and not untouched
    return judged(*found, exact=mode_of(after.loader) == "exact", elsewhere=elsewhere, alters=alters)


def _held(before: Subject, after: Subject, places: list[int]) -> tuple[int, str | None, bool, PixelDifference] | NotFused:
    """How many were compared, what is another thing altogether, whether all is equal, and how far pictures lie apart."""
    mode = mode_of(after.loader)
    assert mode is not None
    found = dataset_trial.source_of(after.loader, mode)
    if isinstance(found, NotFused):
        return found
    source, _ = found
    made, own, equal = [], [], True
    for place in places:
        one = dataset_trial.both(source, after.dataset, place)
        if isinstance(one, NotFused):
            return one
        theirs, picture = one.own, one.picture
        if after.dataset is not before.dataset:
            theirs, picture = dataset_trial.other_own(before.dataset, source, place)
        for where in differences(theirs, one.fused):
            equal = False
            if where.mean is None:
                return len(places), where.what, False, PixelDifference(0.0, 0.0, 0.0)
        made.append(one.made)
        own.append(picture)
    return len(places), None, equal, difference(made, own, source.fused.level())


def judged(
    count: int, odd: str | None, equal: bool, difference: PixelDifference, *, exact: bool, elsewhere: bool, alters: str | None
) -> Sameness:
    """What the comparison says. Pixels are held to what the mode allows, but where ``after`` reads from elsewhere: a cache."""
    said = f"{alters}: " if alters else ""
    if odd is not None:
        return Sameness(kind="unlike", sentence=odd, samples=count)
    if equal:
        told = f"{said}{count} samples compared, equal to the last bit with random numbers fixed"
        return Sameness(kind="different" if alters else "equal", sentence=told, samples=count)
    told = f"in {count} samples compared, {difference.sentence()}"
    if not elsewhere and (exact or not difference.close):
        return Sameness(kind="unlike", sentence=told, samples=count)
    return Sameness(kind="different", sentence=said + told, samples=count)
