"""Pictures made by fused calls: tried, verified on real samples, kept in the plan, and told."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader
from torchvision import transforms as v1
from torchvision.datasets import ImageFolder

from pipefix.api import try_remedies as tried
from pipefix.diagnosis.diagnose import diagnose
from pipefix.fixes import apply_plan, fused_trial, same_samples, speedup
from pipefix.fixes.choice import candidates, fixer_for
from pipefix.fixes.outcome import Applied, Refused
from pipefix.fixes.speedup import WholeLoader
from pipefix.kernels.kernel import native
from pipefix.loader.fast_loader import FastLoader
from pipefix.loader.fusing import in_part
from pipefix.loader.fusing.child_process import in_child_process
from pipefix.loader.fusing.errors import NotFused
from pipefix.loader.fusing.pixel_difference import PixelDifference
from pipefix.loader.fusing.sample_random import seeded
from pipefix.measurement.consumer import Consumer
from pipefix.measurement.experiments import PLAIN
from pipefix.measurement.measurement import Measurement
from pipefix.measurement.trace import Charge
from pipefix.plan import planfile
from pipefix.plan.planfile import AugmentationChange, LoaderChange, PlanFile
from pipefix.subject.load import load
from tests.doubles.measured import charged, measured
from tests.fixes.benchtop import Bench, context, step

TRAIN = v1.Compose([v1.RandomResizedCrop(32), v1.RandomHorizontalFlip(), v1.ToTensor()])
STILL = v1.Compose([v1.Resize((32, 32)), v1.ToTensor()])
EQUAL = "pixels equal the list's own"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("pictures")
    for number in range(12):
        place = root / ("cat" if number % 2 else "dog")
        place.mkdir(exist_ok=True)
        smooth, rough = np.random.default_rng(number).normal(size=(2, 64, 80 + number, 3))
        pixels = np.clip(smooth.cumsum(0).cumsum(1) * 0.36 + rough * 12 + 128, 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(place / f"{number:02d}.jpg")
    return root


def loader(folder: Path, transform: Any = TRAIN, **options: Any) -> DataLoader[Any]:
    return DataLoader(ImageFolder(str(folder), transform), batch_size=4, **options)


def with_fuse(theirs: DataLoader[Any], mode: Any, folder: Path) -> Any:
    subject = load(theirs)
    return subject, apply_plan.fixed(subject, PlanFile(loader=LoaderChange(fuse=mode)), folder)


class Remembering(ImageFolder):
    """Keeps what it has loaded."""

    def __init__(self, root: str) -> None:
        super().__init__(root, STILL)
        self.known: dict[int, Any] = {}

    def __getitem__(self, index: int) -> Any:
        path, label = self.samples[index]
        if index not in self.known:
            self.known[index] = self.loader(path)
        return self.transform(self.known[index]), label


# -- trying it ---------------------------------------------------------------------------------------------------------------


def test_it_is_tried_on_the_datasets_own_pictures(folder: Path) -> None:
    # Time for every picture however slow the machine is.
    found = in_child_process(partial(fused_trial.try_on_dataset, loader(folder), "exact", 60.0), 90.0)
    assert found.distance == EQUAL
    assert (found.draws, found.processes) == (True, "")
    call = tried.fused_call(found)
    assert call.pictures == len(found.own) == 12
    assert 0 < call.left.low <= call.left.value <= call.left.high


@pytest.fixture(autouse=True)
def whole_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is gained in part is a matter of the machine's pace."""
    monkeypatch.setattr(in_part, "LEAST_GAIN", math.inf)


def test_what_does_not_fit_says_why(folder: Path) -> None:
    odd = v1.Compose([v1.RandomResizedCrop(32), v1.ColorJitter(), v1.ToTensor()])
    with pytest.raises(NotFused, match="ColorJitter"):
        in_child_process(partial(fused_trial.try_on_dataset, loader(folder, odd), "close"))
    own = fused_trial.try_on_dataset(loader(folder, collate_fn=list, num_workers=1), "exact")
    assert own.processes == "collate_fn is your own"


def test_what_fits_in_part_is_tried_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if native() is None:
        pytest.skip("in part needs the native kernel")
    monkeypatch.setattr(in_part, "LEAST_GAIN", 0.0)
    odd = v1.Compose([v1.RandomResizedCrop(32), v1.ColorJitter(), v1.ToTensor()])
    found = fused_trial.try_on_dataset(loader(folder, odd), "close")
    assert found.distance == EQUAL and found.draws and found.processes == "your own transforms run in them"


