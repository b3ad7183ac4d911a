"""A dataset as people write them, its swap, and the calls of a list on pictures: what a dataset of `pipefix.swap` brings beside a
batch."""

from __future__ import annotations

from typing import Any

from PIL import Image
from torch.utils.data import Dataset

from pipefix.augment.record import Program, RecordedImage, packed
from pipefix.augment.split import split
from pipefix.augment.swap import Swap
from pipefix.augment.transforms import find, parts_of
from pipefix.vocabulary.random_state import seeded
from tests.augment.lists import pictures


class Pictures(Dataset[Any]):
    def __init__(self, transform: Any, name: str = "transform") -> None:
        self.images = [Image.fromarray(image.permute(1, 2, 0).numpy()) for image in pictures(12, 40, 50)]
        setattr(self, name, transform)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Any:
        return self.transform(self.images[index]), index


def swapped(dataset: Any, target: str = "kornia", **settings: Any) -> Swap:
    place = find(dataset)
    assert place is not None
    return Swap(split(place.value, target, **settings), place)


def calls_of(transform: Any, images: Any, leaves: int = 1) -> list[bytes]:
    samples = []
    for seed, image in enumerate(images):
        recorded = RecordedImage.of(tuple(image.shape), image.dtype, from_pil=False)
        sample = recorded
        with seeded(seed):
            for place, part in enumerate(parts_of(transform)):
                recorded.place[0] = place
                sample = part.recorded(sample)  # type: ignore[misc]
        samples.append(packed(Program(recorded.calls, tuple(image.shape), place=0, leaves=leaves)))
    return samples
