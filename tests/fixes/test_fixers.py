"""Each fixer by itself, and that there is one for every remedy."""

from __future__ import annotations

import os
import signal
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

from pipefix.augment import parity, support
from pipefix.caches import pool
from pipefix.fixes import apply_plan, fix_log
from pipefix.fixes.cache_process import Builder
from pipefix.fixes.choice import check_only, fixer_for
from pipefix.fixes.fixers import DecodeByDali, MoveAugment
from pipefix.fixes.outcome import Applied
from pipefix.fixes.same_samples import same_batch
from pipefix.fixes.speedup import WholeLoader
from pipefix.loader.fast_loader import FastLoader
from pipefix.loader.planning import planned
from pipefix.measurement.consumer import Consumer, ModelStep
from pipefix.measurement.experiments import PLAIN
from pipefix.measurement.probe_task import ProbeOptions
from pipefix.measurement.run_arms import Pool
from pipefix.plan import planfile
from pipefix.plan.planfile import AugmentationChange, CacheChange, LoaderChange, PlanFile
from pipefix.plan.remedy import all_remedies
from pipefix.vocabulary.errors import BadUsage, TargetError
from tests.fixes.benchtop import Bench, context, step


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
    return context(DataLoader(data, batch_size=3), tmp_path)


VARY = {"workers", "fuse"}
"""Remedies whose change is not always the same."""


def test_every_remedy_carries_its_change_or_says_why_only_the_author_can_make_it():
    for kind in all_remedies():
        assert bool(kind.by_hand) == (kind.change is None and kind.id not in VARY), kind.id


@pytest.mark.parametrize("kind", [kind for kind in all_remedies() if kind.by_hand], ids=lambda kind: kind.id)
def test_what_is_done_by_hand_says_why(place, kind):
    assert fixer_for(step(kind.id)).refuses(step(kind.id), place) == kind.by_hand


def planned_by(step, context):
    return context.plan.merged(fixer_for(step).change(step, context))


def test_how_the_process_died_that_builds_caches_is_told(place, monkeypatch):
    """It "ended with -9"."""
    monkeypatch.setattr(pool, "can_fork", lambda: True)
    with Builder(place.subject) as builder:
        os.kill(builder._process.pid, signal.SIGKILL)
        builder._process.join()
        with pytest.raises(TargetError, match=r"has ended: it was killed by signal 9 \(SIGKILL\)\."):
            builder.build(None, place.folder, lambda *_: None)


def test_the_hand_over_is_fastloaders(place):
    fixer = fixer_for(step("handover-slots"))
    busy = replace(place, plan=PlanFile(loader=LoaderChange(num_workers=2)))
    assert fixer.refuses(step("handover-slots"), busy) is None
    plan = planned_by(step("handover-slots"), busy)
    assert plan.loader == LoaderChange(num_workers=2, engine="processes")
    loader = apply_plan.fixed(place.subject, plan, place.folder).loader
    assert isinstance(loader, FastLoader) and loader.another(loader.dataset).engine == "processes"


def test_a_model_that_takes_no_such_batch_is_no_consumer_behind_moved_operations_either():
    """Where fix went on from a plan that moves them, it ended with an error of the model, which was only a guess at the step."""
    behind = apply_plan._Behind(ModelStep(torch.nn.Linear(3, 1), None), torch.nn.Identity())
    behind.try_on(torch.zeros(4, 2))
    behind(torch.zeros(4, 2))
    assert behind.name == "none" and behind.why_none


def test_what_is_verified_runs_with_the_hand_over_of_the_plan(place):
    plan = PlanFile(loader=LoaderChange(num_workers=1, engine="processes"))
    subject = apply_plan.fixed(place.subject, plan, place.folder)
    pool = Pool(subject, ProbeOptions(0, 1, cut=False), Consumer())
    try:
        assert pool.block(PLAIN, 0.1).rate > 0
        assert "through reusable shared memory" in pool._loader.explain()
    finally:
        pool.close(at_once=True)


@pytest.mark.parametrize(
    ("id", "said"),
    [
        ("workers-4", {"num_workers": 4}),
        ("workers-0", {"num_workers": 0}),
        ("persistent-workers", {"persistent_workers": True}),
        ("tail-scheduling", {"in_order": False}),
        ("pinning", {"pin_memory": True}),
        ("thread-caps", {"worker_threads": 1}),
    ],
)
def test_settings_are_added_to_those_in_the_plan(place, id, said):
    before = PlanFile(loader=LoaderChange(prefetch_factor=3))
    found = planned_by(step(id), replace(place, plan=before)).loader
    assert found == LoaderChange(prefetch_factor=3, **said)


