"""Lists what a fused call decodes for each index of a dataset: picture files, or records of a cache of JPEGs or pixels.

`listed` gives a `Listing`, which tells of an index what is to be decoded and what the rest of the sample is; for a dataset that is
none it raises `NotFused`. It goes by what the dataset's code does with a few samples, not by its class.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from torch.utils.data import Subset

from pipefix.caches import cut as cuts
from pipefix.caches.dataset import CachedDataset, cache_of
from pipefix.caches.record import Pixels
from pipefix.loader.fusing import stand_in
from pipefix.loader.fusing.child_process import in_child_process
from pipefix.loader.fusing.errors import CannotFollow, NotFused
from pipefix.loader.fusing.picture_loading import PictureLoading, loading_of, with_stand_ins
from pipefix.loader.fusing.pixel_difference import spread
from pipefix.loader.fusing.stand_in import PicturePlace, PictureStandIn, Touched
from pipefix.vocabulary.held_transforms import HeldTransforms, held_transforms
from pipefix.vocabulary.nested import at, with_at
from pipefix.vocabulary.random_state import RandomState, seeded

TRIED = 8
"""Samples that the dataset's code is looked at with, spread over its length."""
AT_ONCE = 1 << 18
"""Bytes of a file; most pictures have fewer."""


class Listing:
    """``dataset`` with a stand-in for each picture. One thread at a time runs the user's code in it."""

    def __init__(self, dataset: Any, transform: Any, loading: PictureLoading, data: Callable[[PicturePlace], Any]) -> None:
        self.dataset, self.transform, self.loading = dataset, transform, loading
        self.data = data
        """Gives what is to be decoded (bytes), or already is (an array of height x width x 3)."""
        self._turn = threading.Lock()
        self.path: stand_in.Path = ()
        """Where in a sample its picture lies."""

    def sample(self, index: Any) -> tuple[Any, PicturePlace]:
        """A sample but for its picture, and the picture's place in it. Raises what the user's code raises, or `Touched`."""
        with self._turn:
            sample = self.dataset[index]
        paths = stand_in.paths(sample)
        if len(paths) != 1:
            raise Touched(f"gives {len(paths) or 'no'} pictures a sample")
        return sample, at(sample, paths[0])


def listed(dataset: Any) -> Listing:
    if cache_of(dataset) is not None:
        listing = _of_cache(dataset)
    else:
        chain, transform, loading = _stood_in(dataset)
        listing = Listing(chain[0], transform, loading, lambda place: _file(place.what))
    listing.path = _try(listing, len(dataset))
    return listing


def refuse_what_remembers(dataset: Any) -> None:
    """Raise `NotFused` for a dataset that is not to be shown any stand-in here: its code would go on handing them out in place of
    its pictures, to everybody who reads it."""

    def shown() -> None:
        with suppress(NotFused):
            listed(dataset)

    if in_child_process(partial(stand_in.remembered, shown)):
        raise NotFused("the dataset's code keeps what it is given in a picture's place")


def _try(listing: Listing, length: int) -> stand_in.Path:
    """Where the picture lies in a sample, after a few of them went well. What the user's code draws is given back."""
    if not length:
        raise NotFused("the dataset is empty")
    with seeded(0):
        before = RandomState()
        for index in spread(length, TRIED):
            try:
                sample, _ = listing.sample(index)
            except Touched as error:
                raise NotFused(f"the dataset's code {error}") from error
            except Exception as error:
                raise NotFused(f"the dataset's code does not go without its picture ({type(error).__name__}: {error})") from error
        if before.changed():
            raise NotFused("the dataset's code draws random numbers beside its transforms")
    return stand_in.paths(sample)[0]


# -- files -----------------------------------------------------------------------------------------------------------------


def _stood_in(dataset: Any) -> tuple[list[Any], Any, PictureLoading]:
    """The dataset's chain with stand-ins, its transforms, and how pictures come to them."""
    if not hasattr(type(dataset), "__getitem__"):
        raise NotFused("the dataset is no map from index to sample")
    chain, held = copied_with_list(dataset)
    vars(held.owner)[held.name] = stand_in.Transforms()
    return chain, held.value, _without_loading(chain)


def copied_with_list(dataset: Any) -> tuple[list[Any], HeldTransforms]:
    """A copy of the dataset's chain, and the one list of transforms in it. Raises `NotFused`."""
    if any(hasattr(inner, "__getitems__") and not isinstance(inner, Subset) for inner in stand_in.chain_of(dataset)):
        raise NotFused("the dataset reads whole batches itself (__getitems__)")
    try:
        chain = stand_in.copied(dataset)
    except Exception as error:
        raise NotFused(f"the dataset cannot be copied ({type(error).__name__}: {error})") from error
    lists = [held for held in held_transforms(chain[0]) if any(held.owner is link for link in chain)]
    if not lists:
        raise NotFused("the dataset has no transforms (an attribute such as transform)")
    if len(lists) > 1:
        raise NotFused(f"the dataset has more than one list of transforms ({', '.join(held.name for held in lists)})")
    return chain, lists[0]


