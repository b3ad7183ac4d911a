"""A target from end to end: its dataset is left alone, the same seed makes the same samples, and the command says so."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, IterableDataset, Subset, default_collate
from torchvision import transforms as v1
from torchvision import tv_tensors
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

import pipefix
from pipefix.augment import lightning, parity
from pipefix.augment.module import Augment
from pipefix.augment.samples import pictures as samples_of
from pipefix.augment.split import split
from pipefix.augment.swap import DatasetTransform, with_calls
from pipefix.augment.transforms import files_of, find
from pipefix.caches.convert import convert, recipe_of
from pipefix.caches.dataset import CachedDataset
from pipefix.report import runfile
from pipefix.report.runfile import GainFigures, RemedyFigures
from pipefix.vocabulary.errors import BadUsage, MissingExtra, TargetError
from tests.augment.calls import Pictures, swapped
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
NEW = v2.Compose([v2.ToImage(), v2.RandomCrop(32), v2.TrivialAugmentWide(), v2.ToDtype(torch.float32, scale=True)])


def batches(loader: Any) -> list[Any]:
    torch.manual_seed(5)
    return list(loader)


def test_of_a_cache_the_transforms_that_it_does_not_store_are_read(tmp_path: Path) -> None:
    """They were one transform called Chain, which cannot be looked into."""
    dataset = Pictures(v1.Compose([v1.Resize((32, 32)), v1.RandomHorizontalFlip(), v1.ToTensor()]))
    convert(dataset, recipe_of("lmdb", "sample"), tmp_path / "cache", target="data.py", workers=1)
    of_cache = pipefix.swap(CachedDataset(tmp_path / "cache", dataset=dataset))
    assert of_cache.swap.split.names == ["RandomHorizontalFlip", "ToTensor"]
    assert of_cache.dataset()[0][0][0].shape == (3, 32, 32)


def test_transforms_are_found_where_people_keep_them(photos: Path) -> None:
    for dataset, path in (
        (ImageFolder(photos, LIST), ("transform",)),
        (Pictures(LIST, "aug"), ("aug",)),
        (Subset(Pictures(LIST), [1, 2]), ("dataset", "transform")),
    ):
        place = find(dataset)
        assert place is not None
        assert (place.path, place.value) == (path, LIST)
    assert find([1, 2]) is None


@pytest.mark.parametrize("listed", [LIST, NEW])
def test_the_same_seed_gives_the_same_samples(listed: Any) -> None:
    """All that is left is rounding, and the random numbers after it are the same ones."""
    dataset = Pictures(listed)
    swap = swapped(dataset)
    module = swap.module()
    expected = batches(DataLoader(dataset, 4, shuffle=True))
    drawn = torch.get_rng_state()
    augmented = [module(*batch) for batch in batches(DataLoader(swap.dataset(dataset), 4, shuffle=True))]
    assert torch.equal(torch.get_rng_state(), drawn)
    for (images, labels), (wanted, numbers) in zip(augmented, expected, strict=True):
        assert torch.equal(labels, numbers)
        assert images.dtype == wanted.dtype
        assert (images - wanted).abs().mean() < (0.01 if listed is NEW else 0.05)
    assert dataset.transform is listed  # type: ignore[attr-defined]


@pytest.mark.filterwarnings("ignore:Anti-alias option is always applied")
@pytest.mark.parametrize("is_tensor", [False, True])
def test_pictures_of_pil_are_resized_as_pil_does_it(is_tensor: bool) -> None:
    """It pays no heed to ``antialias=False``, which tensors do."""
    resize = v2.Resize((15, 21), antialias=False)
    listed = v2.Compose([v2.ToImage(), resize] if is_tensor else [resize, v2.ToImage()])
    dataset = Pictures(listed)
    swap = swapped(dataset, size=(3, 40, 50), same_size=True)
    assert "Resize" in swap.split.names
    for batch, calls in DataLoader(swap.dataset(dataset), 4):
        images, labels = swap.module()(batch, calls)
        wanted = torch.stack([dataset[int(label)][0] for label in labels])
        assert (images.double() - wanted.double()).abs().mean() < 0.5


def test_a_picture_of_another_size_than_those_that_were_looked_at_is_told() -> None:
    """An epoch ended in torch's *stack expects each tensor to be equal size*, though the list crops pictures to one."""
    dataset = Pictures(v2.Compose([v2.RandomCrop(24), v2.ToImage()]))
    dataset.images[5] = dataset.images[5].resize((60, 45))
    with pytest.raises(TargetError, match="has 45 x 60 pixels before RandomCrop, those looked at have 40 x 50"):
        pipefix.swap(dataset).dataset()[5]
    assert pipefix.swap(dataset, check=True, samples=12).swap.split.names == ["ToImage"]


