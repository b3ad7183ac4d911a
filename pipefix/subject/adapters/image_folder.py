"""A bare directory of class folders: read as torchvision's ImageFolder with the usual ImageNet training list."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

from pipefix.subject import failure
from pipefix.vocabulary.errors import TargetError

ASSUMPTION = "the ImageNet training transforms (RandomResizedCrop 224, flip, normalise)"
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def dataset(path: Path) -> Any:
    from torchvision import transforms
    from torchvision.datasets import ImageFolder

    listing = transforms.Compose(
        [
            transforms.RandomResizedCrop(224),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize(MEAN, DEVIATION),
        ]
    )
    try:
        return ImageFolder(str(path), transform=listing)
    except FileNotFoundError as error:
        why = textwrap.shorten(str(error).rstrip("."), failure.LONGEST_MESSAGE, placeholder=" ...")  # it names each folder
        raise TargetError(
            f"The directory {str(path)!r} is not in ImageFolder layout: {why}.",
            advice="It needs one folder a class with images inside, like photos/cat/1.jpg. Otherwise name a Python file: FILE.py.",
        ) from error
