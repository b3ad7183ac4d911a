"""Compares samples of the changed pipeline with those of the one before, with random numbers fixed."""

from __future__ import annotations

import hashlib
import pickle
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader

from pipefix.caches import record
from pipefix.caches.pictures import as_pixels
from pipefix.fixes import fused_trial
from pipefix.fixes.outcome import Sameness
from pipefix.hooks.torch_internals import end_workers
from pipefix.loader.fast_loader import FastLoader
from pipefix.loader.fusing import sample_random
from pipefix.loader.fusing.child_process import in_child_process
from pipefix.loader.fusing.errors import NotFused
from pipefix.loader.fusing.pixel_difference import PixelDifference, difference, spread
from pipefix.measurement.stream_parts import alike
from pipefix.measurement.worker_endings import abandon
from pipefix.subject import failure
from pipefix.subject.subject import Subject, length_of
from pipefix.vocabulary.generators import untouched as draws_untouched
from pipefix.vocabulary.nested import at, leaves, map_leaves
from pipefix.vocabulary.quantity import counted
from pipefix.vocabulary.random_state import seeded
from pipefix.vocabulary.versioned import short

SAMPLES = 24
"""Compared, from all over the dataset."""
IN_A_BATCH = 8
ALLOWED = 4 / 255
"""How far pictures may lie apart on average where transforms moved to the batch, of their range."""
STREAMED, STREAMING = 192, 20.0
"""Samples of a stream that are looked at for repetitions, and the seconds after which fewer do."""
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
    places = spread(length, SAMPLES)
    unequal = [difference for place in places for difference in differences(_sample(before, place), _sample(after, place))]
    compared = len(places)
    judged_so = partial(Sameness, samples=compared)
    if not unequal:
        return judged_so(kind="equal", sentence=f"{compared} samples compared, equal to the last bit with random numbers fixed")
    odd = next((difference for difference in unequal if difference.mean is None), None)
    if odd is None and alters is not None:
        return judged_so(kind="different", sentence=_told(unequal, compared, alters))
    if any(list(differences(_sample(before, place), _sample(before, place))) for place in places[:4]):
        random = "a sample comes out different each time although random numbers are fixed"
        return judged_so(kind="unchecked", sentence=f"{random}: the dataset draws them in a way of its own")
    if odd is not None:
        return judged_so(kind="unlike", sentence=odd.what)
    return judged_so(kind="different", sentence=_told(unequal, compared, alters))


def same_batch(before: Subject, after: Subject, on_batch: Callable[[Any], Any], *, alters: str) -> Sameness:
    """Hold a batch as the loader of ``before`` collates it against one of ``after`` and what is done to it: pictures, and all that
    lies beside them."""
    length = length_of(before.dataset)
    if length is None or length_of(after.dataset) != length:
        return Sameness(kind="unchecked", sentence="which samples to compare is not known")
    places = spread(length, IN_A_BATCH)[: before.loader.batch_size or IN_A_BATCH]

    def batch(subject: Subject) -> Any:
        samples = [_sample(subject, place) for place in places]
        with draws_untouched(subject.loader), seeded(7), failure.as_target_error("The collate function"):
            return subject.loader.collate_fn(samples)

    with torch.no_grad():
        expected, actual = list(leaves(batch(before))), list(leaves(on_batch(batch(after))))
    if len(expected) != len(actual):
        return Sameness(
            kind="unlike", sentence=f"a batch has {counted(len(actual), 'part')} instead of {len(expected)}", samples=len(places)
        )
    for own, moved in zip(expected, actual, strict=True):
        for unequal in differences(own, moved, "a part of the batch"):
            least = 255.0 if isinstance(own, torch.Tensor) and own.dtype == torch.uint8 else 1.0
            is_picture = isinstance(own, torch.Tensor) and own.ndim >= 3
            if not is_picture or unequal.mean is None or unequal.mean > ALLOWED * max(unequal.scale, least):
                return Sameness(kind="unlike", sentence=unequal.what, samples=len(places))
    return Sameness(kind="different", sentence=f"{alters}; a batch of {len(places)} samples compared", samples=len(places))


def _sample(subject: Subject, place: int) -> Any:
    with draws_untouched(subject.loader), seeded(7 * 1_000_003 + place), failure.as_target_error(f"dataset[{place}]"):
        return subject.dataset[place]


