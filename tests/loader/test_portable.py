"""The hand-over as a collate function: for plain DataLoaders, as frameworks make them."""

from __future__ import annotations

import copy
import gc
import mmap
import os
import pickle
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, _utils

from pipefix.loader.fast_loader import FastLoader
from pipefix.loader.slots import arena as arenas
from pipefix.loader.slots import portable
from pipefix.loader.slots.portable import Portable, prepare
from tests.loader import pipelines
from tests.loader.likeness import assert_same
from tests.loader.test_contract import PIPELINES, epochs

NAMES = ("shuffled", "a stream", "the user's type", "unusual tensors")
"""Each kind of batch that workers hand over, and no sampler twice: `prepare` changes the collate function alone."""


@pytest.mark.parametrize("name", NAMES)
def test_batches_are_the_same(name: str) -> None:
    dataset, options = PIPELINES[name]
    expected, after = epochs(DataLoader, dataset, 1, num_workers=2, **options)
    passes, left = epochs(lambda *args, **more: prepare(DataLoader(*args, **more)), dataset, 1, num_workers=2, **options)
    assert_same(passes, expected)
    assert_same(left, after)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Slots from which batches were opened."""
    found: list[int] = []
    original = arenas.Arena.opened
    monkeypatch.setattr(arenas.Arena, "opened", lambda self, slot: (found.append(slot), original(self, slot))[1])
    return found


def test_batches_come_through_slots(opened: list[int]) -> None:
    loader = prepare(DataLoader(pipelines.Tensors(80), batch_size=4, num_workers=2))
    assert [float(batch[0, 0]) for batch in loader] == [4.0 * number for number in range(20)]
    assert len(opened) == 20
    assert max(opened) < portable.SLOTS_EACH


def test_memory_of_workers_that_ended_is_given_up() -> None:
    loader = prepare(DataLoader(pipelines.Tensors(16), batch_size=4, num_workers=2))
    for _ in range(2):
        list(loader)
    gc.collect()
    assert len(portable._known) <= 2


def test_memory_goes_back_when_its_worker_has_ended() -> None:
    portable._known.clear()
    batch: Any = None
    for batch in prepare(DataLoader(pipelines.Tensors(64), batch_size=32, num_workers=1)):
        expected = batch.clone()
    ((_, arena),) = portable._known.values()
    held = os.fstat(arena._fd).st_blocks
    assert torch.equal(batch, expected)
    del batch
    assert os.fstat(arena._fd).st_blocks < held
    assert os.fstat(arena._fd).st_blocks * 512 == mmap.PAGESIZE, "more than the marks of its slots is kept"


def test_without_workers_it_is_the_function_itself() -> None:
    assert torch.equal(prepare()([torch.ones(2), torch.zeros(2)]), torch.tensor([[1.0, 1.0], [0.0, 0.0]]))
    assert_same(next(iter(prepare(DataLoader(pipelines.Mixed())))).keys(), next(iter(DataLoader(pipelines.Mixed()))).keys())


def test_a_worker_that_is_a_thread_sends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """MONAI's ThreadDataLoader handed out what was meant to be pickled on its way."""
    monkeypatch.setattr(_utils.worker, "_worker_info", SimpleNamespace(id=0, num_workers=2))  # torch keeps it for the whole process
    assert torch.equal(prepare()([torch.ones(2), torch.zeros(2)]), torch.tensor([[1.0, 1.0], [0.0, 0.0]]))


def test_the_loader_that_was_given_is_left_as_it_was() -> None:
    plain = DataLoader(pipelines.Tensors(), batch_size=4, collate_fn=pipelines.wrap)
    prepared = prepare(plain)
    assert plain.collate_fn is pipelines.wrap and prepared.collate_fn.collate_fn is pipelines.wrap
    assert prepared.sampler is plain.sampler and prepared.dataset is plain.dataset
    assert prepare(prepared.collate_fn) is prepared.collate_fn


def test_a_collators_settings_can_be_seen_and_changed_and_it_travels() -> None:
    class Collator:
        padding = "longest"

        def __call__(self, samples: Any) -> Any:
            return samples

    collator = Collator()
    prepared = prepare(collator)
    assert prepared.padding == "longest"
    prepared.padding = "max_length"  # as a curriculum does
    assert collator.padding == "max_length"
    assert isinstance(pickle.loads(pickle.dumps(prepare(pipelines.wrap))), Portable)
    with pytest.raises(TypeError, match="takes a DataLoader or a collate function, not a int"):
        prepare(3)


def test_what_timm_puts_around_a_loader_is_refused_with_what_to_do() -> None:
    class PrefetchLoader:
        def __init__(self, loader: Any) -> None:
            self.loader = loader

        def __iter__(self) -> Any:
            return iter(self.loader)

    with pytest.raises(TypeError, match=r"not a PrefetchLoader\. Make the DataLoader in it with collate_fn=pipefix\.prepare"):
        prepare(PrefetchLoader(DataLoader(pipelines.Tensors())))


class Mixup:
    """As timm's FastCollateMixup."""

    mixup_enabled = True

    def __call__(self, samples: Any) -> Any:
        return torch.stack(samples)