def test_the_nearest_pixel_is_the_one_that_pil_takes() -> None:
    """torch takes the first of those that become one, PIL the one in the middle."""
    dataset = Pictures(v2.Compose([v2.Resize((20, 25), interpolation=v2.InterpolationMode.NEAREST), v2.ToImage()]))
    swap = swapped(dataset, size=(3, 40, 50), same_size=True)
    assert swap.split.names == ["Resize", "ToImage"]
    images, labels = swap.module()(*next(iter(DataLoader(swap.dataset(dataset), 4))))
    assert torch.equal(images, torch.stack([dataset[int(label)][0] for label in labels]))


def test_settings_by_type_are_those_of_an_image() -> None:
    """Pictures stayed bytes where ``dtype`` named their type, and were padded with black where ``fill`` did."""
    image = tv_tensors.Image
    floats = v2.ToDtype({image: torch.float32, "others": None}, scale=True)
    dataset = Pictures(v2.Compose([v2.ToImage(), v2.Pad(2, fill={image: 127, tv_tensors.Mask: 0}), floats]))
    swap = swapped(dataset, size=(3, 40, 50), same_size=True)
    assert swap.split.names == ["ToImage", "Pad", "ToDtype"]
    images, labels = swap.module()(*next(iter(DataLoader(swap.dataset(dataset), 4))))
    assert images.dtype == torch.float32
    assert torch.equal(images, torch.stack([dataset[int(label)][0] for label in labels]))
    early = split([v2.Pad(2, fill={image: 127, "others": 0}), v2.ToImage()], size=(3, 40, 50), same_size=True)
    assert [part.name for part in early.in_dataset] == ["Pad"], "a picture of PIL is no tv_tensors.Image"


def test_workers_and_a_collate_function_of_the_users_own() -> None:
    def collate(samples: list[Any]) -> dict[str, Any]:
        return {"x": torch.stack([image for image, _ in samples]), "y": [label for _, label in samples]}

    dataset = Pictures(NEW)
    swap = swapped(dataset)
    module = swap.module()
    expected = batches(DataLoader(dataset, 4, collate_fn=collate, num_workers=1))
    loader = DataLoader(swap.dataset(dataset), 4, collate_fn=swap.collate(collate), num_workers=1)
    for wanted, batch in zip(expected, batches(loader), strict=True):
        augmented = module(*batch)
        assert augmented["y"] == wanted["y"]
        assert (augmented["x"] - wanted["x"]).abs().mean() < 0.01


def sorted_first(samples: list[Any]) -> Any:
    samples.sort(key=lambda sample: -sample[1])
    return default_collate(samples)


def mixed(samples: list[Any]) -> Any:
    return v2.CutMix(alpha=1000.0, num_classes=12)(default_collate(samples))


@pytest.mark.parametrize("collate", [sorted_first, mixed])
def test_a_collate_function_that_changes_or_sorts_pictures_is_refused(collate: Any) -> None:
    """What was drawn for one picture was done to another, and the patch of CutMix was flipped with the picture below it."""
    swap = swapped(Pictures(NEW))
    with pytest.raises(TargetError, match="collate function changes pictures or their order"):
        next(iter(DataLoader(swap.dataset(Pictures(NEW)), 4, collate_fn=swap.collate(collate))))


def test_what_crosses_is_bytes_of_one_size() -> None:
    swap = swapped(Pictures(LIST))
    (sample, label), calls = swap.dataset(Pictures(LIST))[0]
    assert (sample.dtype, tuple(sample.shape), label) == (torch.uint8, (3, 24, 24), 0)
    assert isinstance(calls, bytes)
    assert len(calls) < 1000