@pytest.mark.parametrize("id", ["cache-source", "cache-resized-256"])
def test_caches_are_built_beside_the_plan_and_read_through_it(place, id):
    fixer = fixer_for(step(id))
    assert fixer.refuses(step(id), place) is None
    fixer.make(step(id), place, lambda *_: None)
    plan = planned_by(step(id), place)
    planfile.write(plan, place.folder / planfile.NAME)
    fixed = apply_plan.fixed(place.subject, planfile.read(place.folder / planfile.NAME), place.folder)
    assert fixed.dataset[2][0].shape == (3, 16, 16)
    folder = place.folder / plan.cache.path
    assert fix_log.remove_unused(place.folder) == ([], [])
    (place.folder / planfile.NAME).unlink()
    assert fix_log.remove_unused(place.folder) == ([plan.cache.path], []) and not folder.parent.exists()


def test_an_earlier_store_does_not_follow_a_later_one(place):
    plan = PlanFile(cache=CacheChange(path="pipefix-caches/decoded", store="decoded"))
    after = replace(place, plan=plan)
    assert "comes later on a sample's way" in fixer_for(step("cache-source")).refuses(step("cache-source"), after)
    assert fixer_for(step("cache-sample")).refuses(step("cache-sample"), after) is None


class TestMovedAugmentation:
    """On the CPU, by hand: without a device the fixer refuses."""

    def test_without_a_device_it_is_refused(self, place, monkeypatch):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        assert MoveAugment().refuses(step("augment-gpu"), place) == "there is no CUDA device here"

    def test_the_operations_that_move_are_named_in_the_plan(self, place):
        plan = planned_by(step("augment-gpu"), place)
        assert plan.augmentation.operations == ["RandomHorizontalFlip", "ToTensor"]
        MoveAugment().make(step("augment-gpu"), place, lambda *_: None)

    def test_pictures_that_come_out_otherwise_are_no_change_to_make(self, place, monkeypatch):
        """The user's list on samples of the dataset, held against the batch of what moved."""
        own = parity.run
        monkeypatch.setattr(parity, "run", lambda images, programs: 255 - own(images, programs))
        with pytest.raises(TargetError, match="the transforms do not do the same"):
            MoveAugment().make(step("augment-gpu"), place, lambda *_: None)

    def test_a_mask_beside_the_picture_is_no_change_to_make(self, tmp_path):
        class Masked(Pictures):
            def __getitem__(self, index):
                picture = Image.open(self.paths[index]).convert("RGB")
                return self.transform(picture, torch.zeros(1, 40, 40))

        data = Masked(tmp_path)
        data.transform = v2.Compose([v2.Resize((32, 32)), v2.RandomHorizontalFlip(), v2.ToImage()])
        place = context(DataLoader(data, batch_size=3), tmp_path)
        with pytest.raises(TargetError, match="mask"):
            MoveAugment().make(step("augment-gpu"), place, lambda *_: None)

    @pytest.mark.parametrize("store", [None, "decoded"])
    def test_what_stays_and_what_moves_make_the_batch(self, place, store):
        plan = place.plan
        if store is not None:
            fixer = fixer_for(step(f"cache-{store}"))
            fixer.make(step(f"cache-{store}"), place, lambda *_: None)
            plan = planned_by(step(f"cache-{store}"), place)
        plan = planned_by(step("augment-gpu"), replace(place, plan=plan))
        fixed = apply_plan.fixed(place.subject, plan, place.folder)
        seen = []

        class Keeps(Consumer):
            def __call__(self, batch):
                seen.append(batch)

        taking = apply_plan.consumer(Keeps(), place.subject, plan, place.folder)
        for batch in fixed.loader:
            assert batch[0][0].dtype == torch.uint8
            taking(batch)
        assert taking.present and taking.settle() == []
        assert [tuple(images.shape) for images, _ in seen] == [(3, 3, 16, 16)] * 2
        plain = torch.stack([place.subject.dataset[index][0] for index in range(6)])
        # One colour a picture: flipping does not show.
        assert torch.allclose(torch.cat([images for images, _ in seen]), plain, atol=1 / 255)
        on_batch = planned.module(place.subject.dataset, plan, place.folder)
        assert same_batch(place.subject, fixed, on_batch, alters="rounding").kind == "different"

    @pytest.mark.parametrize(
        ("wrong", "said"),
        [
            (lambda images, labels: (images, labels + 1), "holds other values"),
            (lambda images, labels: (1 - images, labels), "holds other values"),
            (lambda images, labels: (images[..., :-1], labels), "instead of"),
            (lambda images, labels: [images], "1 part instead of 2"),
        ],
    )
    def test_batches_are_compared_with_all_that_lies_beside_the_pictures(self, place, wrong, said):
        plan = planned_by(step("augment-gpu"), place)
        fixed = apply_plan.fixed(place.subject, plan, place.folder)
        on_batch = planned.module(place.subject.dataset, plan, place.folder)
        told = same_batch(place.subject, fixed, lambda batch: wrong(*on_batch(batch)), alters="rounding")
        assert told.kind == "unlike" and said in told.sentence

    def test_pictures_that_may_differ_in_size_cannot_be_moved_as_batches(self, place):
        fixer = fixer_for(step("cache-sample"))
        fixer.make(step("cache-sample"), place, lambda *_: None)
        after = replace(place, plan=planned_by(step("cache-sample"), place))
        with pytest.raises(TargetError, match="None of the dataset's transforms can be moved"):
            planned_by(step("augment-gpu"), after)

    def test_behind_a_cache_of_ready_samples_nothing_is_left_to_move(self, tmp_path):
        data = Pictures(tmp_path, transforms.Resize((16, 16)), transforms.ToTensor())
        place = context(DataLoader(data, batch_size=3), tmp_path)
        fixer = fixer_for(step("cache-sample"))
        fixer.make(step("cache-sample"), place, lambda *_: None)
        after = replace(place, plan=planned_by(step("cache-sample"), place))
        with pytest.raises(TargetError, match="nothing to move"):
            planned_by(step("augment-gpu"), after)