def test_putting_the_generators_at_a_samples_numbers_is_not_its_codes_time(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks, spent = count(1), []

    @contextmanager
    def slowly(key: int) -> Iterator[None]:
        spent.append(1000.0)
        with seeded(key):
            yield

    # A look at the thread's time every millisecond, but for the generators.
    clock = SimpleNamespace(perf_counter=time.perf_counter, thread_time=lambda: next(looks) * 0.001 + sum(spent))
    monkeypatch.setattr(fused_trial, "time", clock)
    monkeypatch.setattr(fused_trial, "seeded", slowly)
    found = fused_trial.try_on_dataset(loader(folder, num_workers=0), "exact", 0.01)
    assert spent and 0 < max(found.own) < 1


def test_samples_that_take_long_to_make_are_not_tried(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is made some twenty times."""
    monkeypatch.setattr(tried, "_tried", lambda subject, mode, seconds: mode)
    target = load(loader(folder))
    diagnosis = {each: diagnose(opening(measured({"decode": each, "augment": 1.0}))) for each in (1.0, 400.0)}
    assert tried.fused_calls(target, diagnosis[1.0], 0.75) == {"exact": "exact", "close": "close"}
    assert tried.fused_calls(target, diagnosis[400.0], 0.75) == {}
    assert tried.fused_calls(target, diagnosis[400.0], 20.0) != {}


def test_where_no_pictures_are_decoded_nothing_is_loaded_to_fuse_them(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tried, "_tried", lambda subject, mode, seconds: mode)
    assert tried.fused_calls(load(loader(folder)), diagnose(measured({"decode": 1.0, "augment": 1.0})), 0.75) == {}


def opening(measurement: Measurement) -> Measurement:
    """Whose decoding opens pictures."""
    return charged(measurement, Charge("decode", "PIL.Image.open", 1000, 1000, 1000, 4))


def test_a_dataset_that_remembers_is_declined_and_remembers_nothing_of_it(folder: Path) -> None:
    dataset = Remembering(str(folder))
    with pytest.raises(NotFused, match="keeps what it is given in a picture's place"):
        in_child_process(partial(fused_trial.try_on_dataset, DataLoader(dataset, batch_size=4), "exact"))
    assert dataset.known == {}


def test_a_process_that_dies_or_hangs_or_raises_is_told() -> None:
    for make, patience, told in (
        (partial(os._exit, 3), 30.0, "the process that tried it ended with code 3"),
        (partial(time.sleep, 60), 0.05, "trying it took longer than 0.05 s"),
        (lambda: 1 / 0, 30.0, "trying it raised ZeroDivisionError: division by zero"),
    ):
        with pytest.raises(NotFused, match=told):
            in_child_process(make, patience)


# -- the fixer ---------------------------------------------------------------------------------------------------------------


def test_it_writes_the_plan_and_refuses_what_cannot_be(folder: Path, tmp_path: Path) -> None:
    fixer, exact = fixer_for(step("fuse-exact")), step("fuse-exact", risk="random numbers are drawn anew")
    at = context(loader(folder), tmp_path, PlanFile(loader=LoaderChange(num_workers=2)))
    assert fixer.refuses(exact, at) is None
    assert fixer.alters(exact) == "random numbers are drawn anew"
    assert fixer.alters(step("fuse-exact")) is None
    plan = at.plan.merged(fixer.change(exact, at))
    assert plan.loader == LoaderChange(num_workers=2, fuse="exact")
    assert at.plan.merged(step("fuse-close").change).loader == LoaderChange(num_workers=2, fuse="close")
    planfile.write(plan, tmp_path / planfile.NAME)
    assert 'fuse = "exact"' in (tmp_path / planfile.NAME).read_text()
    made = apply_plan.fixed(at.subject, planfile.read(tmp_path / planfile.NAME), tmp_path).loader
    assert isinstance(made, FastLoader) and (made.fuse, made.num_workers) == ("exact", 2)
    moved = context(loader(folder), tmp_path, PlanFile(augmentation=AugmentationChange(backend="kornia")))
    assert fixer.refuses(exact, moved) == "the plan moves transforms to whole batches, and a fused call makes all of them"


def test_it_comes_after_everything_else() -> None:
    asked = [step("fuse-exact", 9.0), step("tail-scheduling", 2.0), step("cache-source", 1.5)]
    assert [one.id for one in candidates(asked, 0.05)] == ["cache-source", "tail-scheduling", "fuse-exact"]


# -- verifying ---------------------------------------------------------------------------------------------------------------


def test_exact_samples_are_equal_and_random_numbers_are_told(folder: Path, tmp_path: Path) -> None:
    before, after = with_fuse(loader(folder), "exact", tmp_path)
    found = same_samples.same(before, after, alters="random numbers are drawn anew", untouched=True)
    told = "random numbers are drawn anew: 12 samples compared, equal to the last bit with random numbers fixed"
    assert (found.kind, found.sentence, found.samples) == ("different", told, 12)
    before, after = with_fuse(loader(folder, STILL), "exact", tmp_path)
    assert same_samples.same(before, after).kind == "equal"


def test_close_samples_are_within_what_is_stated(folder: Path, tmp_path: Path) -> None:
    before, after = with_fuse(loader(folder), "close", tmp_path)
    found = same_samples.same(before, after, alters="pixels differ a little", untouched=True)
    assert found.kind == "different"
    assert found.sentence.startswith("pixels differ a little: in 12 samples compared, pixels differ from the list's own by 0.")


def test_what_is_farther_off_or_another_thing_is_unlike() -> None:
    far, near = PixelDifference(1.2, 4.0, 9.0), PixelDifference(0.1, 1.0, 2.0)

    def kind(odd: str | None, apart: PixelDifference, **options: bool) -> str:
        given = {"exact": False, "elsewhere": False, **options}
        return same_samples.judged(8, odd, False, apart, alters="pixels differ", **given).kind

    assert kind(None, near) == "different"
    assert kind(None, far) == "unlike"
    assert kind(None, near, exact=True) == "unlike"
    assert kind(None, far, elsewhere=True) == "different"
    assert kind("the sample[1] is 3 instead of 4", near) == "unlike"
    said = same_samples.judged(8, None, False, far, exact=False, elsewhere=False, alters=None).sentence
    assert said.startswith("in 8 samples compared, pixels differ from the list's own by 1.200 levels of 255 on average")


def test_what_cannot_be_fused_is_not_kept_unseen(folder: Path, tmp_path: Path) -> None:
    odd = v1.Compose([v1.RandomResizedCrop(32), v1.ColorJitter(), v1.ToTensor()])
    before, after = with_fuse(loader(folder, odd), "exact", tmp_path)
    found = same_samples.same(before, after, alters="x", untouched=True)
    assert found.kind == "unchecked" and "ColorJitter" in found.sentence


def test_the_loader_itself_is_run_over_many_epochs(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = count(1)
    monkeypatch.setattr(speedup, "perf_counter", lambda: next(looks) * 0.001)  # one every millisecond

    class Counts(Consumer):
        present = True
        name = "counts"
        seen = 0

        def __call__(self, batch: Any) -> None:
            assert isinstance(batch[0], torch.Tensor) and len(batch[0]) == 4
            self.seen += 1

    _, after = with_fuse(loader(folder, num_workers=2, shuffle=True), "exact", tmp_path)
    consumer = Counts()
    with closing(WholeLoader(after, consumer)) as pool:
        blocks = [pool.block(PLAIN, 0.05) for _ in range(2)]
        assert all(block.rate > 0 and block.samples % 4 == 0 for block in blocks)
        assert consumer.seen > 4
        assert "by fused calls" in pool._loader.explain()
        assert bool(pool.processes) is (native() is None), "without the native kernel threads would take turns"


def test_a_run_keeps_it_in_the_plan_and_ends_there(folder: Path, tmp_path: Path) -> None:
    plans = [[step("fuse-exact", 2.0, risk="random numbers are drawn anew"), step("persistent-workers", 1.2)]]
    bench = Bench(tmp_path, *plans, target=loader(folder), gains=[0.9, 2.0, 2.0])
    done = bench.run(yes=True)
    kept = [one for one in done.outcomes if isinstance(one, Applied)]
    assert [one.id for one in kept] == ["fuse-exact"]
    assert [one.id for one in done.outcomes if isinstance(one, Refused)] == ["persistent-workers"]
    assert kept[0].same.sentence.endswith("equal to the last bit with random numbers fixed")
    assert 'fuse = "exact"' in str(bench.plan_text())
    assert done.stopped == (
        "pictures are made by fused calls, which no probe sees into, so nothing more is looked for; --undo takes them back"
    )
    assert done.same.kind == "different"
    assert len(bench.looks) == 1


def test_it_is_asked_about_where_it_draws_anew(folder: Path, tmp_path: Path) -> None:
    plan = [step("fuse-exact", 2.0, risk="random numbers are drawn anew")]
    done = Bench(tmp_path, plan, target=loader(folder)).run()
    assert [one.why for one in done.outcomes] == ["random numbers are drawn anew: --yes allows it"]
