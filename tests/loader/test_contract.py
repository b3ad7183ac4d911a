"""What torch documents of DataLoader holds for FastLoader: each promise is asked of both, with the same seeds."""

from __future__ import annotations

import inspect
import multiprocessing
import os
import random
import re
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    Subset,
    WeightedRandomSampler,
)
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

from pipefix.loader.fast_loader import FastLoader
from pipefix.programs.observing.patches import PlanInProgram
from tests.loader import pipelines
from tests.loader.likeness import assert_same

BOTH = pytest.mark.parametrize("kind", [DataLoader, FastLoader])
EACH = pytest.mark.parametrize(
    "kind",
    [DataLoader, FastLoader, partial(FastLoader, rng="sample"), partial(FastLoader, threads_per_worker=3)],
    ids=["torch", "ours", "one queue", "threads"],
)


def seeded(kind: Any, dataset: Any, **options: Any) -> Any:
    torch.manual_seed(7)
    random.seed(7)
    np.random.seed(7)
    arguments = {name: option() if callable(option) and name == "generator" else option for name, option in options.items()}
    return kind(dataset, **arguments)


def epochs(kind: Any, dataset: Any, count: int = 2, **options: Any) -> tuple[list[Any], Any]:
    """Every batch of some epochs, and where they leave the random numbers of this process."""
    loader = seeded(kind, dataset, **options)
    passes = [list(loader) for _ in range(count)]
    return passes, (torch.rand(1), random.random(), np.random.rand())


def test_it_is_a_data_loader() -> None:
    loader = FastLoader(pipelines.Tensors())
    assert isinstance(loader, DataLoader)
    assert isinstance(iter(FastLoader(pipelines.Tensors(), num_workers=1)), _MultiProcessingDataLoaderIter)


PIPELINES: dict[str, tuple[Any, dict[str, Any]]] = {
    "every kind of value": (pipelines.Mixed(), {"batch_size": 4}),
    "shuffled": (pipelines.Mixed(), {"batch_size": 4, "shuffle": True}),
    "a generator": (pipelines.Mixed(), {"batch_size": 4, "shuffle": True, "generator": lambda: torch.Generator().manual_seed(3)}),
    "drop_last": (pipelines.Mixed(), {"batch_size": 4, "drop_last": True}),
    "single samples": (pipelines.Mixed(), {"batch_size": None}),
    "batched reads": (pipelines.Batched(), {"batch_size": 5}),
    "a stream": (pipelines.Stream(), {"batch_size": 4}),
    "a stream, drop_last": (pipelines.Stream(), {"batch_size": 4, "drop_last": True}),
    "a stream of samples": (pipelines.Stream(), {"batch_size": None}),
    "a sampler": (pipelines.Mixed(), {"batch_size": 4, "sampler": [5, 5, 2, 1, 9]}),
    "weights": (pipelines.Tensors(), {"batch_size": 4, "sampler": WeightedRandomSampler([0.1, 0.9] * 32, 40)}),
    "a batch sampler": (pipelines.Mixed(), {"batch_sampler": BatchSampler(RandomSampler(range(23)), 6, False)}),
    "one of two ranks": (pipelines.Mixed(), {"batch_size": 4, "sampler": DistributedSampler(range(23), num_replicas=2, rank=1)}),
    "the user's type": (pipelines.Tensors(), {"batch_size": 8, "collate_fn": pipelines.wrap}),
    "unusual tensors": (pipelines.Tensors(), {"batch_size": 8, "collate_fn": pipelines.unusual}),
    "a remembering collate": (pipelines.Tensors(200), {"batch_size": 4, "collate_fn": pipelines.remembering}),
    "no tensors": (pipelines.Tensors(), {"batch_size": 8, "collate_fn": pipelines.no_tensor}),
    "many batches": (pipelines.Tensors(300), {"batch_size": 2}),
}
NOTHING_DRAWN: dict[str, tuple[Any, dict[str, Any]]] = {
    "nothing drawn": (pipelines.Kinds(), {"batch_size": 4, "shuffle": True}),
    "nothing drawn, single samples": (pipelines.Kinds(), {"batch_size": None}),
    "nothing drawn, batches of all sizes": (pipelines.Kinds(), {"batch_sampler": [[3, 1], [7], [5, 5, 18]]}),
    "nothing drawn, a part": (Subset(pipelines.Kinds(), range(3, 20)), {"batch_size": 4}),
}


