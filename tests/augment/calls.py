"""The calls of a list on pictures, each with a seed of its own: what a dataset of `pipefix.swap` brings beside a batch."""

from __future__ import annotations

from typing import Any

from pipefix.augment.record import Program, RecordedImage, packed
from pipefix.augment.transforms import parts_of
from pipefix.vocabulary.random_state import seeded


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
