"""The written file can be imported and edited, and gives what the swap's own module gives."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from torchvision import transforms as v1
from torchvision.transforms import v2

from pipefix.augment import kornia, tensor
from pipefix.augment.split import split
from pipefix.augment.translate import translate
from pipefix.augment.write import code
from tests.augment.lists import ALL, pictures

PROGRAM = """
import sys, torch
sys.path.insert(0, {folder!r})
import augment
images = torch.load({images!r})
{use}
torch.save(found, {out!r})
"""
SIZED = ("CenterCrop", "RandomCrop", "Resize")
EVERYTHING = [v2.RandomCrop(60), *(one for name, one in ALL.items() if name.split()[0] not in (*SIZED, "Grayscale", "ToDtype"))]


def run(python: list[str], folder: Path, text: str, images: torch.Tensor, use: str) -> Any:
    """What a program makes of the pictures that imports the written file as ``augment``."""
    given, out = folder / "in.pt", folder / "out.pt"
    (folder / "augment.py").write_text(text)
    torch.save(images, given)
    program = PROGRAM.format(folder=str(folder), images=str(given), out=str(out), use=use)
    done = subprocess.run([*python, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return torch.load(out)


@pytest.mark.parametrize("target", [kornia, tensor])
@pytest.mark.parametrize("listed", [[v1.RandomHorizontalFlip(), v1.ColorJitter(0.2, 0.3, 0.1, 0.05), v1.ToTensor()], EVERYTHING])
def test_modules(target: Any, listed: list[Any], tmp_path: Path, preloaded: str) -> None:
    cut = split(translate(listed), target.__name__.rpartition(".")[2], same_size=True)
    images = pictures(8, 64, 64)
    found = run(preloaded.split(), tmp_path, code(cut, seed=3), images, "found = augment.augmentation()(images, epoch=1)")
    assert torch.equal(found, target.augmentation(cut.ops, seed=3)(images, epoch=1))


def test_it_goes_on_from_the_operations_that_stay(tmp_path: Path, preloaded: str) -> None:
    """Numbers belong to an operation's place in the whole list, so that a flip after a crop is the same flip in both."""
    cut = split(translate([v1.RandomResizedCrop(8), v1.RandomInvert()]), "kornia")
    images = pictures(16, 8, 8)
    found = run(preloaded.split(), tmp_path, code(cut, seed=1), images, "found = augment.augmentation()(images)")
    assert torch.equal(found, kornia.augmentation(cut.ops, seed=1, first=1)(images))


@pytest.mark.parametrize("last", [v1.Normalize((0.5,) * 3, (0.2,) * 3), v1.RandomApply([v1.ColorJitter(hue=0.1)])])
def test_dali(last: Any, tmp_path: Path, preloaded: str) -> None:
    """What DALI does not compute (hue) is done by Kornia's module, as in the swap's own loader."""
    pytest.importorskip("nvidia.dali")
    from pipefix.augment.hold import _png
    from pipefix.augment.swap import dali_loader

    listed = [v1.RandomResizedCrop(32), v1.RandomHorizontalFlip(), v1.ColorJitter(0.2), v1.ToTensor(), last]
    cut = split(translate(listed), "dali")
    files = []
    for place, one in enumerate(pictures(4, 60, 70)):
        files.append(tmp_path / f"{place}.png")
        files[-1].write_bytes(_png(one))
    names = [str(file) for file in files]
    use = f"found = torch.cat([images.clone() for images, _ in augment.batches({names!r}, batch_size=3)])"
    found = run(preloaded.split(), tmp_path, code(cut, seed=2), torch.zeros(1), use)
    assert torch.equal(found, torch.cat([images.clone() for images, _ in dali_loader(names, cut.ops, batch_size=3, seed=2)]))


def test_operations_that_touch_boxes_only_are_written_too() -> None:
    cut = split(
        translate([v2.ConvertBoundingBoxFormat("CXCYWH"), v2.ClampBoundingBoxes(), v2.RandomInvert()]), "kornia", same_size=True
    )
    written: dict[str, Any] = {}
    exec(code(cut), written)
    assert written["OPS"] == cut.ops


def test_settings_that_cannot_be_written_are_told() -> None:
    cut = split(translate([v2.SanitizeBoundingBoxes(labels_getter=lambda sample: sample)]), "kornia", same_size=True)
    with pytest.raises(ValueError, match="OfBoxes has settings that cannot be written down"):
        code(cut)


def test_it_says_what_stays_in_the_dataset() -> None:
    text = code(split(translate([v1.RandomResizedCrop(8), v1.RandomInvert()]), "kornia"), name="train.py:loader")
    assert "In the dataset these stay, followed by the step to a tensor of bytes:\n\n    RandomResizedCrop\n" in text
    assert "The augmentation of train.py:loader as one module" in text
