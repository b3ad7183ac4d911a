"""torchvision's own functions, each sample by itself: for threads on the CPU, and for devices without Kornia."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch

from pipefix.augment.augment import Augment, Images
from pipefix.augment.operation import Op
from pipefix.augment.single import SINGLE
from pipefix.augment.steps import DrawnStep, programs_of


class Singly(Augment):
    """An `Augment` that does each sample by itself: on the CPU a picture stays in the cache from one step to the next."""

    def __init__(self, ops: Iterable[Op], *, threads: int = 0, **settings: Any) -> None:
        """``threads`` beside the caller; pictures are shared out among them."""
        super().__init__(ops, kernels=SINGLE, **settings)
        self.threads = threads
        self._pool: ThreadPoolExecutor | None = None

    def run(self, images: Images, steps: list[DrawnStep]) -> Images:
        upto = next((place for place, step in enumerate(steps) if step.name in ("mix_up", "cut_mix")), len(steps))
        own, last = _ending(steps[:upto], len(images))
        programs = programs_of(own, len(images))
        pairs = list(zip(images, programs, strict=True))
        done = list(self._mapped(lambda pair: self.one(*pair), pairs))
        alike = len({(one.shape, one.dtype) for one in done}) == 1
        if last and alike and done[0].dtype == torch.uint8:
            return super().run(self._normalized(done, *last), steps[upto:])
        done = [self.one(picture, [(step, 0) for step in last]) for picture in done]
        return super().run(torch.stack(done) if alike else done, steps[upto:])

    def _normalized(self, done: list[torch.Tensor], convert: DrawnStep, normalize: DrawnStep) -> torch.Tensor:
        """Bytes to normalised floating point straight into the batch: torchvision's arithmetic, without a copy for each step."""
        out = torch.empty((len(done), *done[0].shape), dtype=getattr(torch, convert.fixed["dtype"]), device=done[0].device)
        mean, std = (
            torch.as_tensor(normalize.fixed[key], dtype=out.dtype, device=out.device).view(-1, 1, 1) for key in ("mean", "std")
        )

        def fill(place: int) -> None:
            out[place].copy_(done[place]).mul_(1 / 255).sub_(mean).div_(std)

        for _ in self._mapped(fill, list(range(len(done)))):
            pass
        return out

    def one(self, sample: Any, program: list[tuple[DrawnStep, int]]) -> Any:
        """A sample (a tensor, or a picture of PIL) through its own steps."""
        for step, position in program:
            if step.name == "blend":
                sample = self._blend_one(sample, step, position)
            else:
                sample = self._kernels[step.name](sample, **step.scalars(position))
        return sample

    def _blend_one(self, sample: torch.Tensor, step: DrawnStep, position: int) -> torch.Tensor:
        weights = step.values["weights"][position].tolist()
        row = int(step.rows[position])
        mixed = sample * weights[0]
        for weight, steps in zip(weights[1:], step.fixed["chains"], strict=True):
            own = [(one, int(place)) for one in steps for place in np.flatnonzero(one.rows == row)]
            mixed = mixed + self.one(sample, own) * weight
        return mixed.to(sample.dtype)

    def _mapped(self, work: Callable[[Any], Any], things: list[Any]) -> Iterable[Any]:
        if not self.threads or len(things) < 2:
            return map(work, things)
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.threads, thread_name_prefix="pipefix-augment")
        return self._pool.map(work, things)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pool": None}


def _ending(steps: list[DrawnStep], count: int) -> tuple[list[DrawnStep], list[DrawnStep]]:
    """The steps, and apart from them the usual end of a list: to [0, 1], then normalised, for every sample."""
    steps = [step for step in steps if step.name not in ("to_tensor", "of_boxes")]
    usual = [step.name for step in steps[-2:]] == ["to_dtype", "normalize"] and all(len(step.rows) == count for step in steps[-2:])
    if usual and steps[-2].fixed["scale"] and steps[-2].fixed["dtype"] == "float32":
        return steps[:-2], steps[-2:]
    return steps, []


def augmentation(listed: Iterable[Op], *, threads: int = 0, **settings: Any) -> Singly:
    """The module of the target ``tensor``."""
    return Singly(listed, threads=threads, **settings)
