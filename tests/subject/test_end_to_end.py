"""Every kind of pipeline is probed to a verdict, in the training process and in workers, under every start method.

Time is counted, not read: the probe's clock moves by a tick a look, so blocks and budgets end after so many batches on any machine.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from torch.utils.data import DataLoader

import pipefix
from tests.doubles.ticks import PROBE, Ticks
from tests.subject import pipelines

BUDGET = 0.12
HERE = ("map", "generator", "single stream")
"""Kinds that go another way where there are no workers; of the others two workers tell as much."""


@pytest.fixture(autouse=True)
def ticks(monkeypatch: pytest.MonkeyPatch) -> Ticks:
    return Ticks().given_to(PROBE, monkeypatch)


def probe(loader: DataLoader[Any], **options: Any) -> Any:
    run = pipefix.probe(loader, budget=BUDGET, **options)  # fake clock
    assert not run.partial
    assert run.verdict is not None and run.verdict.sentence
    real = next(arm for arm in run.arms if arm.name == "real")
    assert real.rates and all(rate > 0 for rate in real.rates)
    return run


@pytest.mark.filterwarnings("ignore:'pin_memory' argument")
@pytest.mark.parametrize(
    ("kind", "workers"), [*((kind, 2) for kind in pipelines.KINDS if kind != "single stream"), *((kind, 0) for kind in HERE)]
)
def test_every_kind(kind: str, workers: int) -> None:
    loader = pipelines.loader(kind, workers)
    run = probe(loader)
    assert run.settings.num_workers == workers
    ops = [op.name for stage in run.stages for op in stage.ops or ()]
    assert "soften" in ops, "the user's own function is named"


def test_a_file_opened_in_each_worker(tmp_path: Path) -> None:
    path = tmp_path / "images.h5"
    with h5py.File(path, "w") as file:
        file["images"] = np.ones((pipelines.LENGTH, 32, 32), dtype=np.float32)
    dataset = pipelines.Lazy(str(path))
    probe(DataLoader(dataset, batch_size=4, num_workers=2))
    assert dataset.file is None


def test_fewer_shards_than_workers_is_told() -> None:
    run = probe(DataLoader(pipelines.Sharded(shards=1), batch_size=4, num_workers=2))
    caveats = {caveat.id: caveat.sentence for caveat in run.caveats}
    assert caveats["idle-workers"].startswith("1 of 2 workers gave no sample")


@pytest.mark.parametrize(("length", "batch_size", "workers"), [(2, 32, 2), (5, 5, 0)])
def test_tiny_datasets(length: int, batch_size: int, workers: int) -> None:
    class Tiny(pipelines.Map):
        def __len__(self) -> int:
            return length

    probe(DataLoader(Tiny(), batch_size=batch_size, num_workers=workers))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stream_of_three_samples(workers: int) -> None:
    class Three(pipelines.Sharded):
        def __iter__(self) -> Any:
            return iter([pipelines.work(index) for index in range(3)])

    probe(DataLoader(Three(), batch_size=8, num_workers=workers))