def test_boxes_and_masks_are_moved_where_they_are_as_they_were() -> None:
    """With their picture's own numbers, in the worker, by torchvision itself."""
    listed = v2.Compose([v2.RandomCrop(24), v2.RandomHorizontalFlip(), v2.ToDtype(torch.float32, scale=True)])
    picture = tv_tensors.Image(pictures(1)[0])
    target = {
        "boxes": tv_tensors.BoundingBoxes([[1, 2, 30, 31]], format="XYXY", canvas_size=(40, 48)),
        "mask": tv_tensors.Mask(torch.arange(40 * 48).reshape(1, 40, 48) % 7),
    }
    cut = split(listed, size=(3, 40, 48), same_size=True)
    for seed in range(4):
        torch.manual_seed(seed)
        image, wanted = listed(picture, target)
        torch.manual_seed(seed)
        (pixels, targets), calls = with_calls(DatasetTransform(cut)(picture, target))
        assert torch.equal(targets["boxes"], wanted["boxes"])
        assert torch.equal(targets["mask"], wanted["mask"])
        assert torch.equal(Augment()(pixels[None], [calls])[0], image)


def test_a_stream() -> None:
    class Stream(IterableDataset[Any]):
        def __init__(self, transform: Any) -> None:
            self.transform = transform

        def __iter__(self) -> Iterator[Any]:
            return (self.transform(image) for image in pictures(6))

    data = Stream(v2.Compose([v2.RandomCrop(20), v2.RandomInvert()]))
    swap = swapped(data, size=(3, 40, 48), same_size=True)
    module = swap.module()
    expected = batches(DataLoader(data, 3))
    augmented = [module(*batch) for batch in batches(DataLoader(swap.dataset(data), 3))]
    assert all(torch.equal(first, second) for first, second in zip(expected, augmented, strict=True))


def test_pictures_that_cannot_be_bytes_and_arrays_before_they_are_tensors_are_refused() -> None:
    cut = split([v2.RandomHorizontalFlip(), v2.ToTensor()], size=(1, 9, 9), same_size=True)
    with pytest.raises(TargetError, match="has the mode 'I;16'"):
        DatasetTransform(cut)(Image.new("I;16", (9, 9)))
    for mode in ("P", "RGBA"):  # of a palette PIL takes the nearest pixel, and colours count by their alpha
        with pytest.raises(TargetError, match=f"has the mode '{mode}'"):
            DatasetTransform(cut)(Image.new(mode, (9, 9)))
        assert DatasetTransform(split([v2.ToImage()], size=(4, 9, 9), same_size=True))(Image.new(mode, (9, 9))) is not None
    with pytest.raises(TargetError, match="RandomHorizontalFlip passes over"):
        DatasetTransform(cut)(pictures(1)[0].permute(1, 2, 0).numpy())


@pytest.mark.parametrize("dtype", [np.int32, np.float64])
def test_arrays_that_are_no_bytes_become_tensors_of_their_own_dtype(dtype: Any) -> None:
    """They were divided as bytes are, and made float32."""
    array = np.full((9, 9, 1), 300, dtype)
    cut = split(v1.ToTensor(), size=(1, 9, 9), same_size=True, kind="array", dtype=torch.from_numpy(array).dtype)
    pixels, calls = with_calls(DatasetTransform(cut)(array))
    made, wanted = Augment()(pixels[None], [calls])[0], v1.ToTensor()(array)
    assert made.dtype == wanted.dtype
    assert made.tolist() == wanted.tolist()


PIPELINE = """
from torch.utils.data import DataLoader
from torchvision import transforms as T
from torchvision.datasets import ImageFolder

LIST = T.Compose([
    T.RandomResizedCrop(32), T.RandomHorizontalFlip(), T.ColorJitter(0.2, 0.2), T.ToTensor(), T.Normalize((0.4,) * 3, (0.2,) * 3)
])
loader = DataLoader(ImageFolder({photos!r}, LIST), batch_size=4)
nothing = DataLoader([1, 2, 3], batch_size=1)
"""


@pytest.fixture
def target(tmp_path: Path, photos: Path) -> Path:
    file = tmp_path / "train.py"
    file.write_text(PIPELINE.format(photos=str(photos)))
    return file


@pytest.mark.parametrize("to", ["kornia", pytest.param("dali", marks=pytest.mark.system)])
def test_from_end_to_end(target: Path, to: Any) -> None:
    if to == "dali":
        pytest.importorskip("nvidia.dali")
    result = pipefix.swap(f"{target}:loader", to=to, check=True, samples=6)
    assert result.parity is not None
    assert result.parity.holds, result.parity
    assert result.parity.whole is not None
    assert result.document(full=True).sections[-1].title == "Contact sheet"
    if to == "dali":
        images, labels = next(iter(result.loader(batch_size=4)))
        assert images.shape == (4, 3, 32, 32)
        assert labels.tolist() == [0] * 4
        assert any("ColorJitter" in note for note in result.swap.notes())
    else:
        assert [name for name, _ in result.swap.split.reasons] == ["RandomResizedCrop"]
        assert result.module()(*next(iter(DataLoader(result.dataset(), 4))))[0].shape == (4, 3, 32, 32)