BY_THREADS = [*((name, 0) for name in NOTHING_DRAWN), ("batched reads", 0), ("shuffled", 0), ("nothing drawn", 2)]
"""Also where samples draw random numbers, and are read one after the other."""


@pytest.mark.parametrize(
    ("name", "workers", "own"),
    [
        *((name, workers, {}) for name in PIPELINES for workers in (0, 2)),
        *((name, workers, {"threads_per_worker": 3}) for name, workers in [*BY_THREADS, ("unusual tensors", 2)]),
        *(("shuffled", workers, {"on_bad": "skip"}) for workers in (0, 2)),
        ("nothing drawn", 2, {"rng": "sample"}),
    ],
)
def test_batches_are_those_of_torch_bit_for_bit(name: str, workers: int, own: dict[str, Any]) -> None:
    dataset, options = {**PIPELINES, **NOTHING_DRAWN}[name]
    count = 2 if not own and ("shuffle" in options or not workers) else 1  # what differs from epoch to epoch is the order
    expected, after = epochs(DataLoader, dataset, count, num_workers=workers, **options)
    pipelines._remembered.clear()
    passes, left = epochs(FastLoader, dataset, count, num_workers=workers, **own, **options)
    pipelines._remembered.clear()
    assert_same(passes, expected)
    assert_same(left, after)


@pytest.mark.parametrize("rng", ["torch", "sample"])
def test_an_epoch_that_is_left_early_changes_nothing(rng: str) -> None:
    # Seeds of workers come from the generator, so that loaders at the same time have the same.
    options = {"num_workers": 2, "persistent_workers": True, "generator": lambda: torch.Generator().manual_seed(3)}
    loader = seeded(FastLoader, pipelines.Mixed(), batch_size=4, rng=rng, **options)
    expected = seeded(DataLoader, pipelines.Mixed(), batch_size=4, **options)
    for stop in (7, 5, 1, 7, 6):
        for number, (batch, expected_batch) in enumerate(zip(loader, expected, strict=True), 1):
            assert_same(batch["image"], expected_batch["image"])
            if rng == "torch":
                assert_same(batch, expected_batch)
            if number == stop:
                break


@pytest.mark.parametrize("kind", [DataLoader, FastLoader, partial(FastLoader, on_bad="skip")], ids=["torch", "ours", "skipping"])
def test_workers_know_themselves(kind: Any) -> None:
    loader = seeded(kind, pipelines.Told(), batch_size=1, num_workers=2, worker_init_fn=pipelines.mark)
    batches = [tuple(int(part) for part in batch) for batch in loader]
    seeds = {worker: seed for _, worker, _, seed, _, _ in batches}
    assert [(index, worker, count, marked, threads) for index, worker, count, _, marked, threads in batches] == [
        (index, index % 2, 2, index % 2 * 10, 1) for index in range(8)
    ]
    assert seeds[1] == seeds[0] + 1


@EACH
@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_keeps_its_type_and_iteration_goes_on(kind: Any, workers: int) -> None:
    iterator = iter(kind(pipelines.Faulty(24), batch_size=4, num_workers=workers))
    assert len([next(iterator) for _ in range(2)]) == 2
    with pytest.raises(KeyError, match="sample nine") as caught:
        next(iterator)
    if workers:
        assert re.search(r"Caught KeyError in DataLoader worker process \d.*__getitem__", str(caught.value), re.DOTALL)
    else:
        assert caught.traceback[-1].name == "__getitem__"
    assert [float(batch[0, 0]) for batch in iterator] == [12.0, 16.0, 20.0]


class Unreadable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Wordless(pipelines.Tensors):
    def __getitem__(self, index: int) -> torch.Tensor:
        raise Unreadable


@EACH
@pytest.mark.parametrize("workers", [0, 1])
def test_an_error_without_a_text_keeps_its_type(kind: Any, workers: int) -> None:
    with pytest.raises(Unreadable):
        next(iter(kind(Wordless(8), batch_size=4, num_workers=workers)))