def _told(unequal: Sequence[SampleDifference], compared: int, alters: str | None) -> str:
    apart = float(np.mean([difference.mean for difference in unequal if difference.mean is not None]))
    scale = max((difference.scale for difference in unequal), default=0.0)
    prefix = f"{alters}: " if alters else ""
    return prefix + f"in {compared} samples compared, values differ by {apart:.2g} on average where their range is {scale:.3g}"


def _streams(before: Subject, after: Subject) -> Sameness:
    """A stream has no index. What can go wrong is that every worker runs the whole of it, which shows as repeated samples."""
    workers = after.loader.num_workers
    if workers <= 1 or workers == before.loader.num_workers:
        return Sameness(kind="equal", sentence="the same stream, read as before")
    once, least = _prints(before, 0, 1), 2 * workers  # of copies, each worker has given its first two by then
    many = _prints(after, workers, least)[: max(least, len(once))]
    repeated = len(many) - len(set(many))
    kind, sentence = "order", "the same stream in another order; no sample came twice that did not before"
    if repeated > len(once) - len(set(once)):
        kind, sentence = "unlike", f"every worker runs the whole stream: {repeated} of {len(many)} samples came again"
    return Sameness(kind=kind, sentence=sentence, samples=len(many))


def _prints(subject: Subject, workers: int, least: int) -> list[bytes]:
    """Of a stream's first samples: so many at ``least``, and more in the time there is. Every worker draws the same random numbers,
    so that copies are alike."""
    with warnings.catch_warnings(), draws_untouched(subject.loader):
        warnings.simplefilter("ignore")
        loader: DataLoader[Any] = DataLoader(
            subject.dataset, batch_size=None, num_workers=workers, worker_init_fn=partial(alike, subject.loader.worker_init_fn),
            multiprocessing_context=subject.loader.multiprocessing_context if workers else None, collate_fn=fingerprint,
        )  # fmt: skip
        iterator = iter(loader)
        try:
            with seeded(7), failure.as_target_error("Reading the stream"):
                prints: list[bytes] = []
                begun = time.monotonic()
                for one in islice(iterator, STREAMED):
                    prints.append(one)
                    if len(prints) >= least and time.monotonic() - begun > STREAMING:
                        break
        finally:
            abandon(iterator)
            end_workers(iterator)
    return prints


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
    try:
        compared = in_child_process(partial(_both, before, after, spread(length, SAMPLES)))
    except NotFused as error:
        return Sameness(kind="unchecked", sentence=str(error))
    elsewhere = after.dataset is not before.dataset and not untouched
    return judged(*compared, exact=mode_of(after.loader) == "exact", elsewhere=elsewhere, alters=alters)


def _both(before: Subject, after: Subject, places: list[int]) -> tuple[int, str | None, bool, PixelDifference]:
    """How many were compared, what is another thing altogether, whether all is equal, and how far pictures lie apart."""
    mode = mode_of(after.loader)
    assert mode is not None
    source, _ = fused_trial.source_of(after.loader, mode)
    fused_pictures, own, equal = [], [], True
    for place in places:
        trial = fused_trial.both(source, after.dataset, place)
        expected, picture = trial.own, trial.picture
        if after.dataset is not before.dataset:
            with sample_random.seeded(place):
                expected = before.dataset[place]
            picture = at(expected, source.path)
        for where in differences(expected, trial.fused):
            equal = False
            if where.mean is None:
                return len(places), where.what, False, PixelDifference(0.0, 0.0, 0.0)
        fused_pictures.append(trial.made)
        own.append(picture)
    return len(places), None, equal, difference(fused_pictures, own, source.fused.finish.level())


def judged(
    count: int, odd: str | None, equal: bool, difference: PixelDifference, *, exact: bool, elsewhere: bool, alters: str | None
) -> Sameness:
    """What the comparison says. Pixels are held to what the mode allows, but where ``after`` reads from elsewhere: a cache."""
    prefix = f"{alters}: " if alters else ""
    if odd is not None:
        return Sameness(kind="unlike", sentence=odd, samples=count)
    if equal:
        sentence = f"{prefix}{count} samples compared, equal to the last bit with random numbers fixed"
        return Sameness(kind="different" if alters else "equal", sentence=sentence, samples=count)
    sentence = f"in {count} samples compared, {difference.sentence()}"
    if not elsewhere and (exact or not difference.close):
        return Sameness(kind="unlike", sentence=sentence, samples=count)
    return Sameness(kind="different", sentence=prefix + sentence, samples=count)


