"""``state_dict`` of a loader: the position in an epoch, and the random numbers that it began with, to go on in another process.

The state counts the samples that the whole job has consumed, and the ranks it had: another number of ranks, or another batch size,
goes on with the rest of the same order (`ranks`).

A beginning is noted when an iterator is made. Going on sets the generators as they were then, so that the sampler draws the same
order and workers get the same seeds; batches that were handed out are passed over in the sampler, and nothing of them is read. The
process's own generators are put back afterwards: they belong to the user's checkpoint.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch.utils.data import IterableDataset

from pipefix.hooks.torch_internals import in_order
from pipefix.loader import ranks
from pipefix.loader.workers.deaths import lies_behind
from pipefix.vocabulary.nested import map_leaves
from pipefix.vocabulary.quantity import counted
from pipefix.vocabulary.random_state import preserved
from pipefix.vocabulary.worker_exit import is_worker_death

FORMAT = "pipefix.loader/2"


@dataclass(frozen=True)
class EpochStart:
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
    dealt_from: int = 0
    """Samples of the epoch's order, all ranks together, after which it was dealt anew: ``passed`` counts from there."""
    redealt: bool = False
    """Whether the ranks it is gone on with are others than those it began with."""
    twice: bool = False
    """Whether its sampler was asked for an iterator twice, as torch does where there are workers; one may draw each time."""
    missed: int = 0
    """Batches of ``passed`` that raised an error: they may do so again where they are made again."""


def begin_augmenting(steps: Iterable[Any], begin: EpochStart) -> None:
    """Tell what is done to batches which epoch begins."""
    for step in steps:
        if hasattr(step, "set_epoch"):
            step.set_epoch(begin.epoch)


@dataclass
class EpochPosition:
    """How far an epoch has come. It outlives its iterator."""

    beginning: EpochStart
    batches: int = 0
    """That lie behind."""
    missed: int = 0
    """Of these, such as the caller did not get: they raised an error, or had no sample that could be read."""
    ended: bool = False


def order_generators(loader: Any) -> dict[str, torch.Generator]:
    """Generators that order samples: the loader's and its samplers'."""
    generators: dict[str, torch.Generator] = {}
    for name, place in {"generator": loader, **ranks.samplers(loader)}.items():
        generator = getattr(place, "generator", None)
        if isinstance(generator, torch.Generator) and all(generator is not earlier for earlier in generators.values()):
            generators[name] = generator
    return generators


def rng_states(loader: Any) -> dict[str, Any]:
    """The generators as they are now, in plain values and tensors."""
    numpy_state = np.random.get_state(legacy=False)
    epochs = (getattr(sampler, "epoch", None) for sampler in ranks.samplers(loader).values())
    return {
        "torch": torch.get_rng_state(),
        "python": random.getstate(),
        "numpy": map_leaves(lambda leaf: leaf.tolist() if isinstance(leaf, np.ndarray) else leaf, numpy_state),
        "owned": {name: generator.get_state() for name, generator in order_generators(loader).items()},
        "sampler_epoch": next((epoch for epoch in epochs if isinstance(epoch, int)), None),
    }


def restore_generators(loader: Any, generators: dict[str, Any]) -> None:
    """All generators as they were noted."""
    torch.set_rng_state(generators["torch"])
    version, words, gauss = generators["python"]
    random.setstate((version, tuple(words), gauss))
    np.random.set_state(map_leaves(lambda leaf: leaf.numpy() if isinstance(leaf, torch.Tensor) else leaf, generators["numpy"]))
    _set_owned(loader, generators["owned"])
    set_sampler_epoch(loader, generators)


def set_sampler_epoch(loader: Any, generators: dict[str, Any]) -> None:
    """Samplers that are keyed by the epoch's number, as it was noted."""
    for sampler in ranks.samplers(loader).values():
        if generators["sampler_epoch"] is not None and hasattr(sampler, "set_epoch"):
            sampler.set_epoch(generators["sampler_epoch"])


def _set_owned(loader: Any, states: dict[str, torch.Tensor]) -> None:
    for name, generator in order_generators(loader).items():
        if name in states:
            generator.set_state(states[name])


@contextmanager
def generators_restored(loader: Any, generators: dict[str, Any]) -> Iterator[None]:
    """All generators as they were noted; afterwards the process's own are as they were found."""
    with preserved():
        restore_generators(loader, generators)
        yield


def pass_over(batches: Iterator[Any], count: int, missed: int) -> None:
    """Make ``count`` batches again, which lie behind. As many as were ``missed`` the first time may raise their error again."""
    for _ in range(count):
        try:
            next(batches, None)
        except Exception as error:
            if not missed or not lies_behind(error) or is_worker_death(error):
                raise
            missed -= 1


