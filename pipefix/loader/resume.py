"""Where an epoch stands, so that it can be gone on with in another process: the position, and the random numbers it began with.

A beginning is noted when an iterator is made. Going on sets the generators as they were then, so that the sampler draws the same
order and workers get the same seeds; batches that were handed out are passed over in the sampler, and nothing of them is read. The
process's own generators are put back afterwards: they belong to the user's checkpoint.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

FORMAT = "pipefix.loader/1"


@dataclass(frozen=True)
class Beginning:
    """How an epoch begins."""

    epoch: int = 0
    passed: int = 0
    """Batches that are not made again."""
    seed: int = 0
    """Of random numbers that belong to samples."""
    generators: dict[str, Any] = field(default_factory=dict)
    fresh: bool = True
    """Whether workers are started for it, and a seed is drawn for them. Workers that live on keep theirs."""
    again: bool = False
    """Whether it is gone on with."""


@dataclass
class Standing:
    """How far an epoch has come. It outlives its iterator."""

    beginning: Beginning
    batches: int = 0
    """That lie behind."""
    ended: bool = False


def owned(loader: Any) -> dict[str, torch.Generator]:
    """Generators that order samples: the loader's and its samplers'."""
    found: dict[str, torch.Generator] = {}
    places = {"generator": loader, "sampler": loader.sampler, "batch_sampler": loader.batch_sampler}
    places["inner"] = getattr(loader.batch_sampler, "sampler", None)
    for name, place in places.items():
        generator = getattr(place, "generator", None)
        if isinstance(generator, torch.Generator) and all(generator is not other for other in found.values()):
            found[name] = generator
    return found


def noted(loader: Any, *, epochs: int = 0) -> dict[str, Any]:
    """The generators as they are now, in plain values and tensors; with those that samplers key by epoch so many epochs on."""
    kind, keys, *rest = np.random.get_state()
    return {
        "torch": torch.get_rng_state(),
        "python": random.getstate(),
        "numpy": (kind, torch.from_numpy(np.asarray(keys).astype(np.int64)), *rest),
        "owned": {name: generator.get_state() for name, generator in owned(loader).items()},
        "sampler_epoch": None if (epoch := _sampler_epoch(loader)) is None else epoch + epochs,
    }


def same(one: Any, other: Any) -> bool:
    """Whether generators were noted in the same state."""
    if isinstance(one, torch.Tensor):
        return bool(torch.equal(one, other))
    if isinstance(one, np.ndarray):
        return bool(np.array_equal(one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, (tuple, list)):
        return len(one) == len(other) and all(same(mine, theirs) for mine, theirs in zip(one, other, strict=True))
    return bool(one == other)


@contextmanager
def elsewhere(loader: Any, generators: dict[str, Any]) -> Iterator[None]:
    """All generators as they were noted; afterwards all of them are as they were found."""
    found = noted(loader)
    set_as_then(loader, generators)
    try:
        yield
    finally:
        set_as_then(loader, found)


def _samplers(loader: Any) -> tuple[Any, ...]:
    return loader.sampler, getattr(loader.batch_sampler, "sampler", None), loader.batch_sampler


def _sampler_epoch(loader: Any) -> int | None:
    for sampler in _samplers(loader):
        epoch = getattr(sampler, "epoch", None)
        if isinstance(epoch, int):
            return epoch
    return None


def set_as_then(loader: Any, generators: dict[str, Any]) -> None:
    """All generators as they were noted."""
    torch.set_rng_state(generators["torch"])
    version, words, gauss = generators["python"]
    random.setstate((version, tuple(words), gauss))
    kind, keys, *rest = generators["numpy"]
    np.random.set_state((kind, np.asarray(keys, dtype=np.uint32), *rest))
    _set_owned(loader, generators["owned"])
    for sampler in _samplers(loader):
        if generators["sampler_epoch"] is not None and hasattr(sampler, "set_epoch"):
            sampler.set_epoch(generators["sampler_epoch"])


def _set_owned(loader: Any, states: dict[str, torch.Tensor]) -> None:
    for name, generator in owned(loader).items():
        if name in states:
            generator.set_state(states[name])


@contextmanager
def as_then(loader: Any, generators: dict[str, Any]) -> Iterator[None]:
    """All generators as they were noted; afterwards the process's own are as they were found."""
    kept = torch.get_rng_state(), random.getstate(), np.random.get_state()
    set_as_then(loader, generators)
    try:
        yield
    finally:
        torch.set_rng_state(kept[0])
        random.setstate(kept[1])
        np.random.set_state(kept[2])


def state_of(loader: Any, standing: Standing | None, epoch: int) -> dict[str, Any]:
    """``epoch``: the number of the next one, for where none is under way."""
    known: dict[str, Any] = {"format": FORMAT, "batch_size": loader.batch_size, "length": length(loader)}
    if standing is None or standing.ended:
        states = {name: generator.get_state() for name, generator in owned(loader).items()}
        return {**known, "epoch": epoch, "batches": 0, "seed": None, "fresh": True, "generators": None, "owned": states}
    begun = standing.beginning
    place = {"epoch": begun.epoch, "batches": standing.batches, "seed": begun.seed, "fresh": begun.fresh}
    return {**known, **place, "generators": begun.generators, "owned": None}


def length(loader: Any) -> int | None:
    try:
        return len(loader.dataset)
    except (TypeError, NotImplementedError):
        return None


def beginning_of(loader: Any, state: dict[str, Any]) -> Beginning:
    """The epoch that a state goes on with. Raises ValueError where it belongs to another loader."""
    name = state.get("format")
    if name != FORMAT:
        raise ValueError(
            f"This is no state of a FastLoader: its format is {name!r}, not {FORMAT!r}. Give what state_dict() returned."
        )
    for what, here in (("batch_size", loader.batch_size), ("length", length(loader))):
        if state[what] != here and state["batches"]:
            words = "samples in the dataset" if what == "length" else "as batch size"
            raise ValueError(
                f"The state was taken with {state[what]} {words}, and this loader has {here}: its batches are others. "
                "Go on with the same dataset and batch size, or begin a new epoch without the state."
            )
    if state["owned"]:
        _set_owned(loader, state["owned"])
    return Beginning(
        state["epoch"], state["batches"], state["seed"] or 0, state["generators"] or {}, fresh=state["fresh"], again=True
    )