@BOTH
def test_samples_of_different_shapes_are_refused(kind: Any) -> None:
    with pytest.raises(RuntimeError, match=r"stack expects each tensor to be equal size|Trying to resize storage"):
        list(kind(pipelines.Uneven(), batch_size=4, num_workers=1))


def test_a_batch_that_cannot_be_pickled_is_an_error_and_iteration_goes_on() -> None:
    iterator = iter(FastLoader(pipelines.Tensors(12), batch_size=4, num_workers=1, collate_fn=pipelines.once_unpicklable))
    assert float(next(iterator)[0][0, 0]) == 0.0
    with pytest.raises(Exception, match=r"(?s)Caught .* in DataLoader worker process 0.*lambda"):
        next(iterator)
    assert float(next(iterator)[0][0, 0]) == 8.0


WRONG: list[tuple[dict[str, Any], type[Exception]]] = [
    ({"num_workers": -1}, ValueError),
    ({"timeout": -1}, ValueError),
    ({"prefetch_factor": 2}, ValueError),
    ({"persistent_workers": True}, ValueError),
    ({"multiprocessing_context": "fork"}, ValueError),
    ({"num_workers": 1, "multiprocessing_context": "thread"}, ValueError),
    ({"num_workers": 1, "multiprocessing_context": 3}, TypeError),
    ({"batch_size": None, "drop_last": True}, ValueError),
    ({"batch_size": 0}, ValueError),
    ({"shuffle": True, "sampler": [1]}, ValueError),
    ({"batch_size": 2, "batch_sampler": [[1]]}, ValueError),
    ({"unknown": 1}, TypeError),
]


@pytest.mark.parametrize(("options", "error"), WRONG)
def test_wrong_arguments_meet_the_same_error(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error) as expected:
        DataLoader(pipelines.Tensors(), **options)
    with pytest.raises(error) as met:
        FastLoader(pipelines.Tensors(), **options)
    assert str(met.value) == str(expected.value)


def test_a_generator_that_is_none_meets_the_same_error() -> None:
    met = []
    for kind in (DataLoader, FastLoader):
        with pytest.raises(TypeError) as error:
            iter(kind(pipelines.Tensors(), generator=3))
        met.append(str(error.value))
    assert met[0] == met[1]


WRONG_OF_OURS: list[tuple[dict[str, Any], str]] = [
    ({"engine": "turbo"}, "'auto', 'processes', 'torch', but got engine='turbo'"),
    ({"fuse": "near"}, "'close', 'exact' or None, but got fuse='near'"),
    ({"on_bad": "ignore"}, "'raise', 'skip', 'refill', but got on_bad='ignore'"),
    ({"max_bad": 5}, "between 0 and 1, but got max_bad=5"),
    ({"max_bad": None}, "share between 0 and 1, but got max_bad=None"),
    ({"sample_timeout": -1}, "got sample_timeout=-1"),
    ({"sample_timeout": None}, "0 for no limit, but got sample_timeout=None"),
    ({"sample_timeout": "60s"}, "such as 60, or 0 for no limit, but got sample_timeout='60s'"),
    ({"sample_timeout": float("inf")}, "0 for no limit, but got sample_timeout=inf"),
    ({"quarantine": True}, "path of a file, or None, but got quarantine=True"),
    ({"augment": "flip"}, "function of a batch, or None, but got augment='flip'"),
    ({"device": "gpu"}, "'cuda', 'cuda:0' or 'cpu', or None, but got device='gpu'"),
    ({"rng": "mine"}, "got rng='mine'"),
    ({"threads_per_worker": 0}, "whole number above 0, but got threads_per_worker=0"),
    ({"threads_per_worker": 2.0}, "whole number above 0, but got threads_per_worker=2.0"),
    ({"threads_per_worker": 2, "sample_timeout": 3}, "Leave one of them out"),
]


