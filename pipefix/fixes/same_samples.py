"""Are the samples what they were? Those of the changed pipeline held against those of the one before, with random numbers fixed."""

from __future__ import annotations

import hashlib
import pickle
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader

from pipefix.fixes import fused_trial
from pipefix.fixes.outcome import Sameness
from pipefix.hooks.torch_internals import end_workers
from pipefix.loader.fast_loader import FastLoader
from pipefix.loader.fusing.child_process import in_child_process
from pipefix.loader.fusing.recipe import NotFused
from pipefix.loader.fusing.trial import PixelDifference, difference, spread
from pipefix.measurement.worker_endings import abandon
from pipefix.subject import failure
from pipefix.subject.subject import Subject, length_of
from pipefix.vocabulary.generators import untouched as draws_untouched
from pipefix.vocabulary.random_state import seeded

SAMPLES = 24
"""Compared, from all over the dataset."""
STREAMED = 192
"""Samples of a stream that are looked at for repetitions."""
_DEEPEST = 12


def same(before: Subject, after: Subject, *, alters: str | None = None, untouched: bool = False) -> Sameness:
    """Hold samples of both against each other. ``alters``: what the change is known to alter; ``untouched``: no sample."""
    if mode_of(after.loader) is not None and mode_of(before.loader) is None:
        return _same_fused(before, after, alters=alters, untouched=untouched)
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
    with draws_untouched(subject.loader), seeded(7 * 1_000_003 + place), failure.as_target_error(f"dataset[{place}]"):
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
    with warnings.catch_warnings(), draws_untouched(subject.loader):
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


# -- fused calls --------------------------------------------------------------------------------------------------------------


def mode_of(loader: DataLoader[Any]) -> str | None:
    """How close the pixels of a loader's fused calls are to be; None where it fuses nothing."""
    return loader.fuse if isinstance(loader, FastLoader) else None


def _same_fused(before: Subject, after: Subject, *, alters: str | None = None, untouched: bool = False) -> Sameness:
    """Samples that ``after`` makes by fused calls against those of ``before``, under the same random numbers. ``untouched``: both
    read from the same place.

    In a process of its own: the user's code may remember what it was given in a picture's place.
    """
    length = length_of(before.dataset)
    if length is None or length_of(after.dataset) != length:
        return Sameness(kind="unlike", sentence=f"{length_of(after.dataset)} samples instead of {length}")
    found = in_child_process(partial(_both, before, after, spread(length, SAMPLES)))
    if isinstance(found, NotFused):
        return Sameness(kind="unchecked", sentence=found.why)
    elsewhere = after.dataset is not before.dataset and not untouched
    return judged(*found, exact=mode_of(after.loader) == "exact", elsewhere=elsewhere, alters=alters)


def _both(before: Subject, after: Subject, places: list[int]) -> tuple[int, str | None, bool, PixelDifference] | NotFused:
    """How many were compared, what is another thing altogether, whether all is equal, and how far pictures lie apart."""
    mode = mode_of(after.loader)
    assert mode is not None
    found = fused_trial.source_of(after.loader, mode)
    if isinstance(found, NotFused):
        return found
    source, _ = found
    made, own, equal = [], [], True
    for place in places:
        one = fused_trial.both(source, after.dataset, place)
        if isinstance(one, NotFused):
            return one
        theirs, picture = one.own, one.picture
        if after.dataset is not before.dataset:
            theirs, picture = fused_trial.other_own(before.dataset, source, place)
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


# -- two samples --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SampleDifference:
    """One place of a sample where the two are not equal."""

    what: str
    mean: float | None = None
    """How far values lie apart on average; None where that cannot be told, such as for another shape."""
    scale: float = 0.0
    """Their range."""


