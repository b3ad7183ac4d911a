"""Times fused calls against the dataset's own code on a few of its pictures, and compares their pixels."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader

from pipefix.kernels.request import Target
from pipefix.loader.fusing import stand_in
from pipefix.loader.fusing.errors import NotFused
from pipefix.loader.fusing.fusion import Fusing, Fusion, users_init
from pipefix.loader.fusing.pixel_difference import difference, spread
from pipefix.loader.fusing.sample_random import seeded
from pipefix.loader.planning import as_planned
from pipefix.plan.planfile import LoaderChange, PlanFile
from pipefix.vocabulary.nested import at, with_at

if TYPE_CHECKING:  # it imports torchvision, which takes as long as torch: loaded where something is to be fused
    from pipefix.loader.fusing.source import FusedSource

PICTURES = 16
"""Of the dataset, from all over it."""
TIMES = 3
"""Each is made in each way, of which the quickest counts."""


@dataclass(frozen=True)
class DatasetTrial:
    """CPU seconds of each picture, by the dataset's own code and by one call; one thread, files in the page cache."""

    own: tuple[float, ...]
    fused: tuple[float, ...]
    distance: str
    """How far the pictures lie apart, in words."""
    draws: bool
    """The transforms draw random numbers."""
    processes: str
    """Why worker processes would make the calls; empty where threads do."""


@dataclass(frozen=True)
class Both:
    """One sample, made both ways under the same random numbers."""

    own: Any
    fused: Any
    picture: torch.Tensor
    """Of the dataset's own."""
    made: torch.Tensor
    own_s: float
    fused_s: float


def try_on_dataset(loader: DataLoader[Any], mode: str, seconds: float = 1.0) -> DatasetTrial:
    """Try it on pictures of a loader's dataset for about so long. Its code runs: to be called in a process of its own. Raises
    `NotFused`."""
    source, processes = source_of(loader, mode)
    length = len(loader.dataset)  # type: ignore[arg-type]
    begun, pairs = time.perf_counter(), []
    for index in spread(length, PICTURES):
        pairs.append(both(source, loader.dataset, index))
        if time.perf_counter() - begun > seconds and len(pairs) > 2:
            break
    distance = difference([pair.made for pair in pairs], [pair.picture for pair in pairs], source.fused.finish.level())
    own, fused = tuple(pair.own_s for pair in pairs), tuple(pair.fused_s for pair in pairs)
    if mode == "exact" and distance.max > 0:
        raise NotFused(f"on pictures of the dataset, {distance.sentence()}")
    return DatasetTrial(own, fused, distance.sentence(), source.draws, processes)


def source_of(loader: DataLoader[Any], mode: str) -> tuple[FusedSource, str]:
    """What a loader like this one would be fused by, and why by processes. Raises `NotFused`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fusion = Fusing(mode).decide(fused_by(loader, mode), loader.dataset, moved=False)
    if not isinstance(fusion, Fusion):
        raise NotFused(f"{fusion.why} (FastLoader's fuse= would put off its decoding)")
    return fusion.source, fusion.why_processes or ""


def fused_by(original: DataLoader[Any], mode: str) -> DataLoader[Any]:
    """The same loader, with fused calls. Its batches stay in ordinary memory: a process that was forked where CUDA is awake can
    neither pin them nor bring them to a device."""
    change = LoaderChange(fuse=mode)  # type: ignore[arg-type]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loader = as_planned.loader(original, PlanFile(loader=change), Path())
    # What a plan puts around the user's own needs no workers.
    loader.worker_init_fn, loader.pin_memory = users_init(loader), False
    return loader


def both(source: FusedSource, dataset: Any, index: int) -> Both:
    """Sample ``index`` by ``dataset``'s own code and by the fused call, both timed with their files in the page cache. Raises
    `NotFused`."""
    target = Target(torch.empty((1, 3, source.height, source.width), dtype=source.kind, device="cpu"))

    def fused() -> Any:
        try:
            return source.begin(index, index, target, 0)
        except Exception as error:  # noqa: BLE001 - what the call does not make is made by the dataset's code, with its errors
            return source.finish(index, index, target, 0, error)

    try:
        fused()
        rest, fused_s = _timed(fused)
        sample, own_s = _timed(lambda: dataset[index], index)
        picture = at(sample, source.path)
    except Exception as error:
        raise NotFused(f"sample {index} could not be made both ways ({type(error).__name__}: {error})") from error
    if stand_in.paths(sample):
        raise NotFused("the dataset remembers its samples")
    if not isinstance(picture, torch.Tensor) or tuple(picture.shape) != tuple(target.tensor[0].shape):
        raise NotFused(f"sample {index} is of another size than the others")
    made = target.tensor[0].clone()
    return Both(sample, with_at(rest, stand_in.paths(rest)[0], made), picture, made, own_s, fused_s)


def _timed(make: Callable[[], Any], key: int | None = None) -> tuple[Any, float]:
    """What is made, and the CPU seconds of the quickest time: what disturbs a machine only ever adds. ``key``: with the process's
    own generators at its numbers, which take longer to put there than small pictures take to make."""
    spent = []
    for _ in range(TIMES):
        with nullcontext() if key is None else seeded(key):
            begun = time.thread_time()
            result = make()
            spent.append(time.thread_time() - begun)
    return result, max(min(spent), 1e-9)
