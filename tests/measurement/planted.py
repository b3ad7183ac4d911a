"""Small pipelines whose every call is counted, in whichever process it happens."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate, get_worker_info

from pipefix.measurement import trace as traces
from pipefix.measurement.consumer import Consumer
from pipefix.measurement.experiments import POOL, RECORD, Experiment
from pipefix.measurement.probe_task import Delivered, ProbeOptions, ProbeTask
from pipefix.measurement.run_arms import Pool
from pipefix.measurement.trace import BatchTrace
from pipefix.measurement.worker_probe import WorkerProbe, called
from pipefix.subject.subject import Subject

STEPS = ("decode", "augment", "collate")
SIDE = 8
ROOMY = 1 << 28

_calls = torch.zeros(8, len(STEPS), dtype=torch.int64).share_memory_()
"""One row a worker, so that no two processes write to the same cell."""
WORK = torch.zeros(len(STEPS)).share_memory_()
"""Seconds that each step computes, as of now."""


LONG = 10.0
"""Seconds of work that no test waits for to end."""
_at_long_work = torch.zeros(1, dtype=torch.int64).share_memory_()


def _count(step: int) -> None:
    info = get_worker_info()
    _calls[info.id + 1 if info is not None else 0, step] += 1
    seconds = float(WORK[step])
    if seconds >= LONG:
        _at_long_work[0] = 1
    burn(seconds)


def calls() -> dict[str, int]:
    """How often each step really ran, in all processes together."""
    return dict(zip(STEPS, _calls.sum(dim=0).tolist(), strict=True))


def _wait(until: Callable[[], object]) -> None:
    given_up = time.perf_counter() + 60
    while not until():
        assert time.perf_counter() < given_up, calls()
        time.sleep(0.01)


def wait_for_calls(step: str, count: int) -> None:
    _wait(lambda: calls()[step] >= count)


def wait_until_a_worker_is_at_long_work() -> None:
    _wait(lambda: _at_long_work[0])


def forget_calls() -> None:
    _calls.zero_()
    _at_long_work.zero_()
    WORK.zero_()


def burn(seconds: float) -> None:
    """Compute until so much time has passed, so that a busy machine does not make it longer."""
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


def decode(data: bytes) -> np.ndarray[Any, Any]:
    _count(0)
    return np.frombuffer(data, np.uint8).reshape(SIDE, SIDE)


def augment(pixels: np.ndarray[Any, Any]) -> torch.Tensor:
    _count(1)
    return torch.from_numpy(pixels.astype(np.float32)).flip(0)


def collate(samples: Any) -> Any:
    _count(2)
    return default_collate(samples)


def collate_nothing(sample: Any) -> Any:
    """For loaders that make no batches."""
    _count(2)
    return sample


def picture(path: str) -> tuple[torch.Tensor, str]:
    with open(path, "rb") as file:
        data = file.read()
    return augment(decode(data)), Path(path).name


class Mapped(Dataset[Any]):
    """Map-style: one picture an index."""

    def __init__(self, paths: list[str]) -> None:
        self.paths = paths

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Any:
        return picture(self.paths[index])


class Batched(Mapped):
    """Asked for a whole batch at a time."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [picture(self.paths[index]) for index in indices]


class Streamed(IterableDataset[Any]):
    """Workers share the stream."""

    def __init__(self, paths: list[str]) -> None:
        self.paths = paths

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        for path in self.paths[info.id :: info.num_workers] if info is not None else self.paths:
            yield picture(path)


KINDS = ("map", "batched", "single", "stream")


def files(folder: Path, count: int = 24) -> list[str]:
    paths = []
    for index in range(count):
        path = folder / f"{index:03d}.bin"
        path.write_bytes(bytes((index + place) % 256 for place in range(SIDE * SIDE)))
        paths.append(str(path))
    return paths


def loader(kind: str, paths: list[str], workers: int = 0, batch: int = 4, **options: Any) -> DataLoader[Any]:
    dataset = {"map": Mapped, "batched": Batched, "single": Mapped, "stream": Streamed}[kind](paths)
    if workers:
        options = {"prefetch_factor": 2, **options}
    size = None if kind == "single" else batch
    by = collate_nothing if kind == "single" else collate
    return DataLoader(dataset, batch_size=size, num_workers=workers, collate_fn=by, **options)


def subject(built: DataLoader[Any], **options: Any) -> Subject:
    return Subject(target="planted", loader=built, **options)


def pool(built: DataLoader[Any], consumer: Consumer | None = None, *, budget: int = ROOMY, **options: Any) -> Pool:
    probe_options = ProbeOptions(budget, built.num_workers, **options)
    return Pool(subject(built), probe_options, consumer or Consumer())


class Alone:
    """What a probe puts in the place of torch's fetcher, in this process, asked for batches as a loader would ask."""

    def __init__(
        self,
        dataset: Any,
        *,
        kind: str = "map",
        batch: int | None = 4,
        by: Callable[[Any], Any] = collate,
        budget: int = ROOMY,
        **options: Any,
    ) -> None:
        self.switch = torch.zeros(2, dtype=torch.int64)
        probe_options = ProbeOptions(budget, 0, **options)
        self.kind = kind
        self.batch = batch
        probe = WorkerProbe(ProbeTask(by, self.switch, probe_options, kind))
        self.fetcher = probe.fetcher(0, dataset, kind != "single" and batch is not None, called, False)

    def turn_to(self, experiment: Experiment) -> None:
        self.switch[0] = POOL.index(experiment)
        self.switch[1] += 1

    def order(self, number: int) -> Any:
        """The indices of the ``number``-th batch of a sequential sampler."""
        size = self.batch or 1
        return number if self.kind == "single" else list(range(number * size, (number + 1) * size))

    def ask(self, order: Any = 0) -> Any:
        """A batch and its trace, or the failure in its place."""
        delivered = self.fetcher.fetch([None] * (self.batch or 1) if self.kind == "stream" else order)
        if isinstance(delivered, Delivered):
            return delivered.batch, traces.decode(delivered.trace)
        return delivered

    def record(self, batches: int = 4) -> list[BatchTrace]:
        self.turn_to(RECORD)
        return [self.ask(self.order(number))[1] for number in range(batches)]