def state_of(loader: Any, standing: EpochPosition | None, epoch: int, *, starts_workers: bool) -> dict[str, Any]:
    """``epoch`` and ``starts_workers``: the number of the next one, and whether it does, for where none is under way."""
    how = ranks.batching(loader)
    known: dict[str, Any] = {
        "format": FORMAT,
        "batch_size": loader.batch_size if how is None else how.batch_size,
        "length": length(loader),
        "world_size": ranks.world_size(loader),
        "workers": _readers(loader),
        "in_order": in_order(loader) or not loader.num_workers,
    }
    if standing is None or standing.ended:
        states = {name: generator.get_state() for name, generator in order_generators(loader).items()}
        place = {"epoch": epoch, "batches": 0, "dealt_from": 0, "consumed": 0, "seed": None, "fresh": starts_workers}
        return {**known, **place, "generators": None, "owned": states}
    begun = standing.beginning
    place = {"epoch": begun.epoch, "batches": standing.batches, "dealt_from": begun.dealt_from, "twice": begun.twice}
    place["missed"] = standing.missed
    # Samples that the whole job has consumed, where every rank has taken as many batches.
    place["consumed"] = None if how is None else begun.dealt_from + standing.batches * how.batch_size * how.ranks
    return {**known, **place, "seed": begun.seed, "fresh": begun.fresh, "generators": begun.generators, "owned": None}


def _readers(loader: Any) -> int | None:
    """Workers that read a stream: each has a part of it, and numbers of its own, unlike this process. None for other datasets."""
    return int(loader.num_workers) if isinstance(loader.dataset, IterableDataset) else None


def length(loader: Any) -> int | None:
    with suppress(Exception):  # the user's code, which a DataLoader with a sampler does not ask
        return len(loader.dataset)
    return None


def beginning_of(loader: Any, state: dict[str, Any]) -> EpochStart:
    """The epoch that a state goes on with. Raises ValueError where it belongs to another loader."""
    known = state.get("format") if isinstance(state, dict) else None
    if known != FORMAT:
        raise ValueError(
            f"This {type(state).__name__} is no state of a FastLoader: its format is {known!r}, not {FORMAT!r}. "
            "Give what state_dict() returned."
        )
    # A checkpoint may have been loaded onto a device, and generators take states on the CPU alone.
    state = map_leaves(lambda leaf: leaf.cpu() if isinstance(leaf, torch.Tensor) else leaf, state)
    dealt_from, passed, redealt = _place(loader, state)
    _set_owned(loader, state["owned"] or {})
    return EpochStart(
        epoch=state["epoch"], passed=passed, seed=state["seed"] or 0, generators=state["generators"] or {}, fresh=state["fresh"],
        again=True, dealt_from=dealt_from, redealt=redealt, twice=state.get("twice", False), missed=state.get("missed", 0),
    )  # fmt: skip


def _place(loader: Any, state: dict[str, Any]) -> tuple[int, int, bool]:
    """Samples of all ranks after which the order is dealt (anew), this rank's batches after that, and whether ranks are others."""
    batches, dealt_from = state["batches"], state["dealt_from"]
    if not batches and not dealt_from:
        return 0, 0, False
    how, world_size, samples = ranks.batching(loader), ranks.world_size(loader), length(loader)
    if state["length"] != samples and None not in (state["length"], samples):
        raise ValueError(
            f"The state was taken with {counted(state['length'], 'sample')} in the dataset, and this loader has {samples}: its "
            "order is another. Go on with the same dataset, or begin a new epoch without the state."
        )
    own, known = order_generators(loader).keys(), state["generators"]["owned"].keys()
    torchs = (each for each in ranks.samplers(loader).values() if type(each).__module__ == "torch.utils.data.sampler")
    if own != known and any(hasattr(sampler, "generator") for sampler in torchs):
        before, now = (" and ".join(f"{name}=" for name in names) or "no generator" for names in (known, own))
        raise ValueError(
            f"The state was taken with {before} and this loader has {now}: its order is another. Go on with the "
            "same generator=, or begin a new epoch without the state."
        )
    size = loader.batch_size if how is None else how.batch_size
    if (world_size, size, _readers(loader)) == (state["world_size"], state["batch_size"], state["workers"]):
        return dealt_from, batches, False
    differs = (
        f"{counted(state['world_size'] or 1, 'rank')}, and this loader is one of {world_size or 1}"
        if world_size != state["world_size"]
        else f"{state['batch_size']} as batch size, and this loader has {size}"
        if size != state["batch_size"]
        else f"{counted(state['workers'] or 0, 'worker')} to read the stream, and this loader has {_readers(loader) or 0}"
    )
    why = ""
    if how is None or state["workers"] is not None:
        why = "only torch's own samplers and batches have places that can be counted"
    elif (world_size is None) != (state["world_size"] is None):
        why = "the order of a DistributedSampler is another than that of other samplers"
    elif not state["in_order"]:
        why = "with in_order=False the batches that lie behind are not the first ones of the order"
    if why:
        raise ValueError(
            f"The state was taken with {differs}: where it stands in the epoch is not known, for {why}. "
            "Go on with the same settings, or begin a new epoch without the state."
        )
    steps = state["batch_size"] * (state["world_size"] or 1)
    return dealt_from + batches * steps, 0, world_size != state["world_size"]
