"""Batches that DALI makes on the CPU, as a plan has it: the loader's own order, its manners, and where DALI cannot."""

from __future__ import annotations

import gc
import os
import pickle
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Subset, default_collate
from torchvision import transforms as v1
from torchvision.datasets import ImageFolder

pytest.importorskip("nvidia.dali")

from pipefix.loader.fast_loader import FastLoader
from pipefix.plan.planfile import NAME, AugmentationChange, CacheChange, PlanFile, write

STILL = v1.Compose([v1.CenterCrop(16), v1.ToTensor()])
RANDOM = v1.Compose([v1.RandomCrop(12), v1.RandomHorizontalFlip(), v1.ToTensor()])


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve pictures of one colour each, in two classes."""
    folder = tmp_path_factory.mktemp("colours")
    for number in range(12):
        place = folder / ("cat" if number % 3 else "dog")
        place.mkdir(exist_ok=True)
        Image.new("RGB", (20, 18), (20 * number, 255 - 20 * number, 128)).save(place / f"{number:02}.jpg", quality=95)
    return folder


@pytest.fixture
def plan(tmp_path: Path) -> str:
    path = tmp_path / NAME
    write(PlanFile(augmentation=AugmentationChange(backend="dali")), path)
    return str(path)


def near(batch: list[torch.Tensor], expected: list[torch.Tensor]) -> bool:
    return bool(torch.allclose(batch[0].cpu(), expected[0], atol=3 / 255)) and batch[1].tolist() == expected[1].tolist()


def test_batches_are_those_of_the_datasets_own_code(root: Path, plan: str) -> None:
    dataset = ImageFolder(str(root), STILL)
    options: dict[str, Any] = {"batch_size": 5, "shuffle": True}
    ours = FastLoader(dataset, plan=plan, generator=torch.Generator().manual_seed(3), **options)
    plain = DataLoader(dataset, generator=torch.Generator().manual_seed(3), **options)
    for _ in range(2):
        batches = list(ours)
        own = list(plain)
        assert [len(images) for images, _ in batches] == [5, 5, 2]
        assert len(ours) == 3
        assert all(near(batch, own_batch) for batch, own_batch in zip(batches, own, strict=True))
    assert ours.stats().batches == 3
    assert isinstance(batches[0], list), "as default_collate puts them together"
    assert len(iter(ours)) == 3
    assert "made whole by DALI on c" in ours.explain()
    assert "CenterCrop" in ours.explain()


def test_part_of_a_dataset_is_that_part(root: Path, plan: str) -> None:
    part = Subset(ImageFolder(str(root), STILL), [9, 1, 5])
    (batch,) = FastLoader(part, batch_size=3, plan=plan)
    assert near(batch, default_collate([part[place] for place in range(3)]))


def test_an_epoch_is_gone_on_with(root: Path, plan: str) -> None:
    def made() -> Any:
        return FastLoader(ImageFolder(str(root), RANDOM), batch_size=2, shuffle=True, plan=plan)

    torch.manual_seed(5)
    first = made()
    batches = iter(first)
    behind = [next(batches) for _ in range(2)]
    state = first.state_dict()
    rest = list(batches)
    torch.manual_seed(99)
    second = made()
    second.load_state_dict(state)
    again = list(second)
    assert len(behind) + len(again) == 6
    assert all(all(map(torch.equal, before, after)) for before, after in zip(rest, again, strict=True))


def test_what_it_does_to_batches_on_their_way_is_done(root: Path, plan: str) -> None:
    loader = FastLoader(ImageFolder(str(root), STILL), batch_size=12, plan=plan, augment=lambda batch: [-batch[0], batch[1]])
    ((images, _),) = loader
    assert -1 <= images.min() < images.max() <= 0


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"collate_fn": list}, "its collate_fn is your own"),
        ({"batch_size": None}, "the loader makes no batches of indices"),
        ({"own": True}, "the dataset does not list its files"),
        ({"cached": True}, "reads samples from a cache, and DALI begins with the files"),
    ],
)
def test_where_it_cannot_the_dataset_makes_samples(root: Path, plan: str, change: dict[str, Any], why: str) -> None:
    from pipefix.loader.planning import by_dali

    dataset: Any = ImageFolder(str(root), STILL)
    if change.pop("cached", False):
        cached = PlanFile(augmentation=AugmentationChange(backend="dali"), cache=CacheChange(path="c", store="source"))
        assert why in str(by_dali.why_not(DataLoader(dataset), dataset, cached))
        return
    if change.pop("own", False):
        dataset = [dataset[place] for place in range(4)]
    loader = FastLoader(dataset, plan=plan, **{"batch_size": 4, **change})
    with pytest.warns(RuntimeWarning, match=why):
        batches = list(loader)
    assert len(batches) == len(loader)
    assert "DALI" not in loader.explain()


def test_options_that_need_the_loaders_own_iterators_are_told(root: Path, plan: str) -> None:
    loader = FastLoader(ImageFolder(str(root), STILL), batch_size=12, plan=plan, on_bad="skip")
    with pytest.warns(RuntimeWarning, match="on_bad='skip' cannot be had: DALI makes the batches"):
        assert len(list(loader)) == 1


def test_a_forked_process_that_collects_it_takes_nothing_down(root: Path, plan: str) -> None:
    """None of the pipeline's threads are there: DALI's own way to shut it down crashed torch's workers."""
    loader: Any = FastLoader(ImageFolder(str(root), STILL), batch_size=12, plan=plan)
    list(loader)
    child = os.fork()
    if child == 0:
        loader = None
        gc.collect()
        os._exit(0)
    assert os.waitpid(child, 0) == (child, 0)
    assert len(list(loader)) == 1


def test_its_threads_go_with_the_loader(root: Path, plan: str) -> None:
    before = set(os.listdir("/proc/self/task"))
    loader: Any = FastLoader(ImageFolder(str(root), STILL), batch_size=12, plan=plan, num_workers=3)
    list(loader)
    pipe = weakref.ref(loader._planned.whole._made._pipe)
    assert pipe() is not None and set(os.listdir("/proc/self/task")) > before
    del loader
    assert pipe() is None


def test_it_travels_without_its_pipeline(root: Path, plan: str) -> None:
    loader = FastLoader(ImageFolder(str(root), STILL), batch_size=12, plan=plan)
    (first,) = loader
    (second,) = pickle.loads(pickle.dumps(loader))
    assert torch.equal(first[0], second[0])
