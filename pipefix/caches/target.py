"""A cache as the thing that is probed or converted: pictures get the usual training transforms, the rest is taken as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from pipefix.caches import layout, pictures
from pipefix.caches.dataset import CachedDataset
from pipefix.caches.pictures import is_image
from pipefix.caches.record import Picture

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def dataset(path: Path) -> Any:
    """The dataset of a cache's directory; None where the directory is something else."""
    if not (path / layout.MANIFEST).is_file():
        return None
    found = CachedDataset(path, images="tensor")
    if not len(found):
        return found
    first = found[0]
    if found.manifest.recipe.store == "source":
        return _FirstPicture(found) if _picture(first) is not None else found
    parts = first.values() if isinstance(first, dict) else first if isinstance(first, (tuple, list)) else [first]
    if sum(is_image(part) for part in parts) == 1:
        found = CachedDataset(path, images="tensor", transform=training())
    return found


def training() -> Any:
    """The ImageNet training transforms, on tensors."""
    from torchvision.transforms import v2  # takes as long to import as torch: only where a cache of pictures is the target

    return v2.Compose(
        [
            v2.RGB(),
            v2.RandomResizedCrop(224, antialias=True),
            v2.RandomHorizontalFlip(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(MEAN, DEVIATION),
        ]
    )


class _FirstPicture(torch.utils.data.Dataset[Any]):
    """Of files: the first picture among them, decoded and transformed."""

    def __init__(self, cached: CachedDataset) -> None:
        self.cached = cached
        self.transform = training()

    def __len__(self) -> int:
        return len(self.cached)

    def __getitem__(self, index: int) -> Any:
        picture = _picture(self.cached[index])
        if picture is None:
            raise ValueError(f"sample {index} read no picture")
        return self.transform(pictures.picture_as("tensor")(picture))


def _picture(files: dict[str, bytes]) -> Picture | None:
    import io

    from PIL import Image

    for data in files.values():
        kind = pictures.kind_of(data[:16])
        if kind in ("jpeg", "png", "webp"):
            with Image.open(io.BytesIO(data)) as image:
                return Picture(data, kind, *image.size, "tensor")
    return None
