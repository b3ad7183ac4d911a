"""Transform lists as people write them; the last operation before the tensor takes up whatever is left of the planted cost.

``amount`` counts rounds of one small piece of real work (about 20 µs), or microseconds of waiting. Random operations
draw from the generators that users' transforms draw from.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import cv2
import numpy as np
import torch
from torchvision import transforms
from torchvision.transforms import v2

SIDE = 40
"""Pixels of the crop that every transform list begins with, so that little crosses the worker's border."""


class Rounds:
    """The dial of one transform list. ``factors`` make some samples dearer than others, by a sample counter."""

    def __init__(self, factors: list[float]) -> None:
        self.amount = 0.0
        self.factors = factors
        self._turn = 0

    def count(self) -> int:
        self._turn += 1
        wanted = self.amount * self.factors[self._turn % len(self.factors)]
        return int(wanted) + ((self._turn * 7919 % 1000) / 1000 < wanted % 1)


class Spectrum:
    """Own code on arrays: filters in the frequency domain."""

    def __init__(self, rounds: Rounds) -> None:
        self.rounds = rounds

    def __call__(self, pixels: Any) -> np.ndarray[Any, Any]:
        values = np.asarray(pixels, dtype=np.float32)
        rows = values.reshape(-1)[: SIDE * SIDE]
        for _ in range(self.rounds.count()):
            rows = np.fft.irfft(np.fft.rfft(rows) * 0.999, n=rows.size).astype(np.float32)
        values.reshape(-1)[: rows.size] = rows
        return values


class Blur:
    """Own code that calls OpenCV."""

    def __init__(self, rounds: Rounds) -> None:
        self.rounds = rounds

    def __call__(self, pixels: Any) -> np.ndarray[Any, Any]:
        values = np.array(pixels)
        for _ in range(self.rounds.count()):
            values = cv2.GaussianBlur(values, (5, 5), 0.4 + random.random() / 10)
        return values


class Jitter:
    """Own code on tensors."""

    def __init__(self, rounds: Rounds) -> None:
        self.rounds = rounds

    def __call__(self, pixels: torch.Tensor) -> torch.Tensor:
        values = pixels.float()
        for _ in range(self.rounds.count()):
            values = (values * (0.999 + 0.002 * torch.rand(()))).clamp_(0, 255)
        return values


class Words:
    """Own code on a record: a vocabulary looked up word by word, in plain Python."""

    def __init__(self, rounds: Rounds) -> None:
        self.rounds = rounds
        self.vocabulary = {number: number * 31 % 997 for number in range(256)}

    def __call__(self, record: dict[str, Any]) -> dict[str, Any]:
        values = (record["values"] * (1 + 256 // len(record["values"])))[:256]
        found = values
        for _ in range(self.rounds.count()):
            found = [self.vocabulary[value] for value in values]
        return {"values": found, "width": record["width"]}


class Pause:
    """An operation that waits for something that is not the CPU."""

    def __init__(self, rounds: Rounds) -> None:
        self.rounds = rounds

    def __call__(self, values: Any) -> Any:
        count = self.rounds.count()
        if count:
            time.sleep(count / 1e6)
        return values


class CropArray:
    def __call__(self, pixels: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        top, left = (random.randrange(max(1, length - SIDE + 1)) for length in pixels.shape[:2])
        return np.ascontiguousarray(pixels[top : top + SIDE, left : left + SIDE])


class PadArray:
    """Pieces smaller than the crop are padded."""

    def __call__(self, pixels: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        missing = [(0, max(0, SIDE - length)) for length in pixels.shape[:2]]
        return np.pad(pixels, (*missing, (0, 0)))


class ToFloat:
    def __call__(self, pixels: np.ndarray[Any, Any]) -> torch.Tensor:
        return torch.from_numpy(np.asarray(pixels, dtype=np.float32).transpose(2, 0, 1) / 255.0)


class ToTokens:
    def __call__(self, record: dict[str, Any]) -> torch.Tensor:
        values = record["values"][:256]
        return torch.tensor(values + [0] * (256 - len(values)))


class Ready:
    """What is left when augmentation was taken out: a sample made beforehand."""

    def __init__(self, transform: Any, values: Any) -> None:
        self.made: torch.Tensor = transform(values)

    def __call__(self, values: Any) -> torch.Tensor:
        return self.made


def _picture(rounds: Rounds, waits: bool) -> list[Any]:
    own = Pause(rounds) if waits else Spectrum(rounds)
    return [transforms.CenterCrop(SIDE), transforms.RandomHorizontalFlip(), own, transforms.Lambda(np.asarray), ToFloat()]


def _jittered(rounds: Rounds, waits: bool) -> list[Any]:
    own = Pause(rounds) if waits else Blur(rounds)
    return [
        transforms.CenterCrop(SIDE),
        transforms.ColorJitter(0.2, 0.2),
        own,
        transforms.ToTensor(),
        transforms.Normalize([0.5] * 3, [0.25] * 3),
    ]


def _array(rounds: Rounds, waits: bool) -> list[Any]:
    return [PadArray(), CropArray(), Pause(rounds) if waits else Blur(rounds), ToFloat()]


def _spectrum(rounds: Rounds, waits: bool) -> list[Any]:
    return [PadArray(), CropArray(), Pause(rounds) if waits else Spectrum(rounds), ToFloat()]


def _tensor(rounds: Rounds, waits: bool) -> list[Any]:
    own = Pause(rounds) if waits else Jitter(rounds)
    return [
        v2.CenterCrop(SIDE),
        v2.RandomHorizontalFlip(),
        v2.ToDtype(torch.float32, scale=True),
        own,
        v2.Normalize([0.5] * 3, [0.25] * 3),
    ]


def _record(rounds: Rounds, waits: bool) -> list[Any]:
    return [Pause(rounds) if waits else Words(rounds), ToTokens()]


LISTS: dict[str, dict[str, Callable[[Rounds, bool], list[Any]]]] = {
    "picture": {"own": _picture, "library": _jittered},
    "array": {"own": _spectrum, "library": _array},
    "tensor": {"own": _tensor, "library": _tensor},
    "record": {"own": _record, "library": _record},
}


def transform_list(flavour: str, style: str, rounds: Rounds, waits: bool) -> Any:
    """A `Compose` for one flavour of decoded samples."""
    compose = v2.Compose if flavour == "tensor" else transforms.Compose
    return compose(LISTS[flavour][style](rounds, waits))
