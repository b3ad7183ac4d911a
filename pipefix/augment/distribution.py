"""Whether a transform and the operations it was read as give results of the same distribution: many results of both, compared.

The user's own transform draws from PyTorch's generator and runs as it is; ours draws its own numbers. What could differ is a
parameter that was read wrongly. Figures of the results show it: where a crop lies, how wide it is, how it is turned, how bright.
"""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from pipefix.augment import tensor
from pipefix.augment.operation import Op

FALSE_ALARM = 1e-4
"""How often two equal distributions are told to differ, all figures of a transform together."""


@dataclass(frozen=True)
class Compared:
    """One figure of the results, or one parameter, both ways."""

    parameter: str
    ours: tuple[float, float, float, float]
    """Least, greatest, mean, standard deviation."""
    theirs: tuple[float, float, float, float]
    p: float
    """Of the two-sample Kolmogorov-Smirnov test."""

    def alike(self, tests: int, false_alarm: float = FALSE_ALARM) -> bool:
        return self.p >= false_alarm / max(tests, 1)


def compared(
    transform: Any, listed: Sequence[Op], *, count: int, size: tuple[int, int, int] = (3, 24, 32), seed: int = 0
) -> list[Compared]:
    """``count`` results of ``transform`` (torchvision's) and of the operations it was read as, from one picture of that size."""
    picture = _picture(size)
    augment = tensor.augmentation(listed, seed=seed)
    with _undisturbed(seed + 1):
        theirs = np.stack([_figures(transform(picture.clone())) for _ in range(count)])
        results = augment.run([picture] * count, augment.steps([size] * count, np.arange(count)))
    ours = np.stack([_figures(result) for result in results])
    return [compare(name, ours[:, column], theirs[:, column]) for column, name in enumerate(_NAMES)]


@contextlib.contextmanager
def _undisturbed(seed: int) -> Iterator[None]:
    """Generators seeded, and put back afterwards; one thread, since pictures as small as these cost threads more than they gain."""
    threads, state = torch.get_num_threads(), random.getstate()
    with torch.random.fork_rng(devices=[]):
        torch.set_num_threads(1)
        random.seed(seed)
        torch.manual_seed(seed)
        try:
            yield
        finally:
            torch.set_num_threads(threads)
            random.setstate(state)


def compare(name: str, ours: Any, theirs: Any) -> Compared:
    return Compared(name, _moments(ours), _moments(theirs), two_sample(ours, theirs))


def two_sample(ours: Any, theirs: Any) -> float:
    """How likely so large a difference between two samples of one distribution is; a bound where values repeat."""
    if not len(ours) or not len(theirs):
        return 1.0 if len(ours) == len(theirs) else 0.0
    # What arithmetic in single and in double precision tells apart is no difference.
    scale = max(float(np.abs(ours).max()), float(np.abs(theirs).max()), 1e-12)
    ours, theirs = np.sort(np.round(ours / scale, 6)), np.sort(np.round(theirs / scale, 6))
    every = np.concatenate([ours, theirs])
    shares = [np.searchsorted(values, every, "right") / len(values) for values in (ours, theirs)]
    gap = float(np.abs(shares[0] - shares[1]).max())
    pooled = len(ours) * len(theirs) / (len(ours) + len(theirs))
    x = (math.sqrt(pooled) + 0.12 + 0.11 / math.sqrt(pooled)) * gap
    if x < 0.2:
        return 1.0
    return min(1.0, max(0.0, 2 * sum((-1) ** (k - 1) * math.exp(-2 * k * k * x * x) for k in range(1, 101))))


def _moments(values: Any) -> tuple[float, float, float, float]:
    if not len(values):
        return (math.nan,) * 4
    return (float(values.min()), float(values.max()), float(values.mean()), float(values.std()))


def _picture(size: tuple[int, int, int]) -> torch.Tensor:
    """Brighter to the right in the first channel and downwards in the second, with stripes in the last: no two places are alike."""
    channels, height, width = size
    down, across = torch.meshgrid(torch.linspace(0, 1, height), torch.linspace(0, 1, width), indexing="ij")
    planes = [30 + 180 * across, 40 + 190 * down, 128 + 60 * torch.sin(40 * across * down + 9 * across)]
    return torch.stack([planes[channel % 3] for channel in range(channels)]).to(torch.uint8)


_NAMES = (
    "brightness", "contrast", "first channel", "second channel", "left to right", "top to bottom",
    "second left to right", "fine detail",
)  # fmt: skip


def _figures(result: torch.Tensor) -> Any:
    """What tells results apart, a number for each of the names."""
    image = np.asarray(result, dtype=np.float64)
    height, width = image.shape[-2:]
    across, down = np.linspace(-1, 1, width), np.linspace(-1, 1, height)
    first, second = image[0], image[min(1, len(image) - 1)]
    detail = np.abs(np.diff(image, axis=-1)).mean() if width > 1 else 0.0
    return np.asarray([
        image.mean(), image.std() / (1 + abs(image.mean())), first.mean(), second.mean(), (first.mean(axis=0) * across).mean(),
        (second.mean(axis=1) * down).mean(), (second.mean(axis=0) * across).mean(), detail,
    ])  # fmt: skip
