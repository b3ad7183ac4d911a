"""A plan put in place: the loader's arguments and its dataset. Caches and moved augmentation: `test_plan`, and tests/fixes."""

from __future__ import annotations

import os

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, SequentialSampler, TensorDataset

from pipefix.loader.planning import as_planned, planned
from pipefix.loader.workers import start
from pipefix.plan.planfile import CacheChange, LoaderChange, PlanFile
from pipefix.vocabulary.errors import BadUsage, UnreadableFile

DATA = TensorDataset(torch.arange(10))


def test_what_the_plan_does_not_say_stays():
    given = {"num_workers": 3, "prefetch_factor": 4, "batch_size": 7}
    assert planned.arguments(None, given) == given
    assert planned.arguments(LoaderChange(prefetch_factor=2), given) == {**given, "prefetch_factor": 2}


def test_what_needs_workers_goes_with_the_last_of_them():
    given = {"num_workers": 3, "prefetch_factor": 4, "persistent_workers": True, "multiprocessing_context": "fork", "timeout": 5}
    assert planned.arguments(LoaderChange(num_workers=0), given) == {"num_workers": 0}


def _first(worker: int) -> None:
    os.environ["PIPEFIX_TEST_WORKER"] = str(worker)


def test_threads_are_capped_before_the_users_own_init_runs(monkeypatch, tmp_path):
    for name in ("OMP_NUM_THREADS", "PIPEFIX_TEST_WORKER", *start._VARIABLES):
        monkeypatch.setenv(name, "7")
    theirs = DataLoader(DATA, num_workers=2, worker_init_fn=_first)
    found = as_planned.loader(theirs, PlanFile(loader=LoaderChange(worker_threads=1)), tmp_path).worker_init_fn
    found(5)
    assert os.environ["OMP_NUM_THREADS"] == "1" and os.environ["PIPEFIX_TEST_WORKER"] == "5"


@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": 3, "shuffle": False, "drop_last": True},
        {"batch_size": None},
        {"batch_sampler": BatchSampler(SequentialSampler(DATA), 4, False)},
    ],
)
@pytest.mark.parametrize("workers", [0, 1])
def test_batches_are_the_same(tmp_path, options, workers):
    theirs = DataLoader(DATA, **options)
    engine = "processes" if workers else None
    ours = as_planned.loader(theirs, PlanFile(loader=LoaderChange(num_workers=workers, engine=engine)), tmp_path)
    assert ours.num_workers == workers
    assert [str(batch) for batch in ours] == [str(batch) for batch in theirs]


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(10))


def test_streams(tmp_path):
    theirs = DataLoader(Stream(), batch_size=4)
    ours = as_planned.loader(theirs, PlanFile(loader=LoaderChange(num_workers=1)), tmp_path)
    assert [str(batch) for batch in ours] == [str(batch) for batch in theirs]
    with pytest.raises(BadUsage, match="the dataset is a stream"):
        as_planned.loader(theirs, PlanFile(cache=CacheChange(path="c", store="sample")), tmp_path)


def test_a_cache_that_is_gone_is_told(tmp_path):
    with pytest.raises(UnreadableFile):
        as_planned.loader(DataLoader(DATA), PlanFile(cache=CacheChange(path="gone", store="sample")), tmp_path)