@pytest.mark.system
def test_the_command(target: Path, tmp_path: Path, root: Path, preloaded: str) -> None:
    page = tmp_path / "swap.html"
    command = [*preloaded.split(), "swap", f"{target}:loader", "--to", "kornia", "--samples", "6", "--html", str(page)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=root)
    assert done.returncode == 0, done.stderr
    assert "RandomResizedCrop: pictures differ in size until they are cropped" in done.stdout
    assert "The same seed gives the same samples both ways" in done.stdout
    assert page.read_text().count("data:image/png") == 24


def test_a_difference_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The measure itself: a swap that did something else would not pass."""
    import dataclasses

    from pipefix.augment.batched import BY_NAME

    dataset = Pictures(LIST)
    place = find(dataset)
    assert place is not None
    cut, samples = swapped(dataset).split, samples_of(dataset, place, 6)

    def held() -> parity.Parity:
        return parity.check(cut, samples, progress=lambda *_: None)

    assert held().holds
    row = BY_NAME["normalize"]
    wrong = dataclasses.replace(row, batched=lambda images, **arguments: row.batched(images, **arguments) * 1.3)
    monkeypatch.setitem(BY_NAME, "normalize", wrong)
    result = held()
    assert not result.holds
    assert [each.op for each in result.pixels if not each.within] == ["Normalize"]


def test_a_dataset_without_transforms(target: Path) -> None:
    with pytest.raises(TargetError, match="keeps no transforms under any of the usual names"):
        pipefix.swap(f"{target}:nothing")


def test_transforms_of_another_name_are_named() -> None:
    data = Pictures(v1.Compose([v1.RandomInvert()]))
    vars(data)["my_steps"] = vars(data).pop("transform")
    with pytest.raises(TargetError) as caught:
        pipefix.swap(data)
    assert caught.value.advice.endswith("--transforms NAME")
    with pytest.raises(TargetError, match="keeps no transforms under 'absent'"):
        pipefix.swap(data, transforms="absent")
    assert find(data, "my_steps") is not None


def test_mistakes_are_told(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadUsage, match="The device 'tpu' cannot be used"):
        pipefix.swap(f"{target}:loader", device="tpu")
    with monkeypatch.context() as two:
        two.setattr(torch.cuda, "is_available", lambda: True)
        two.setattr(torch.cuda, "device_count", lambda: 2)
        with pytest.raises(BadUsage, match="The device 'cuda:9' cannot be used") as raised:  # the transforms were blamed for it
            pipefix.swap(f"{target}:loader", device="cuda:9", check=True)
    assert raised.value.advice.endswith("one of: cuda, cuda:0, cuda:1, cpu.")
    assert pipefix.swap(f"{target}:loader", device=torch.device("cpu")).swap.split.on_batch  # type: ignore[arg-type]
    with pytest.raises(BadUsage, match="There is no 'DALI' to choose"):  # it was told as Kornia's, under that name
        pipefix.swap(f"{target}:loader", to="DALI")  # type: ignore[arg-type]
    data = Pictures(v1.Compose([v1.Lambda(lambda picture: 1 / 0), v1.RandomInvert()]))
    with pytest.raises(TargetError, match="raised ZeroDivisionError"):
        pipefix.swap(DataLoader(data), check=True)


def test_dali_has_a_loader_and_no_module() -> None:
    pytest.importorskip("nvidia.dali")
    with pytest.raises(BadUsage, match="makes a loader, not a module"):
        swapped(Pictures(LIST), "dali").module()
    with pytest.raises(BadUsage, match="lists its files"):
        swapped(Pictures(LIST), "dali").loader(Pictures(LIST))


@pytest.mark.parametrize(("cuda", "package"), [("12.8", "cuda120"), ("13.0", "cuda130"), (None, "cuda130")])
def test_the_dali_of_torchs_own_cuda_is_named(cuda: str | None, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nvidia.dali", None)
    monkeypatch.setattr(torch.version, "cuda", cuda)
    with pytest.raises(MissingExtra, match=r"The target dali needs the package 'nvidia\.dali'") as raised:
        pipefix.swap(Pictures(LIST), to="dali")
    assert raised.value.advice == f"Install it with: pip install nvidia-dali-{package}"


def test_a_dataset_that_lists_no_files_is_declined_at_once(photos: Path) -> None:
    pytest.importorskip("nvidia.dali")
    with pytest.raises(TargetError, match="DALI begins with the encoded files, and the dataset does not list its files") as raised:
        pipefix.swap(DataLoader(Pictures(LIST)), to="dali")
    assert "--to kornia" in raised.value.advice
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


class TestLightning:
    """The hook is called as Lightning calls it; Lightning itself is not needed."""

    class Module(torch.nn.Module):
        training_run = True

        def __init__(self) -> None:
            super().__init__()
            self.seen: list[Any] = []

        @property
        def trainer(self) -> Any:
            return SimpleNamespace(training=self.training_run)

        def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
            self.seen.append(dataloader_idx)
            return batch

    def test_training_batches_are_augmented(self) -> None:
        data = Pictures(v2.Compose([v2.RandomCrop(32), v2.RandomInvert(1.0), v2.ToImage()]))
        swap = swapped(data)
        module = lightning.attach(self.Module(), swap.module())
        batch = next(iter(DataLoader(swap.dataset(data), 3)))
        images, labels = module.on_after_batch_transfer(batch, 0)
        assert torch.equal(images, 255 - batch[0][0])
        assert labels.tolist() == [0, 1, 2]
        module.training_run = False
        assert module.on_after_batch_transfer(batch, 1) is batch
        assert module.seen == [0, 1]


def test_where_nothing_can_be_moved_there_are_no_halves() -> None:
    """A loop over (batch, calls) took what the collate function made for both; and the samples of both were said to be the same."""
    listed = v2.Compose([v2.ToImage(), v2.Resize((8, 8)), v2.ToDtype(torch.float32), v2.GaussianNoise()])
    result = pipefix.swap(Pictures(listed), check=True)
    assert result.parity is None
    assert str(result.worth) == "None: nothing moves.", "a probe was to measure it"
    for half in (result.dataset, result.module):
        with pytest.raises(BadUsage, match="None of these transforms can be moved"):
            half()


def test_pictures_that_are_floating_point_cross_as_that() -> None:
    """They were said to cross as bytes, a quarter of what they are."""
    dataset = Pictures(v2.Compose([v2.RandomCrop(8), v2.Normalize((0.5,) * 3, (0.5,) * 3)]))
    dataset.images = list(pictures(12, dtype=torch.float32))
    after = pipefix.swap(dataset).figures()["after"]
    assert (after["dtype"], after["bytes"]) == ("float32", 4 * 3 * 40 * 48)
    checked = pipefix.swap(dataset, check=True).parity
    assert checked is not None and checked.sheet[0].original.max() > 1, "as bytes: they were black on the contact sheet"


def test_few_samples_are_checked_and_no_fewer_looked_at_than_without_a_check() -> None:
    """With 0 the dataset was blamed; with 1 pictures were said to differ in size, so that nothing moved and nothing was checked."""
    dataset = Pictures(v2.Compose([v2.RandomInvert(1.0), v2.ToImage()]))
    with pytest.raises(BadUsage, match="With 0 samples nothing is checked") as refused:
        pipefix.swap(dataset, check=True, samples=0)
    assert refused.value.advice == "Give at least one: samples=16.", "a flag was named, which refuses 0 by itself"
    result = pipefix.swap(dataset, check=True, samples=1)
    assert result.swap.split.names == pipefix.swap(dataset).swap.split.names == ["RandomInvert", "ToImage"]
    assert result.parity is not None and result.parity.whole is not None and result.parity.whole.pictures == 1


def test_the_run_may_be_named_by_its_folder(tmp_path: Path) -> None:
    """`pipefix show` and `compare` take it, and swap said that it is a directory."""
    gain = GainFigures(value=1.5, low=1.4, high=1.6)
    remedy = RemedyFigures(id="augment-gpu", stage="augment", title="on the GPU", status="proposed", why="", speedup=gain)
    runfile.write(runfile.Run(target="train.py", remedies=[remedy]), tmp_path / "run.json")
    result = pipefix.swap(Pictures(v2.Compose([v2.RandomCrop(8), v2.ToImage()])), run=tmp_path)
    assert result.worth.gain is not None and result.worth.gain.value == 1.5