@dataclass(frozen=True)
class SampleDifference:
    """One place of a sample where the two are not equal."""

    what: str
    mean: float | None = None
    """How far values lie apart on average; None where that cannot be told, such as for another shape."""
    scale: float = 0.0
    """Their range."""


def differences(expected: Any, actual: Any, path: str = "the sample", depth: int = 0) -> Iterator[SampleDifference]:
    """Every place where two samples differ; none where they are equal to the last bit."""
    expected, actual = _plain(expected), _plain(actual)
    if isinstance(expected, np.ndarray) and isinstance(actual, np.ndarray):
        yield from _arrays(expected, actual, path)
    elif type(expected) is not type(actual):
        yield SampleDifference(f"{path} is a {type(actual).__name__} instead of a {type(expected).__name__}")
    elif isinstance(expected, dict) and depth < _DEEPEST:
        if expected.keys() != actual.keys():
            yield SampleDifference(f"{path} has other keys")
            return
        for key, value in expected.items():
            yield from differences(value, actual[key], f"{path}[{key!r}]", depth + 1)
    elif isinstance(expected, (list, tuple)) and depth < _DEEPEST:
        if len(expected) != len(actual):
            yield SampleDifference(f"{path} has {counted(len(actual), 'part')} instead of {len(expected)}")
            return
        for place, (first, second) in enumerate(zip(expected, actual, strict=True)):
            yield from differences(first, second, f"{path}[{place}]", depth + 1)
    elif not _equal(expected, actual):
        yield SampleDifference(f"{path} is {short(actual)} instead of {short(expected)}")


def _plain(value: Any) -> Any:
    """Tensors and pictures as arrays; a tensor that is none, and a picture in colours of its own, as what it is made of."""
    if isinstance(value, torch.Tensor):
        value = value.detach()
        if value.is_nested:
            return [_plain(tensor) for tensor in value.unbind()]
        if value.layout is not torch.strided:
            return {"layout": str(value.layout), "dense": _plain(value.to_dense())}
        value = value.resolve_conj().resolve_neg().cpu()
        unknown = value.dtype is torch.bfloat16 or (value.is_floating_point() and value.element_size() == 1)
        return value.float().numpy() if unknown else value.numpy()
    if isinstance(value, Image.Image):
        return {"mode": value.mode, "palette": value.getpalette("RGBA") if value.mode == "P" else None, "pixels": np.asarray(value)}
    return value


def _arrays(expected: np.ndarray[Any, Any], actual: np.ndarray[Any, Any], path: str) -> Iterator[SampleDifference]:
    if expected.shape != actual.shape or expected.dtype != actual.dtype:
        yield SampleDifference(f"{path} is {actual.dtype} {_shape(actual)} instead of {expected.dtype} {_shape(expected)}")
    elif expected.tobytes() != actual.tobytes():
        if expected.dtype.kind not in "biuf":
            yield SampleDifference(f"{path} holds other values")
            return
        same = expected == actual  # zeros of another sign too
        if expected.dtype.kind == "f":
            same |= np.isnan(expected) & np.isnan(actual)
        if same.all():
            return
        first, second = expected.astype(np.float64), actual.astype(np.float64)
        with np.errstate(invalid="ignore"):
            apart = np.abs(first - second)
        apart = apart[np.isfinite(apart)]
        yield SampleDifference(f"{path} holds other values", float(apart.mean()) if apart.size else None, float(np.ptp(first)))


def _shape(array: np.ndarray[Any, Any]) -> str:
    return "x".join(map(str, array.shape)) or "of one value"


def _equal(expected: Any, actual: Any) -> bool:
    with suppress(Exception):  # the user's own __eq__
        if bool(expected == actual) or bool(expected != expected and actual != actual):
            return True
    held = _pickled(expected)
    return held is not None and held == _pickled(actual)


def _pickled(value: Any) -> bytes | None:
    try:
        return pickle.dumps(value)
    except Exception:  # noqa: BLE001 - whatever a sample holds
        return None


def fingerprint(sample: Any) -> bytes:
    """Equal samples have equal ones."""
    try:
        held = record.encode(as_pixels(sample))
    except record.Unstorable:
        held = _pickled(map_leaves(_plain, sample)) or repr(sample).encode()
    return hashlib.sha256(held).digest()
