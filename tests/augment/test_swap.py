"""A target from end to end: its dataset is left alone, what stays and what moves make the same samples, and the command says so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, Subset
from torchvision import transforms as v1
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

import pipefix
from pipefix.augment import lightning, support
from pipefix.augment.samples import pictures as samples_of
from pipefix.augment.split import split
from pipefix.augment.swap import Swap, files_of, find
from pipefix.augment.translate import translate
from pipefix.vocabulary.errors import BadUsage, MissingExtra, TargetError
from tests.augment import coverage
from tests.augment.lists import pictures

LIST = v1.Compose(
    [
        v1.RandomResizedCrop(24),
        v1.RandomHorizontalFlip(),
        v1.ColorJitter(0.3, 0.3),
        v1.ToTensor(),
        v1.Normalize((0.5,) * 3, (0.2,) * 3),
    ]
)


class Own(Dataset[Any]):
    """A dataset as people write them."""

    def __init__(self, transform: Any, name: str = "transform") -> None:
        self.images = [Image.fromarray(one.permute(1, 2, 0).numpy()) for one in pictures(12, 40, 50)]
        setattr(self, name, transform)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Any:
        return self.transform(self.images[index]), index % 3


def swapped(dataset: Any, target: str = "kornia", seed: int = 0) -> Swap:
    place = find(dataset)
    assert place is not None
    return Swap(split(translate(place.transform), target), place, seed)


def test_transforms_are_found_where_people_keep_them(photos: Path) -> None:
    assert find(Own(LIST)).path == ("transform",)  # type: ignore[union-attr]
    assert find(Subset(Own(LIST), [1, 2])).path == ("dataset", "transform")  # type: ignore[union-attr]
    assert find(ImageFolder(photos, LIST)).path == ("transform",)  # type: ignore[union-attr]
    assert find(Own(None)) is None


@pytest.mark.parametrize("target", ["kornia", "tensor"])
@pytest.mark.parametrize("workers", [0, 2])
def test_neither_workers_nor_batches_change_a_sample(target: str, workers: int) -> None:
    data = Own(LIST)
    made = swapped(data, target, seed=7)
    dataset, augment = made.dataset(data, index=True), made.module()
    dataset.set_epoch(2)
    found: dict[int, torch.Tensor] = {}
    for (images, labels), index in DataLoader(dataset, 5, shuffle=True, num_workers=workers):
        images, _ = augment((images, labels), index=index, epoch=2)
        found |= dict(zip(index.tolist(), images, strict=True))
    plain = made.dataset(data, index=True)
    plain.set_epoch(2)
    for place in range(12):
        (image, _), _ = plain[place]
        assert torch.equal(augment(image[None], index=[place], epoch=2)[0], found[place])
    assert data.transform is LIST


def test_what_crosses_is_bytes_of_one_size() -> None:
    data = Own(LIST)
    dataset = swapped(data).dataset(data)
    image, label = dataset[3]
    assert image.dtype == torch.uint8
    assert image.shape == (3, 24, 24)
    assert label == 0
    assert len(dataset) == 12
    assert dataset.images is data.images


def test_without_an_epoch_crops_go_on_differing() -> None:
    data = Own(LIST)
    dataset = swapped(data).dataset(data)
    assert not torch.equal(dataset[3][0], dataset[3][0])
    dataset.set_epoch(0)
    assert torch.equal(dataset[3][0], dataset[3][0])


def test_folders_are_read_as_tensors_for_tensors(photos: Path) -> None:
    data = ImageFolder(photos, LIST)
    made = swapped(data, "tensor")
    dataset = made.dataset(data)
    dataset.set_epoch(0)
    kept = swapped(data, "kornia").dataset(data)
    kept.set_epoch(0)
    # The same crop of the same pixels; PIL and torchvision round a resized byte by themselves.
    assert (dataset[1][0].int() - kept[1][0].int()).abs().max() <= 1


def test_albumentations_give_arrays() -> None:
    albumentations = pytest.importorskip("albumentations")

    class Arrays(Own):
        def __getitem__(self, index: int) -> Any:
            return self.transform(image=np.asarray(self.images[index]))["image"], index % 3

    made = albumentations.Compose([albumentations.RandomCrop(24, 24), albumentations.HorizontalFlip(), albumentations.ToTensorV2()])
    data = Arrays(made)
    image, _ = swapped(data).dataset(data)[0]
    assert image.shape == (3, 24, 24)
    assert image.dtype == torch.uint8
    assert len(samples_of(data, find(data), 4)) == 4  # type: ignore[arg-type]


PIPELINE = """
from pathlib import Path
from torch.utils.data import DataLoader
from torchvision import transforms
from torchvision.datasets import ImageFolder