@pytest.mark.parametrize(("options", "words"), WRONG_OF_OURS)
def test_wrong_options_of_ours_are_named_with_what_they_may_be(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        FastLoader(pipelines.Tensors(), **options)


@pytest.mark.parametrize("options", [{"on_bad": "skip"}, {"sample_timeout": 3}, {"rng": "sample"}, {"threads_per_worker": 2}])
def test_options_that_belong_to_indices_are_refused_for_streams(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"asked for by index, which a stream's are not\. This is a Stream"):
        FastLoader(pipelines.Stream(), **options)


@pytest.mark.parametrize("attribute", ["batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers"])
def test_what_torch_holds_fast_is_held_fast(attribute: str) -> None:
    loader = FastLoader(pipelines.Tensors(), batch_size=2)
    with pytest.raises(ValueError, match=f"{attribute} attribute should not be set after FastLoader is initialized"):
        setattr(loader, attribute, getattr(loader, attribute))


@BOTH
def test_what_may_change_acts_at_the_next_epoch(kind: Any) -> None:
    loader = kind(pipelines.Tensors(8), batch_size=4, num_workers=1)
    assert len(list(loader)) == 2
    loader.num_workers, loader.prefetch_factor = 0, None
    loader.collate_fn = pipelines.first_only
    assert [float(batch[0]) for batch in loader] == [0.0, 4.0]
    loader.num_workers, loader.prefetch_factor = 2, 1
    assert [float(batch[0]) for batch in loader] == [0.0, 4.0]


@pytest.mark.parametrize(
    ("name", "wrong", "right", "told"),
    [
        ("fuse", "near", "exact", "Not fused: "),
        ("rng", "mine", "sample", "Whichever worker is free makes the next batch."),
        ("engine", "turbo", "torch", "engine='torch' asks for it"),
        ("on_bad", "ignore", "skip", "2 worker processes"),
    ],
)
def test_options_of_ours_that_change_act_at_the_next_epoch(name: str, wrong: str, right: str, told: str) -> None:
    loader = FastLoader(pipelines.Tensors(8), batch_size=4, num_workers=2, quarantine=None)
    setattr(loader, name, wrong)
    with pytest.raises(ValueError, match=f"{name} option should be one of .*got {name}='{wrong}'"):
        iter(loader)
    setattr(loader, name, right)
    assert len(list(loader)) == 2
    assert told in loader.explain()


def test_a_plan_that_is_set_afterwards_is_refused() -> None:
    """It says which dataset and which settings the loader is made with."""
    loader = FastLoader(pipelines.Tensors(8), batch_size=4)
    loader.plan = "pipefix.plan.toml"
    with pytest.raises(ValueError, match=r"plan is read .* with None, and was set to 'pipefix\.plan\.toml' since"):
        iter(loader)
    loader.plan = None
    assert len(list(loader)) == 2


@pytest.mark.parametrize("own", [{}, {"rng": "sample"}, {"on_bad": "skip", "quarantine": None}])
def test_a_dataset_may_refuse_to_tell_its_length(own: dict[str, Any]) -> None:
    class Unmeasured(pipelines.Tensors):
        def __len__(self) -> int:
            raise RuntimeError("not yet")

    loader = FastLoader(Unmeasured(), batch_size=2, sampler=[3, 1, 2], **own)
    assert [len(batch) for batch in loader] == [2, 1]
    assert loader.state_dict()["length"] is None


def test_every_attribute_of_torchs_loader_is_there() -> None:
    options = {"batch_size": 3, "num_workers": 2, "shuffle": True, "timeout": 5}
    plain, ours = DataLoader(pipelines.Tensors(), **options), FastLoader(pipelines.Tensors(), **options)
    public = {name for name in vars(plain) if not name.startswith("_")}
    assert public <= set(vars(ours))
    for name in ("num_workers", "prefetch_factor", "timeout", "batch_size", "drop_last", "in_order", "persistent_workers"):
        assert getattr(ours, name) == getattr(plain, name)
    assert len(ours) == len(plain)


def test_own_options_are_keyword_only_optional_and_kept_as_passed() -> None:
    own = [item for item in inspect.signature(FastLoader.__init__).parameters.values() if item.kind is item.KEYWORD_ONLY]
    loader = FastLoader(pipelines.Tensors())
    assert own
    for item in own:
        assert item.default is not item.empty
        assert getattr(loader, item.name) == item.default
    assert FastLoader(pipelines.Tensors(), engine="torch").engine == "torch"


@BOTH
def test_a_loader_is_built_without_side_effects(kind: Any) -> None:
    before = len(os.listdir("/proc/self/fd")), len(multiprocessing.active_children())
    state = torch.get_rng_state()
    loader = kind(pipelines.Tensors(), num_workers=2)
    again = kind(pipelines.Tensors(), num_workers=2)
    assert loader.num_workers == again.num_workers
    assert (len(os.listdir("/proc/self/fd")), len(multiprocessing.active_children())) == before
    assert torch.equal(torch.get_rng_state(), state)


@BOTH
def test_iterators_at_the_same_time_are_independent(kind: Any) -> None:
    loader = kind(pipelines.Tensors(12), batch_size=4, num_workers=1)
    outer = [(float(batch[0, 0]), [float(two[0, 0]) for two in loader]) for batch in loader]
    assert outer == [(first, [0.0, 4.0, 8.0]) for first in (0.0, 4.0, 8.0)]


@BOTH
def test_persistent_workers_give_one_iterator_that_starts_again(kind: Any) -> None:
    loader = kind(pipelines.Tensors(40), batch_size=4, num_workers=2, persistent_workers=True)
    iterator = iter(loader)
    workers = [worker.pid for worker in iterator._workers]
    next(iterator)
    assert iter(loader) is iterator
    assert [float(batch[0, 0]) for batch in loader] == [float(first) for first in range(0, 40, 4)]
    assert [worker.pid for worker in iterator._workers] == workers


@BOTH
def test_an_abandoned_iterator_frees_its_workers(kind: Any) -> None:
    iterator = iter(kind(pipelines.Tensors(400), batch_size=4, num_workers=2))
    next(iterator)
    workers = list(iterator._workers)
    del iterator
    assert not any(worker.is_alive() for worker in workers)


def test_a_forked_process_that_drops_an_iterator_leaves_its_workers_alone() -> None:
    iterator = iter(FastLoader(pipelines.Tensors(80), batch_size=4, num_workers=2))
    next(iterator)
    child = os.fork()
    if not child:
        del iterator
        os._exit(0)
    os.waitpid(child, 0)
    assert len(list(iterator)) == 19


@BOTH
def test_a_length_that_is_not_kept_is_warned_of(kind: Any) -> None:
    stream = pipelines.Stream(4)
    loader = kind(stream, batch_size=None, num_workers=1)
    assert len(loader) == 4
    stream.length = 6
    with pytest.warns(UserWarning, match="Length of IterableDataset .* was reported to be 4"):
        list(loader)


@BOTH
def test_pinning_without_a_device_is_warned_of(kind: Any) -> None:
    if torch.accelerator.is_available():
        pytest.skip("there is a device to pin for")
    with warnings.catch_warnings(record=True) as plain_warnings:
        warnings.simplefilter("always")
        list(DataLoader(pipelines.Tensors(8), batch_size=4, num_workers=1, pin_memory=True))
    if not any("no accelerator is found" in str(warning.message) for warning in plain_warnings):
        pytest.skip("the DataLoader of this torch does not warn of it")
    with pytest.warns(UserWarning, match="no accelerator is found"):
        list(kind(pipelines.Tensors(8), batch_size=4, num_workers=1, pin_memory=True))


@pytest.mark.parametrize("workers", [0, 1])
@BOTH
def test_a_profile_begun_in_the_midst_of_an_epoch_sees_each_batch_as_an_annotation(kind: Any, workers: int) -> None:
    iterator = iter(kind(pipelines.Tensors(6), batch_size=2, num_workers=workers))
    next(iterator)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        next(iterator)
    name = f"enumerate(DataLoader)#_{'Multi' if workers else 'Single'}ProcessDataLoaderIter.__next__"
    name = name.replace("MultiProcess", "MultiProcessing")
    assert [event.is_user_annotation for event in profile.events() if event.name == name] == [True]
    assert len(list(iterator)) == 1


@BOTH
def test_users_own_way_to_stack_tensors_is_kept(kind: Any) -> None:
    from torch.utils.data._utils.collate import default_collate_fn_map

    original = default_collate_fn_map[torch.Tensor]
    default_collate_fn_map[torch.Tensor] = lambda batch, *, collate_fn_map=None: torch.cat(list(batch))
    try:
        assert next(iter(kind(pipelines.Tensors(8), batch_size=4, num_workers=1))).shape == (64,)
    finally:
        default_collate_fn_map[torch.Tensor] = original


@BOTH
def test_too_many_workers_are_warned_of_also_where_they_were_set_afterwards(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0}, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    loader = kind(pipelines.Tensors(8), batch_size=4)
    loader.num_workers, loader.prefetch_factor = 2, 2
    with pytest.warns(UserWarning, match="will create 2 worker processes"):
        list(loader)


@EACH
def test_batches_out_of_order_are_all_there(kind: Any) -> None:
    loader = kind(pipelines.Tensors(40), batch_size=4, num_workers=3, in_order=False)
    assert sorted(float(batch[0, 0]) for batch in loader) == [float(first) for first in range(0, 40, 4)]


@BOTH
def test_the_tricks_of_timm_and_ultralytics_work(kind: Any) -> None:
    class Again:
        def __init__(self, sampler: Any) -> None:
            self.sampler = sampler

        def __iter__(self) -> Any:
            while True:
                yield from iter(self.sampler)

    class Infinite(kind):  # type: ignore[misc]
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            object.__setattr__(self, "batch_sampler", Again(self.batch_sampler))
            self.iterator = super().__iter__()

        def __len__(self) -> int:
            return len(self.batch_sampler.sampler)

        def __iter__(self) -> Any:
            for _ in range(len(self)):
                yield next(self.iterator)

    loader = Infinite(pipelines.Tensors(8), batch_size=4, num_workers=2)
    assert [[float(batch[0, 0]) for batch in loader] for _ in range(3)] == [[0.0, 4.0]] * 3
    timms = kind(pipelines.Tensors(8), batch_size=4)
    timms._DataLoader__initialized = False
    timms.batch_sampler = BatchSampler(SequentialSampler(range(8)), 2, False)
    timms._DataLoader__initialized = True
    assert len(list(timms)) == 4


@pytest.mark.parametrize("how", ["looked up in the hook", "put in place by pipefix run"])
def test_lightning_makes_one_anew_with_its_options(how: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What `train_dataloader` makes, Lightning makes anew from what each class that it knew was given: `DataLoader` alone, where
    `pipefix.FastLoader` was loaded in there. Its options were gone."""
    path = tmp_path / "pipefix.plan.toml"
    path.write_text('format = "pipefix.plan/1"\ntarget = "train.py:1"\n[loader]\nprefetch_factor = 3\n')
    init = DataLoader.__init__

    def noting(self: Any, *args: Any, **kwargs: Any) -> None:
        if "__pl_saved_args" not in vars(self):
            vars(self).update({"__pl_saved_args": args, "__pl_saved_kwargs": kwargs})
        init(self, *args, **kwargs)

    with monkeypatch.context() as hook:
        hook.setattr(DataLoader, "__init__", noting)
        if how == "looked up in the hook":
            loader: Any = FastLoader(pipelines.Tensors(), 4, num_workers=1, plan=path, on_bad="skip", max_bad=0.5, fuse="exact")
        else:
            loader = DataLoader.__new__(DataLoader)
            vars(loader).update({"__pl_saved_args": (pipelines.Tensors(), 4), "__pl_saved_kwargs": {"num_workers": 1}})
            PlanInProgram(str(path)).put_in_place(loader, (pipelines.Tensors(), 4), {"num_workers": 1})
    saved = vars(loader)
    given = {**saved["__pl_saved_kwargs"], "shuffle": False, "sampler": SequentialSampler(range(8)), "batch_sampler": None}
    again = type(loader)(*saved["__pl_saved_args"], **given)
    assert again.prefetch_factor == 3 and [len(batch) for batch in again] == [4, 4]
    for name, option in inspect.signature(FastLoader.__init__).parameters.items():
        if option.kind is option.KEYWORD_ONLY:
            assert getattr(again, name) == getattr(loader, name)


def test_no_warning_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DataLoader, "check_worker_number_rationality", lambda self: None)  # torch's own, of too few processors
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(FastLoader(pipelines.Mixed(), batch_size=4, num_workers=2))