def _without_loading(chain: list[Any]) -> PictureLoading:
    """The picture's loader, which a stand-in takes the place of."""
    for owner in reversed(chain):
        if callable(vars(owner).get("loader")):
            loading = loading_of(owner.loader)
            vars(owner)["loader"] = stand_in.loaded
            return loading
    for owner in reversed(chain):
        own = with_stand_ins(owner)
        if own is not None:
            return own
    raise NotFused(
        "it is not known how the dataset opens pictures (by a loader, as ImageFolder, or by Pillow's or torchvision's own)"
    )


def _file(path: Any) -> bytes:
    """Three calls into the system: after each of them the interpreter's lock is waited for."""
    file = os.open(path, os.O_RDONLY)
    try:
        parts = [os.read(file, AT_ONCE)]
        while len(parts[-1]) >= AT_ONCE:
            parts.append(os.read(file, max(AT_ONCE, os.fstat(file).st_size)))
        return b"".join(parts)
    finally:
        os.close(file)


# -- caches ----------------------------------------------------------------------------------------------------------------


def _of_cache(dataset: Any) -> Listing:
    outer = stand_in.copied(dataset)
    place = next(number for number, inner in enumerate(outer) if isinstance(inner, CachedDataset))
    cache: CachedDataset = outer[place]
    if cache.manifest.recipe.store == "source":
        return _of_source(outer, place, cache)
    if cache.manifest.recipe.store not in ("resized", "decoded"):
        raise NotFused(f"the cache stores {cache.manifest.recipe.store}, not pictures that are to be decoded or resized")
    return _of_pictures(outer, place, cache)


def _of_source(outer: list[Any], place: int, cache: CachedDataset) -> Listing:
    if cache.dataset is None:
        raise NotFused("the cache stores source files, and was given no dataset whose code reads them")
    if cache.transform is not None:
        raise NotFused("the cache has transforms of its own beside the dataset's")
    chain, transform, loading = _stood_in(cache.dataset)
    numbers = _Numbered(cache, chain[0])
    outer[place] = numbers
    if place:
        vars(outer[place - 1])["dataset"] = numbers

    def read(place: PicturePlace) -> bytes:
        path, index = place.what
        files = cache.files(index)
        if len(files) != 1:
            raise CannotFollow(f"{path} is one of {len(files)} files of its sample")
        return next(iter(files.values()))

    return Listing(outer[0], transform, loading, read)


class _Numbered:
    """The dataset that a cache was made from, asked for as the cache is; pictures know their record."""

    def __init__(self, cache: CachedDataset, dataset: Any) -> None:
        self.cache, self.dataset = cache, dataset

    def __len__(self) -> int:
        return len(self.cache)

    def __getitem__(self, index: Any) -> Any:
        sample = self.dataset[self.cache.sample_number(index.__index__())]
        for path in stand_in.paths(sample):
            sample = with_at(sample, path, PicturePlace((at(sample, path).what, index.__index__())))
        return sample


def _of_pictures(outer: list[Any], place: int, cache: CachedDataset) -> Listing:
    likes: set[str] = set()

    def put(image: Any) -> PictureStandIn:
        likes.add(image.like)
        return PictureStandIn(image.array, "pixels") if isinstance(image, Pixels) else PictureStandIn(image.data, image.kind)

    if any("transform" in vars(wrapper) for wrapper in outer[:place]):
        raise NotFused("the cache is wrapped in a dataset with transforms of its own")
    if cache.transform is None:
        raise NotFused("the cache has no transforms that run live")
    transform = cache.transform.operations if isinstance(cache.transform, cuts.Chain) else cache.transform
    numbered = cache.given(put, put, stand_in.Transforms())
    first = numbered[0]
    outer[place] = numbered
    if place:
        vars(outer[place - 1])["dataset"] = numbered
    places = [at(first, path) for path in stand_in.paths(first)]
    if len(places) != 1 or places[0].kind not in ("pixels", "jpeg"):
        kinds = f"pictures as {places[0].kind}" if places else "no picture that is transformed"
        raise NotFused(f"the cache holds {kinds}")
    form = cache.images if cache.images != "as-was" else next(iter(likes))
    if form not in ("image", "tensor"):
        raise NotFused(f"the cache gives its pictures as {form}")
    return Listing(outer[0], transform, PictureLoading("pil" if form == "image" else "tensor", every_kind=False, grey=False), _held)


def _held(place: PicturePlace) -> Any:
    """What a record holds. Grey pictures stay grey when a cache gives them, and other kinds are left to it too."""
    if place.kind not in ("pixels", "jpeg"):
        raise CannotFollow(f"a picture stored as {place.kind}")
    return place.what
