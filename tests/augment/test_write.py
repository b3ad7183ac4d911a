"""The written code stands alone: it runs where there is no pipefix, and gives what the module gives."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torchvision import transforms as v1
from torchvision.transforms import v2

from pipefix.augment import kornia
from pipefix.augment.split import split
from pipefix.augment.translate import translate
from pipefix.augment.write import code
from tests.augment.lists import ALL, pictures

PROGRAM = """
import importlib.util, sys, torch
class Wall:
    def find_spec(self, name, path=None, target=None):
        assert not name.startswith("pipefix"), name
sys.meta_path.insert(0, Wall())
sys.path = [one for one in sys.path if one not in ("", {root!r})]
spec = importlib.util.spec_from_file_location("written", {file!r})
written = importlib.util.module_from_spec(spec)
sys.modules["written"] = written
spec.loader.exec_module(written)
images = torch.load({images!r})
{use}
torch.save(found, {out!r})
assert not any(name.split(".")[0] == "pipefix" for name in sys.modules)
"""
SIZED = ("CenterCrop", "RandomCrop", "Resize")
EVERYTHING = [v2.RandomCrop(60), *(one for name, one in ALL.items() if name.split()[0] not in (*SIZED, "Grayscale", "ToDtype"))]


def run(folder: Path, text: str, images: torch.Tensor, use: str, root: Path) -> Any:
    file, given, out = folder / "augment.py", folder / "in.pt", folder / "out.pt"
    file.write_text(text)
    torch.save(images, given)
    program = PROGRAM.format(root=str(root), file=str(file), images=str(given), out=str(out), use=use)
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, env={"PATH": "/usr/bin:/bin"}
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return torch.load(out)


@pytest.mark.parametrize("listed", [[v1.RandomHorizontalFlip(), v1.ColorJitter(0.2, 0.3, 0.1, 0.05), v1.ToTensor()], EVERYTHING])
def test_kornia(listed: list[Any], tmp_path: Path, root: Path) -> None:
    cut = split(translate(listed), "kornia", same_size=True)
    text = code(cut, "kornia", seed=3)
    images = pictures(8, 64, 64)
    found = run(tmp_path, text, images, "found = written.augmentation()(images, epoch=1)", root)
    expected = kornia.augmentation(cut.ops, seed=3)(images, epoch=1)
    assert torch.equal(found, expected)


def test_a_short_list_makes_a_short_file() -> None:
    """Only what the list needs is in it."""
    text = code(split(translate([v1.RandomHorizontalFlip(), v1.ToTensor()]), "kornia", same_size=True), "kornia")
    assert "def hflip" in text
    assert "perspective" not in text
    assert "class RandAugment" not in text
    ast.parse(text)


def test_dali(tmp_path: Path, root: Path) -> None:
    pytest.importorskip("nvidia.dali")
    from pipefix.augment.hold import _png

    listed = [
        v1.RandomResizedCrop(32),
        v1.RandomHorizontalFlip(),
        v1.ColorJitter(0.2),
        v1.ToTensor(),
        v1.Normalize((0.5,) * 3, (0.2,) * 3),
    ]
    cut = split(translate(listed), "dali")
    files = []
    for place, one in enumerate(pictures(4, 60, 70)):
        files.append(tmp_path / f"{place}.png")
        files[-1].write_bytes(_png(one))
    names = [str(file) for file in files]
    use = f"found = torch.cat([images.clone() for images, _ in written.batches({names!r}, batch_size=3)])"
    found = run(tmp_path, code(cut, "dali", seed=2), torch.zeros(1), use, root)
    from pipefix.augment.dali_plan import loader

    assert torch.equal(found, torch.cat([images.clone() for images, _ in loader(names, cut.ops, batch_size=3, seed=2)]))


def test_dali_alone_cannot_be_written_for_what_it_leaves() -> None:
    pytest.importorskip("nvidia.dali")
    cut = split(translate([v1.RandomResizedCrop(8), v1.ColorJitter(hue=0.1)]), "dali")
    with pytest.raises(ValueError, match="DALI does not compute ColorJitter"):
        code(cut, "dali")


def test_tensor(tmp_path: Path, root: Path) -> None:
    cut = split(translate([*EVERYTHING, v2.JPEG((50, 60))]), "tensor", same_size=True)
    text = code(cut, "tensor")
    images = pictures(3, 64, 64)
    found = run(tmp_path, text, images, "torch.manual_seed(1)\nfound = written.augment(images)", root)
    torch.manual_seed(1)
    assert torch.equal(found, torch.stack([v2.Compose([*EVERYTHING, v2.JPEG((50, 60))])(image) for image in images]))


def test_it_says_what_stays_in_the_dataset() -> None:
    text = code(split(translate([v1.RandomResizedCrop(8), v1.RandomInvert()]), "kornia"), "kornia")
    assert "In the dataset these stay, followed by the step to a tensor of bytes:\n\n    RandomResizedCrop" in text