LIST = transforms.Compose([
    transforms.RandomResizedCrop(32), transforms.RandomHorizontalFlip(), transforms.ColorJitter(0.3, 0.3, 0.3, 0.1),
    transforms.ToTensor(), transforms.Normalize((0.5, 0.5, 0.5), (0.2, 0.2, 0.2)),
])
loader = DataLoader(ImageFolder({photos!r}, LIST), batch_size=4)
nothing = DataLoader([1, 2, 3], batch_size=1)
"""


@pytest.fixture
def target(tmp_path: Path, photos: Path) -> Path:
    file = tmp_path / "train.py"
    file.write_text(PIPELINE.format(photos=str(photos)))
    return file


@pytest.mark.parametrize(
    "to", [pytest.param("kornia", marks=pytest.mark.system), pytest.param("dali", marks=pytest.mark.system), "tensor"]
)
def test_from_end_to_end(target: Path, to: str, tmp_path: Path) -> None:
    if to == "dali":
        pytest.importorskip("nvidia.dali")
    found = pipefix.swap(f"{target}:loader", to=to, check=True, samples=6)
    report = found.report
    assert report.parity is not None
    assert report.parity.holds, report.parity
    assert report.parity.whole is not None
    assert found.sheet
    assert {one.op for one in report.parity.drawn} == {"RandomResizedCrop", "RandomHorizontalFlip", "ColorJitter"}
    if to == "dali":
        images, labels = next(iter(found.loader(batch_size=4)))
        assert images.shape == (4, 3, 32, 32)
        assert labels.tolist() == [0] * 4
        assert any("ColorJitter" in note for note in report.notes)
    else:
        assert [one.transform for one in report.stays] == ["RandomResizedCrop"]
        batch = next(iter(DataLoader(found.dataset(), 4)))
        assert found.module()(batch)[0].shape == (4, 3, 32, 32)


@pytest.mark.system
def test_the_command(target: Path, tmp_path: Path, root: Path, preloaded: str) -> None:
    out, page = tmp_path / "augment.py", tmp_path / "swap.html"
    options = ["--to", "kornia", "--samples", "6", "--html", str(page), "--write", str(out)]
    command = [*preloaded.split(), "swap", f"{target}:loader", *options]
    done = subprocess.run(command, capture_output=True, text=True, cwd=root)
    assert done.returncode == 0, done.stderr
    assert "RandomResizedCrop: pictures differ in size until they are cropped" in done.stdout
    assert "Equal as far as it was checked" in done.stdout
    assert page.read_text().count("data:image/png") == 24
    assert "def augmentation(" in out.read_text()


def test_a_dataset_without_transforms(target: Path) -> None:
    with pytest.raises(TargetError, match="keeps no transforms under any of the usual names"):
        pipefix.swap(f"{target}:nothing", to="tensor")


def test_transforms_of_another_name_are_named(target: Path) -> None:
    data = Own(v1.Compose([v1.RandomInvert()]))
    vars(data)["my_steps"] = vars(data).pop("transform")
    with pytest.raises(TargetError) as caught:
        pipefix.swap(data, to="tensor")
    assert caught.value.advice.endswith("--transforms NAME")
    with pytest.raises(TargetError, match="keeps no transforms under 'absent'"):
        pipefix.swap(data, to="tensor", transforms="absent")
    assert find(data, "my_steps") is not None


def test_mistakes_are_told(target: Path) -> None:
    with pytest.raises(BadUsage, match="The device 'tpu' cannot be used"):
        pipefix.swap(f"{target}:loader", device="tpu")
    data = Own(v1.Compose([v1.Lambda(lambda picture: 1 / 0), v1.RandomInvert()]))
    with pytest.raises(TargetError, match="The part of the transforms that stays raised ZeroDivisionError"):
        pipefix.swap(DataLoader(data), check=True)


def test_dali_has_a_loader_and_no_module() -> None:
    with pytest.raises(BadUsage, match="makes a loader, not a module"):
        swapped(Own(LIST), "dali").module()
    with pytest.raises(BadUsage, match="lists its files"):
        swapped(Own(LIST), "dali").loader(Own(LIST))


def test_a_missing_package_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch, target: Path) -> None:
    monkeypatch.setitem(sys.modules, "nvidia.dali", None)
    with pytest.raises(MissingExtra) as told:
        pipefix.swap(f"{target}:loader", to="dali")
    assert "The target dali needs the package 'nvidia.dali'" in str(told.value)
    own = "dali-cuda12" if str(torch.version.cuda).startswith("12.") else "dali"
    assert told.value.advice == f"Install it with: pip install 'pipefix[{own}]'"


@pytest.mark.parametrize(("cuda", "extra"), [("12.8", "dali-cuda12"), ("13.0", "dali"), (None, "dali")])
def test_the_dali_of_torchs_own_cuda_is_named(cuda: str | None, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nvidia.dali", None)
    monkeypatch.setattr(torch.version, "cuda", cuda)
    with pytest.raises(MissingExtra) as told:
        support.check("dali")
    assert told.value.advice == f"Install it with: pip install 'pipefix[{extra}]'"


def test_a_dataset_that_lists_no_files_is_declined_at_once(photos: Path) -> None:
    pytest.importorskip("nvidia.dali")
    with pytest.raises(TargetError, match="DALI begins with the encoded files, and the dataset does not list its files") as told:
        pipefix.swap(DataLoader(Own(LIST)), to="dali")
    assert "--to kornia" in told.value.advice
    changed = ImageFolder(photos, LIST, target_transform=abs)
    with pytest.raises(TargetError, match="the dataset changes its labels"):
        pipefix.swap(DataLoader(changed), to="dali")


def test_files_of_a_part_of_a_dataset(photos: Path) -> None:
    whole = ImageFolder(photos, LIST)
    files, labels = whole.samples[2][0], whole.samples[2][1]
    assert files_of(Subset(whole, [2])) == ([files], [labels])
    assert isinstance(files_of([1, 2]), str)
    whole.samples = [(torch.zeros(3), 1)]
    assert isinstance(files_of(whole), str)


def test_both_targets_are_timed_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    from pipefix.augment import pace
    from pipefix.report import swap_figures

    images = list(pictures(3))
    found = pace.batch_seconds(translate([v2.CenterCrop(30), v2.RandomInvert()]).ops, images, "cpu")
    assert set(found) == {"kornia", "tensor"}
    assert all(seconds > 0 for seconds in found.values())
    assert set(pace.batch_seconds(translate([v2.JPEG(80)]).ops, images, "cpu")) == {"tensor"}
    assert swap_figures.paces({"tensor": 0.004, "kornia": 0.002}, 32, "cuda") == (
        "A batch of 32 pictures takes 2.00 ms by --to kornia, 4.00 ms by --to tensor on cuda, launching included."
    )


class TestCoverage:
    def test_every_transform_has_its_row(self) -> None:
        table = coverage.rows()
        assert len(table) >= 60
        found = coverage.counts(table)
        assert found["tensor"] >= 45
        assert found["kornia"] >= 32
        assert found["dali"] >= 22
        assert all(why is None or len(why) > 10 for row in table for why in row.why_not.values())

    @pytest.mark.parametrize("target", ["tensor", "kornia"])
    def test_what_is_covered_really_runs(self, target: str) -> None:
        from pipefix.augment.swap import build

        for row in coverage.rows():
            if row.why_not[target] is None and row.name not in (
                "MixUp",
                "CutMix",
                "LinearTransformation",
                "RandomZoomOut",
                "Normalize",
            ):
                made = build(target, translate(coverage.example(row.name)).ops)
                assert made(list(pictures(2, 120, 120)))[0].shape[0] in (1, 3), row.name


class TestLightning:
    """The hook is called as Lightning calls it; Lightning itself is not needed."""

    class Module(torch.nn.Module):
        training_run = True

        def __init__(self) -> None:
            super().__init__()
            self.seen: list[Any] = []

        @property
        def trainer(self) -> Any:
            from types import SimpleNamespace

            return SimpleNamespace(training=self.training_run, current_epoch=4)

        def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
            self.seen.append(dataloader_idx)
            return batch

    def test_training_batches_are_augmented(self) -> None:
        from pipefix.augment import kornia

        augment = kornia.augmentation(translate(v2.RandomInvert(1.0)).ops)
        module = lightning.attach(self.Module(), augment)
        batch = (pictures(3), torch.arange(3))
        assert torch.equal(module.on_after_batch_transfer(batch, 0)[0], 255 - batch[0])
        assert augment.epoch == 4
        module.training_run = False
        assert module.on_after_batch_transfer(batch, 1)[0] is batch[0]
        assert module.seen == [0, 1]


def test_it_works_beside_a_compiled_model_and_under_autocast() -> None:
    from pipefix.augment import kornia

    augment = kornia.augmentation(translate(LIST).ops)
    images = pictures(4, 32, 32)
    expected = augment(images, index=range(4))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(augment(images, index=range(4)), expected)

    @torch.compile(backend="eager")
    def step(given: torch.Tensor) -> torch.Tensor:
        return augment(given, index=range(4)).mean()

    assert torch.equal(step(images), expected.mean())