def test_a_plan_that_moves_other_operations_is_told():
    from pipefix.vocabulary.errors import BadUsage

    change = AugmentationChange(backend="kornia", operations=["Solarize"])
    with pytest.raises(
        BadUsage, match=r"The plan moves Solarize to the batch, and of this dataset's transforms none can be moved\."
    ):
        planned.swap_of(object(), change)


class TestDecodingByDali:
    """On the CPU, by hand: without a device the fixer refuses."""

    @pytest.fixture
    def files(self, tmp_path):
        pytest.importorskip("nvidia.dali")
        for number in range(6):
            (tmp_path / "data" / "abc"[number % 3]).mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (40 + number, 36), (40 * number, 9, 99)).save(tmp_path / "data" / "abc"[number % 3] / f"{number}.png")
        whole = transforms.Compose([transforms.CenterCrop(32), transforms.RandomHorizontalFlip(), transforms.ToTensor()])
        data = ImageFolder(str(tmp_path / "data"), whole)
        return context(DataLoader(data, batch_size=3), tmp_path)

    def test_it_is_refused_where_it_cannot_be(self, files, place, monkeypatch):
        fixer = fixer_for(step("decode-gpu"))
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        assert fixer.refuses(step("decode-gpu"), files) == "there is no CUDA device here"
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(support, "gpu_declined", lambda to: None)
        assert fixer.refuses(step("decode-gpu"), files) is None
        assert "does not list its files" in fixer.refuses(step("decode-gpu"), place)
        monkeypatch.setattr(support, "gpu_declined", lambda to: "DALI here is built for another CUDA")
        assert fixer.refuses(step("decode-gpu"), files) == "DALI here is built for another CUDA"

    def test_batches_are_made_as_the_plan_has_it(self, files):
        fixer = fixer_for(step("decode-gpu"))
        plan = planned_by(step("decode-gpu"), files)
        assert plan.augmentation == AugmentationChange(
            backend="dali", operations=["CenterCrop", "RandomHorizontalFlip", "ToTensor"]
        )
        fixer.make(step("decode-gpu"), files, lambda *_: None)
        fixed = apply_plan.fixed(files.subject, plan, files.folder)
        assert apply_plan.consumer(Consumer(), files.subject, plan, files.folder).name == "none"
        # One colour a picture: flipping does not show.
        for one, own in zip(fixed.loader, files.subject.loader, strict=True):
            assert torch.allclose(one[0].cpu(), own[0], atol=1 / 255) and one[1].tolist() == own[1].tolist()
        with closing(WholeLoader(fixed, Consumer())) as running:
            assert running.block(PLAIN, 0.05).rate > 0

    def test_samples_that_are_not_those_of_the_files_are_told(self, files):
        files.subject.dataset.samples = files.subject.dataset.samples[::-1]
        files.subject.dataset.imgs = files.subject.dataset.samples
        files.subject.dataset.__class__ = Backwards
        with pytest.raises(TargetError, match=r"dataset\[0\] is not the picture of .*which the dataset lists there"):
            fixer_for(step("decode-gpu")).make(step("decode-gpu"), files, lambda *_: None)

    def test_a_run_keeps_it_and_looks_for_nothing_afterwards(self, files, tmp_path, monkeypatch):
        monkeypatch.setattr(DecodeByDali, "refuses", lambda *_: None)
        bench = Bench(
            tmp_path / "bench", [step("decode-gpu"), step("thread-caps")], target=files.subject.loader, gains=[2.0, 3.0, 6.0]
        )
        found = bench.run(yes=True)
        assert [one.id for one in found.outcomes if isinstance(one, Applied)] == ["thread-caps", "decode-gpu"]
        assert found.stopped.startswith("pictures are made by DALI, which no probe sees into")
        assert 'backend = "dali"' in bench.plan_text()


class Backwards(ImageFolder):
    """Gives other samples than it lists."""

    def __getitem__(self, index):
        return super().__getitem__(len(self) - 1 - index)


def test_an_empty_name_is_no_remedys():
    """It was taken for all whose name has no dash, such as fuse."""
    with pytest.raises(BadUsage, match="There is no remedy ''"):
        check_only("")