def test_a_framework_that_asks_for_its_collators_class_finds_it(opened: list[int]) -> None:
    """timm's PrefetchLoader ends mixup at an epoch by ``isinstance(loader.collate_fn, FastCollateMixup)``: it never ended."""
    prepared = prepare(Mixup())
    for each in (prepared, copy.copy(prepared), copy.deepcopy(prepared), pickle.loads(pickle.dumps(prepared))):
        assert type(each) is Portable and isinstance(each, Mixup)
    assert prepare(prepared) is prepared and not isinstance(prepare(tuple), type)
    loader = prepare(DataLoader(pipelines.Tensors(16), batch_size=4, num_workers=1, collate_fn=Mixup()))
    assert len(list(loader)) == len(opened) == 4


@pytest.mark.parametrize(
    ("options", "options_lost"),
    [
        ({"on_bad": "skip", "max_bad": 0.5}, "on_bad='skip'"),
        ({"fuse": "exact"}, "fuse='exact'"),
        ({"augment": pipelines.wrap}, "augment="),
        ({"device": "cpu"}, "device="),
        ({"threads_per_worker": 2}, "threads_per_worker="),
        ({"engine": "torch"}, "engine='torch'"),
        ({"rng": "sample"}, "rng='sample'"),
        ({"sample_timeout": 3, "rng": "sample"}, "rng='sample', sample_timeout="),
        ({"plan": "[loader]\nfuse = 'exact'"}, "the plan's fuse"),
        ({"plan": "[loader]\nworker_threads = 0\nengine = 'torch'"}, "the plan's worker_threads, the plan's engine"),
    ],
)
def test_what_a_fast_loader_would_lose_is_refused_by_name(options: dict[str, Any], options_lost: str, tmp_path: Path) -> None:
    if "plan" in options:
        options = {"plan": plan(tmp_path, options["plan"])}
    loader = FastLoader(pipelines.Tensors(16), batch_size=4, num_workers=1, **options)
    with pytest.raises(ValueError, match=f"prepare cannot carry {re.escape(options_lost)} of this FastLoader"):
        prepare(loader)


class Endless(DataLoader[Any]):
    """As those of timm and ultralytics: one iterator for all epochs, which ends with the loader."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.iterator = super().__iter__()

    def __del__(self) -> None:
        self.iterator._shutdown_workers()  # type: ignore[attr-defined]


def test_a_loader_that_has_begun_its_one_iterator_is_refused() -> None:
    """The copy had the same iterator: its batches came as before, or not at all once the loader that was given was gone."""
    with pytest.raises(ValueError, match=r"cannot change this Endless.*Make the loader with collate_fn=pipefix\.prepare"):
        prepare(Endless(pipelines.Tensors(16), batch_size=4, num_workers=1))


class Shard(DataLoader[Any]):
    """As those that Accelerate gives out, and the Trainer's `get_train_dataloader`: a loader that iterates another one."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        self.base_dataloader = loader

    def __getattr__(self, name: str) -> Any:
        if name == "base_dataloader":
            raise AttributeError(name)
        return getattr(self.base_dataloader, name)

    def __iter__(self) -> Any:
        yield from self.base_dataloader


def test_a_loader_that_accelerate_has_made_gets_its_speed_as_well(opened: list[int]) -> None:
    """Only the outer loader was given the collate function, which nothing reads."""
    given = Shard(DataLoader(pipelines.Tensors(16), batch_size=4, num_workers=1))
    assert [float(batch[0, 0]) for batch in prepare(given)] == [0.0, 4.0, 8.0, 12.0]
    assert len(opened) == 4
    assert not isinstance(given.base_dataloader.collate_fn, Portable)


def test_what_a_plain_loader_has_as_well_is_carried(tmp_path: Path) -> None:
    path = plan(tmp_path, "[loader]\nnum_workers = 1\nprefetch_factor = 3\nengine = 'processes'")
    loader = prepare(FastLoader(pipelines.Tensors(16), batch_size=4, plan=path, engine="processes"))
    assert (loader.num_workers, loader.prefetch_factor) == (1, 3)
    assert [float(batch[0, 0]) for batch in loader] == [0.0, 4.0, 8.0, 12.0]


def plan(folder: Path, text: str) -> Path:
    path = folder / "pipefix.plan.toml"
    path.write_text(f'format = "pipefix.plan/1"\n{text}\n', encoding="utf-8")
    return path


def test_in_a_fast_loader_it_is_unwrapped() -> None:
    loader = FastLoader(
        pipelines.Tensors(80), batch_size=4, num_workers=1, collate_fn=prepare(pipelines.first_only), engine="processes"
    )
    assert [float(batch[0]) for batch in loader] == [4.0 * number for number in range(20)]
    assert "torch's way" not in loader.explain()


class Around:
    """A collate function around a prepared one, as the Trainer has one that takes columns away."""

    def __init__(self) -> None:
        self.prepared = prepare()

    def __call__(self, samples: list[Any]) -> Any:
        batch = self.prepared(samples)
        return batch, float(batch.sum())


@pytest.mark.parametrize(
    "made", [FastLoader, lambda *args, **options: prepare(DataLoader(*args, **options))], ids=["FastLoader", "prepared"]
)
def test_a_prepared_function_within_another_makes_a_batch_for_it(made: Any) -> None:
    """Each batch was an AttributeError. All are kept here, so that the last ones find no slot that is free."""
    kept = list(made(pipelines.Tensors(80), batch_size=2, num_workers=1, collate_fn=Around()))
    assert [float(batch.sum()) for batch, _ in kept] == [total for _, total in kept] == [16.0 * (4 * n + 1) for n in range(40)]
