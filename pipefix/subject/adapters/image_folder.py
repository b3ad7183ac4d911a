"""A bare directory of class folders: read as torchvision's ImageFolder with the usual ImageNet training list."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pipefix.vocabulary.errors import TargetError

ASSUMPTION = "the ImageNet training transforms (RandomResizedCrop 224, flip, normalise)"
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def dataset(path: Path) -> Any:
    from torchvision import transforms
    from torchvision.datasets import ImageFolder

    _check_layout(path)
    listing = transforms.Compose(
        [
            transforms.RandomResizedCrop(224),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize(MEAN, DEVIATION),
        ]
    )
    return ImageFolder(str(path), transform=listing)


def _check_layout(path: Path) -> None:
    """Refuse what ImageFolder would refuse, at the first folder without a picture: it goes through all others before it says so."""
    from torchvision.datasets.folder import IMG_EXTENSIONS

    classes = sorted(entry.path for entry in os.scandir(path) if entry.is_dir())
    if not classes:
        raise _not_in_layout(path, "it holds no folders")
    for folder in classes:
        names = (name for _, _, names in os.walk(folder, followlinks=True) for name in names)
        if not any(name.lower().endswith(IMG_EXTENSIONS) for name in names):
            raise _not_in_layout(path, f"no picture lies in its folder {os.path.basename(folder)!r}")


def _not_in_layout(path: Path, why: str) -> TargetError:
    return TargetError(
        f"The directory {str(path)!r} is not in ImageFolder layout: {why}.",
        advice="It needs one folder a class with images inside, like photos/cat/1.jpg. Otherwise name a Python file: FILE.py.",
    )