def differences(one: Any, other: Any, way: str = "the sample", depth: int = 0) -> Iterator[SampleDifference]:
    """Every place where two samples differ; none where they are equal to the last bit."""
    one, other = _plain(one), _plain(other)
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        yield from _arrays(one, other, way)
    elif type(one) is not type(other):
        yield SampleDifference(f"{way} is a {type(other).__name__} instead of a {type(one).__name__}")
    elif isinstance(one, dict) and depth < _DEEPEST:
        if one.keys() != other.keys():
            yield SampleDifference(f"{way} has other keys")
            return
        for key, value in one.items():
            yield from differences(value, other[key], f"{way}[{key!r}]", depth + 1)
    elif isinstance(one, (list, tuple)) and depth < _DEEPEST:
        if len(one) != len(other):
            yield SampleDifference(f"{way} has {len(other)} parts instead of {len(one)}")
            return
        for place, (first, second) in enumerate(zip(one, other, strict=True)):
            yield from differences(first, second, f"{way}[{place}]", depth + 1)
    elif not _equal(one, other):
        yield SampleDifference(f"{way} is {_short(other)} instead of {_short(one)}")


def _plain(value: Any) -> Any:
    """Tensors and pictures as arrays; a tensor that is none, and a picture in colours of its own, as what it is made of."""
    if isinstance(value, torch.Tensor):
        value = value.detach()
        if value.is_nested:
            return [_plain(one) for one in value.unbind()]
        if value.layout is not torch.strided:
            return {"layout": str(value.layout), "dense": _plain(value.to_dense())}
        return value.cpu().numpy() if value.dtype is not torch.bfloat16 else value.cpu().float().numpy()
    if isinstance(value, Image.Image):
        return {"mode": value.mode, "palette": value.getpalette("RGBA") if value.mode == "P" else None, "pixels": np.asarray(value)}
    return value


def _arrays(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any], way: str) -> Iterator[SampleDifference]:
    if one.shape != other.shape or one.dtype != other.dtype:
        yield SampleDifference(f"{way} is {other.dtype} {_shape(other)} instead of {one.dtype} {_shape(one)}")
    elif one.tobytes() != other.tobytes():
        if one.dtype.kind not in "biuf":
            yield SampleDifference(f"{way} holds other values")
            return
        same = one == other  # zeros of another sign too
        if one.dtype.kind == "f":
            same |= np.isnan(one) & np.isnan(other)
        if same.all():
            return
        first, second = one.astype(np.float64), other.astype(np.float64)
        with np.errstate(invalid="ignore"):
            apart = np.abs(first - second)
        apart = apart[np.isfinite(apart)]
        yield SampleDifference(f"{way} holds other values", float(apart.mean()) if apart.size else None, float(np.ptp(first)))


def _shape(array: np.ndarray[Any, Any]) -> str:
    return "x".join(map(str, array.shape)) or "of one value"


def _equal(one: Any, other: Any) -> bool:
    try:
        if bool(one == other) or bool(one != one and other != other):
            return True
    except Exception:  # noqa: BLE001 - the user's own __eq__
        return _pickled(one) == _pickled(other)
    return _pickled(one) is not None and _pickled(one) == _pickled(other)


def _pickled(value: Any) -> bytes | None:
    try:
        return pickle.dumps(value)
    except Exception:  # noqa: BLE001 - whatever a sample holds
        return None


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def fingerprint(sample: Any) -> str:
    """Equal samples have equal ones."""
    told = hashlib.blake2b(digest_size=16)

    def walk(value: Any, depth: int) -> None:
        value = _plain(value)
        told.update(type(value).__name__.encode())
        if isinstance(value, np.ndarray):
            told.update(
                f"{value.dtype}{value.shape}".encode() + (value.tobytes() if value.dtype.kind != "O" else repr(value).encode())
            )
        elif isinstance(value, dict) and depth < _DEEPEST:
            for key, inner in value.items():
                told.update(repr(key).encode())
                walk(inner, depth + 1)
        elif isinstance(value, (list, tuple)) and depth < _DEEPEST:
            for inner in value:
                walk(inner, depth + 1)
        else:
            told.update(repr(value).encode())

    walk(sample, 0)
    return told.hexdigest()
