"""Each fixer by itself, and that there is one for every remedy."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

from pipefix.fixes import applied, build_cache
from pipefix.fixes.by_hand import WHY, ByHand
from pipefix.fixes.fixer import Place
from pipefix.fixes.move_augment import MoveAugment
from pipefix.fixes.registry import all_fixers, fixer_for
from pipefix.loader import planned
from pipefix.loader.fast_loader import FastLoader
from pipefix.measurement.bench import StandInOptions
from pipefix.measurement.consumer import Consumer
from pipefix.measurement.experiments import PLAIN
from pipefix.measurement.replay import Pool
from pipefix.plan import planfile
from pipefix.plan.planfile import AugmentationChange, CacheChange, LoaderChange, PlanFile
from pipefix.plan.remedy import all_remedies
from pipefix.subject.load import load
from pipefix.vocabulary.errors import TargetError
from tests.fixes.benchtop import MACHINE, step


class Pictures(Dataset):
    def __init__(self, folder: Path, *operations) -> None:
        self.paths = [folder / f"{number}.png" for number in range(6)]
        for number, path in enumerate(self.paths):
            Image.new("RGB", (40, 30), (number * 40, 90, 10)).save(path)
        self.transform = transforms.Compose(operations)

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int):
        return self.transform(Image.open(self.paths[index]).convert("RGB")), index


@pytest.fixture
def place(tmp_path):
    flip, size = transforms.RandomHorizontalFlip(), transforms.Resize((16, 16))
    data = Pictures(tmp_path, size, flip, transforms.ToTensor())
    return Place(load(DataLoader(data, batch_size=3)), PlanFile(), tmp_path, MACHINE)


def test_every_remedy_has_one_fixer_or_is_refused_with_a_reason():
    for kind in all_remedies():
        fixer = fixer_for(f"{kind.id}-2" if kind.id == "workers" else kind.id)
        assert not isinstance(fixer, ByHand) or kind.id in WHY, kind.id
        assert sum(kind.id in one.remedies for one in [*all_fixers(), ByHand()]) == 1, kind.id


@pytest.mark.parametrize("id", sorted(WHY))
def test_what_is_done_by_hand_says_why(place, id):
    assert fixer_for(id).refuses(step(id), place) == WHY[id]
    assert fixer_for(id).plan(step(id), place) == place.plan


def test_the_hand_over_is_fastloaders(place):
    fixer = fixer_for("handover-slots")
    assert fixer.refuses(step("handover-slots"), place) == "without workers there is nothing to hand over"
    busy = Place(place.subject, PlanFile(loader=LoaderChange(num_workers=2)), place.folder, MACHINE)
    assert fixer.refuses(step("handover-slots"), busy) is None
    plan = fixer.plan(step("handover-slots"), busy)
    assert plan.loader == LoaderChange(num_workers=2, engine="processes")
    done = Place(place.subject, plan, place.folder, MACHINE)
    assert fixer.refuses(step("handover-slots"), done) == "the plan hands batches over through reused memory already"
    loader = applied.fixed(place.subject, plan, place.folder).loader
    assert isinstance(loader, FastLoader) and loader.another(loader.dataset).engine == "processes"
    theirs = Place(load(FastLoader(place.subject.dataset, num_workers=1, engine="processes")), PlanFile(), place.folder, MACHINE)
    assert "already" in fixer.refuses(step("handover-slots"), theirs)
    threads = Place(load(FastLoader(place.subject.dataset, num_workers=1, engine="threads")), PlanFile(), place.folder, MACHINE)
    why = "threads of the process make the batches, which need not be handed over"
    assert fixer.refuses(step("handover-slots"), threads) == why


def test_what_is_verified_runs_with_the_hand_over_of_the_plan(place):
    plan = PlanFile(loader=LoaderChange(num_workers=1, engine="processes"))
    subject = applied.fixed(place.subject, plan, place.folder)
    pool = Pool(subject, StandInOptions(0, 1, cut=False), Consumer())
    try:
        assert pool.block(PLAIN, 0.1).rate > 0
        assert "through memory that is used again" in pool._loader.explain()
    finally:
        pool.close(at_once=True)


def test_a_remedy_of_a_later_version_is_refused(place):
    assert fixer_for("warp-drive").refuses(step("warp-drive"), place) == "this version does not know how to apply it"


@pytest.mark.parametrize(
    ("id", "said"),
    [
        ("workers-4", {"num_workers": 4}),
        ("workers-0", {"num_workers": 0}),
        ("persistent-workers", {"persistent_workers": True}),
        ("start-method", {"start_method": "forkserver"}),
        ("tail-scheduling", {"in_order": False}),
        ("pinning", {"pin_memory": True}),
        ("thread-caps", {"worker_threads": 1}),
    ],
)
def test_settings_are_added_to_those_in_the_plan(place, id, said):
    before = PlanFile(loader=LoaderChange(prefetch_factor=3))
    found = fixer_for(id).plan(step(id), Place(place.subject, before, place.folder, MACHINE)).loader
    assert found == LoaderChange(prefetch_factor=3, **said)


@pytest.mark.parametrize("id", ["cache-source", "cache-decoded", "cache-sample", "cache-resized-256"])
def test_caches_are_built_beside_the_plan_and_read_through_it(place, id):
    fixer = fixer_for(id)
    assert fixer.refuses(step(id), place) is None
    fixer.make(step(id), place, lambda *_: None)
    plan = fixer.plan(step(id), place)
    assert plan.cache.path == fixer.makes(step(id), place)
    planfile.write(plan, place.folder / planfile.NAME)
    fixed = applied.fixed(place.subject, planfile.read(place.folder / planfile.NAME), place.folder)
    assert fixed.dataset[2][0].shape == (3, 16, 16)
    folder = place.folder / plan.cache.path
    assert build_cache.bytes_of(folder) > 0
    assert build_cache.remove(folder) and not folder.parent.exists() and not build_cache.remove(folder)


def test_an_earlier_store_does_not_follow_a_later_one(place):
    plan = PlanFile(cache=CacheChange(path="pipefix-caches/decoded", store="decoded"))
    after = Place(place.subject, plan, place.folder, MACHINE)
    assert "comes later on a sample's way" in fixer_for("cache-source").refuses(step("cache-source"), after)
    assert fixer_for("cache-sample").refuses(step("cache-sample"), after) is None


class TestMovedAugmentation:
    """On the CPU, by hand: without a device the fixer refuses."""

    def test_without_a_device_it_is_refused(self, place, monkeypatch):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        assert MoveAugment().refuses(step("augment-gpu"), place) == "there is no CUDA device here"

    def test_the_operations_that_move_are_named_in_the_plan(self, place):
        plan = MoveAugment().plan(step("augment-gpu"), place)
        assert plan.augmentation.operations == ["HorizontalFlip", "ToTensor", "ToDtype"]
        MoveAugment().make(step("augment-gpu"), place, lambda *_: None)

    @pytest.mark.parametrize("store", [None, "source", "decoded"])
    def test_what_stays_and_what_moves_make_the_batch(self, place, store):
        plan = place.plan
        if store is not None:
            fixer = fixer_for(f"cache-{store}")
            fixer.make(step(f"cache-{store}"), place, lambda *_: None)
            plan = fixer.plan(step(f"cache-{store}"), place)
        plan = MoveAugment().plan(step("augment-gpu"), Place(place.subject, plan, place.folder, MACHINE))
        fixed = applied.fixed(place.subject, plan, place.folder)
        seen = []

        class Keeps(Consumer):
            def __call__(self, batch):
                seen.append(batch)

        taking = applied.consumer(Keeps(), place.subject, plan, place.folder)
        for batch in fixed.loader:
            assert batch[0].dtype == torch.uint8
            taking(batch)
        assert taking.present and taking.settle() == [] and taking.split() == {}
        assert [tuple(images.shape) for images, _ in seen] == [(3, 3, 16, 16)] * 2
        plain = torch.stack([place.subject.dataset[index][0] for index in range(6)])
        # One colour a picture: flipping does not show.
        assert torch.allclose(torch.cat([images for images, _ in seen]), plain, atol=1 / 255)

    def test_pictures_that_may_differ_in_size_cannot_be_moved_as_batches(self, place):
        fixer = fixer_for("cache-sample")
        fixer.make(step("cache-sample"), place, lambda *_: None)
        after = Place(place.subject, fixer.plan(step("cache-sample"), place), place.folder, MACHINE)
        with pytest.raises(TargetError, match="None of the dataset's transforms can be moved"):
            MoveAugment().plan(step("augment-gpu"), after)

    def test_behind_a_cache_of_ready_samples_nothing_is_left_to_move(self, tmp_path):
        data = Pictures(tmp_path, transforms.Resize((16, 16)), transforms.ToTensor())
        place = Place(load(DataLoader(data, batch_size=3)), PlanFile(), tmp_path, MACHINE)
        fixer = fixer_for("cache-sample")
        fixer.make(step("cache-sample"), place, lambda *_: None)
        after = Place(place.subject, fixer.plan(step("cache-sample"), place), tmp_path, MACHINE)
        with pytest.raises(TargetError, match="nothing to move"):
            MoveAugment().plan(step("augment-gpu"), after)


def test_a_plan_that_moves_other_operations_is_told():
    from pipefix.vocabulary.errors import BadUsage

    change = AugmentationChange(backend="kornia", operations=["Solarize"])
    with pytest.raises(
        BadUsage, match=r"The plan moves Solarize to the batch, and of this dataset's transforms none can be moved\."
    ):
        planned.swap_of(object(), change)
    with pytest.raises(BadUsage, match="makes a loader of its own"):
        planned.swap_of(object(), AugmentationChange(backend="dali"))
