"""Decoding no further than the list asks changes no byte of a sample, and what the kernel does not read goes the usual way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

from pipefix.augment import encoded
from pipefix.augment.encoded import Encoded
from pipefix.augment.split import split
from pipefix.augment.swap import Swap, find
from pipefix.augment.translate import translate
from pipefix.kernels.kernel import Absent, native

needs_native = pytest.mark.skipif(isinstance(native(), Absent), reason="the native kernel is not built here")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Pictures of every kind that folders hold."""
    place = tmp_path / "pictures" / "one"
    place.mkdir(parents=True)
    rng = np.random.default_rng(3)
    for number, (height, width) in enumerate([(61, 80), (80, 61), (33, 33), (130, 47)]):
        pixels = np.asarray(Image.fromarray(rng.integers(0, 256, (9, 7, 3), dtype=np.uint8)).resize((width, height)))
        picture = Image.fromarray(pixels)
        picture.save(place / f"{number}-fine.jpg", quality=92, subsampling=0)
        picture.save(place / f"{number}-usual.jpg", quality=80)
        picture.save(place / f"{number}-progressive.jpg", progressive=True)
        picture.convert("L").save(place / f"{number}-grey.jpg")
        picture.convert("CMYK").save(place / f"{number}-ink.jpg")
        picture.save(place / f"{number}-lossless.png")
    return place.parent


LISTS: dict[str, list[Any]] = {
    "crop": [v2.RandomResizedCrop(24)],
    "bicubic crop": [v2.RandomResizedCrop((20, 28), interpolation=v2.InterpolationMode.BICUBIC)],
    "nearest crop": [v2.RandomResizedCrop(24, interpolation=v2.InterpolationMode.NEAREST)],
    "crop without antialiasing": [v2.RandomResizedCrop(24, antialias=False)],
    "resize": [v2.Resize((20, 30))],
    "shorter side, then a crop": [v2.Resize(28), v2.RandomCrop(24)],
    "flip, then a crop": [v2.RandomHorizontalFlip(), v2.RandomResizedCrop(24)],
    "perhaps a crop": [v2.RandomApply([v2.RandomResizedCrop(30)], 0.5), v2.Resize((24, 24))],
    "padding crop": [v2.RandomCrop(100, pad_if_needed=True)],
}


def samples(folder: Path, listed: list[Any]) -> list[torch.Tensor]:
    data = ImageFolder(folder, v2.Compose([*listed, v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]))
    place = find(data)
    assert place is not None
    dataset = Swap(split(translate(place.transform), "tensor"), place, 5).dataset(data)
    dataset.set_epoch(1)
    return [dataset[index][0] for index in range(len(dataset))]


@needs_native
@pytest.mark.parametrize("name", LISTS)
def test_not_a_byte_differs(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = samples(folder, LISTS[name])
    monkeypatch.setattr(encoded, "_kernel", lambda: None)
    usual = samples(folder, LISTS[name])
    for one, other in zip(ours, usual, strict=True):
        assert one.dtype == other.dtype == torch.uint8
        assert torch.equal(one, other)


@needs_native
@pytest.mark.parametrize(
    ("name", "expected"), [("crop", 16), ("resize", 16), ("crop without antialiasing", 0), ("flip, then a crop", 8)]
)
def test_the_kernel_makes_what_it_can(folder: Path, name: str, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    begun = Encoded.begun

    def counted(self: Encoded, step: str, values: dict[str, Any]) -> torch.Tensor | None:
        found = begun(self, step, values)
        made.append(found is not None)
        return found

    monkeypatch.setattr(Encoded, "begun", counted)
    monkeypatch.setattr(encoded, "resizes_bytes", lambda filter: True)
    samples(folder, LISTS[name])
    # Of six kinds four are plain JPEGs; where a flip came first, its half of them is decoded whole.
    assert sum(made) == pytest.approx(expected, abs=0 if name != "flip, then a crop" else 6)


@needs_native
def test_where_torchvision_resizes_floats_pictures_are_decoded_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoded, "resizes_bytes", lambda filter: False)
    picture = encoded.opened(folder / "one" / "0-usual.jpg")
    assert isinstance(picture, Encoded)
    assert picture.begun("resize", {"height": 20, "width": 30, "interpolation": "bilinear", "antialias": True}) is None


@needs_native
def test_a_damaged_file_raises_what_the_usual_decoder_raises(tmp_path: Path) -> None:
    place = tmp_path / "one"
    place.mkdir()
    whole = tmp_path / "whole.jpg"
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)).save(whole)
    (place / "torn.jpg").write_bytes(whole.read_bytes()[:700])
    with pytest.raises(OSError, match="truncated"):
        samples(tmp_path, LISTS["crop"])


def test_without_the_kernel_pictures_are_decoded_at_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoded, "_kernel", lambda: None)
    found = encoded.opened(folder / "one" / "0-usual.jpg")
    assert isinstance(found, torch.Tensor)
    assert found.shape == (3, 61, 80)


@needs_native
def test_a_subclass_that_looks_at_its_pictures_gets_tensors(folder: Path) -> None:
    class Looks(ImageFolder):
        def __getitem__(self, index: int) -> Any:
            image, label = self.loader(self.samples[index][0]), self.samples[index][1]
            assert isinstance(image, torch.Tensor)
            return self.transform(image), label  # type: ignore[misc]

    data = Looks(folder, v2.Compose([v2.RandomResizedCrop(24), v2.ToImage()]))
    place = find(data)
    assert place is not None
    assert Swap(split(translate(place.transform), "tensor"), place).dataset(data)[0][0].shape == (3, 24, 24)
