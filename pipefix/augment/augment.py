"""The augmentation as one module for whole batches: draws each sample's parameters, runs the steps, and lets the labels follow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import nn

from pipefix.augment.batch import Batch, mixed_labels
from pipefix.augment.draw import Draws, draw_list
from pipefix.augment.ops import Op
from pipefix.augment.steps import Frame, Step
from pipefix.augment.stream import Stream, keys_of

Images: TypeAlias = "torch.Tensor | list[torch.Tensor]"
Kernels: TypeAlias = Mapping[str, Callable[..., Any]]

KEYS = frozenset({"key"})
"""Values that stay on the host: they seed generators."""


class Augment(nn.Module):
    """Call it with a batch as the loader gives it, on the device where its tensors are; it gives the same batch, augmented.

    A sample's random numbers depend on ``seed``, the epoch and its index alone. Without indices its position in the epoch counts,
    so call ``set_epoch`` at the beginning of each (or give ``index``: the dataset's indices of the batch).
    """

    def __init__(
        self,
        ops: Iterable[Op],
        *,
        kernels: Kernels,
        draws: Draws,
        followers: Callable[[Batch, list[Step]], Any] | None = None,
        seed: int = 0,
        dtype: torch.dtype | None = None,
        channels_last: bool = False,
        rank: int = 0,
        first: int = 0,
    ) -> None:
        """``followers`` moves boxes, points and masks with their pictures; without it they are passed on as they are.

        ``dtype`` replaces that of floating-point results (float16, bfloat16). ``rank`` keeps processes without indices apart.

        ``first`` is the place of the first operation in the whole list, where others stay before it.
        """
        super().__init__()
        self.ops = tuple(ops)
        self.seed, self.rank, self.epoch, self.seen = seed, rank, 0, 0
        self.dtype, self.channels_last, self.first = dtype, channels_last, first
        self._kernels, self._draws, self._followers = dict(kernels), draws, followers

    def set_epoch(self, epoch: int) -> None:
        """Begin an epoch: its numbers differ from those of any other."""
        self.epoch, self.seen = epoch, 0

    def get_extra_state(self) -> dict[str, int]:
        return {"seed": self.seed, "epoch": self.epoch, "seen": self.seen}

    def set_extra_state(self, state: dict[str, int]) -> None:
        self.seed, self.epoch, self.seen = state["seed"], state["epoch"], state["seen"]

    @torch.compiler.disable
    def forward(self, given: Any, *, index: Any = None, epoch: int | None = None) -> Any:
        batch = Batch.of(given)
        images = batch.images
        steps = self.steps(_sizes(images), self._index(index, len(images)), epoch)
        with torch.autocast(_device(images).type, enabled=False):
            batch.images = self._finished(self.run(images, steps))
        for step in steps:
            if step.name in ("mix_up", "cut_mix") and batch.labels is not None:
                labels = batch.leaves[batch.labels]
                batch.leaves[batch.labels] = mixed_labels(labels, step.fixed["share"], step.fixed["num_classes"])
        return self._followers(batch, steps) if self._followers is not None else batch.whole()

    def steps(self, sizes: Any, index: Any, epoch: int | None = None) -> list[Step]:
        """What is drawn for samples of these sizes (channels, height, width) and indices."""
        stream = Stream(keys_of(self.seed, self.epoch if epoch is None else epoch, index))
        return draw_list(self.ops, stream, Frame.of(sizes), self._draws, first=self.first)

    def run(self, images: Images, steps: list[Step]) -> Images:
        """The steps, one after the other, each on all of its samples at once."""
        for step in steps:
            if len(step.rows):
                images = self._step(images, step)
        return images

    def _index(self, index: Any, count: int) -> Any:
        if index is None:
            position = np.arange(self.seen, self.seen + count, dtype=np.int64)
            self.seen += count
            # The upper bits tell processes apart that count for themselves.
            return position + (np.int64(self.rank) << np.int64(40))
        numbers = index.cpu().numpy() if isinstance(index, torch.Tensor) else np.asarray(index)
        if len(numbers) != count:
            raise ValueError(f"There are {len(numbers)} indices for {count} pictures.")
        return numbers

    def _finished(self, images: Images) -> Images:
        if isinstance(images, list):
            return [self._finished(one[None])[0] for one in images]
        if self.dtype is not None and images.is_floating_point():
            images = images.to(self.dtype)
        return images.contiguous(memory_format=torch.channels_last) if self.channels_last else images

    # -- one step ------------------------------------------------------------------------------------------------------

    def _step(self, images: Images, step: Step) -> Images:
        if step.name == "of_boxes":
            return images
        if isinstance(images, list):
            return self._on_list(images, step)
        if step.name == "blend":
            return self._blend(images, step)
        if step.name == "mix_up":
            share = step.fixed["share"]
            return images.roll(1, 0) * (1 - share) + images * share
        if step.name == "cut_mix":
            left, top, right, bottom = step.fixed["box"]
            out = images.clone()
            out[..., top:bottom, left:right] = images.roll(1, 0)[..., top:bottom, left:right]
            return out
        if _several_sizes(step):
            return self._on_list(list(images), step)
        if len(step.rows) == len(images):
            return self._call(step, images)
        rows = torch.from_numpy(step.rows).to(images.device)
        part = images[rows]
        changed = self._call(step, part)
        if changed.shape != part.shape or changed.dtype != part.dtype:
            return self._on_list(list(images), step)
        return images.index_copy(0, rows, changed)

    def _call(self, step: Step, images: torch.Tensor) -> torch.Tensor:
        values = {
            key: value if key in KEYS else torch.as_tensor(value).to(images.device, non_blocking=True)
            for key, value in step.values.items()
        }
        result: torch.Tensor = self._kernels[step.name](images, **values, **step.fixed)
        return result

    def _on_list(self, images: list[torch.Tensor], step: Step) -> Images:
        """Pictures of several sizes, one by one; a tensor again as soon as all are alike."""
        new = list(images)
        for position, row in enumerate(step.rows):
            alone = step.only(position)
            new[row] = self._step(new[row][None], Step(alone.name, np.zeros(1, np.int64), alone.values, alone.fixed))[0]
        alike = {(one.shape, one.dtype) for one in new}
        return torch.stack(new) if len(alike) == 1 else new

    def _blend(self, images: torch.Tensor, step: Step) -> torch.Tensor:
        weights = torch.from_numpy(step.values["weights"]).to(images.device, torch.float32)
        whole = torch.zeros((len(images), weights.shape[1]), device=images.device)
        rows = torch.from_numpy(step.rows).to(images.device)
        whole[rows] = weights
        whole[:, 0] += 1 - whole.sum(dim=1)
        mixed = images * whole[:, 0].view(-1, 1, 1, 1)
        for chain, steps in enumerate(step.fixed["chains"], 1):
            moved = self.run(images, list(steps))
            assert isinstance(moved, torch.Tensor)
            mixed = mixed + moved * whole[:, chain].view(-1, 1, 1, 1)
        return mixed.to(images.dtype)


class Singly(Augment):
    """The same, each sample by itself: for the CPU, where a picture stays in the cache from one step to the next."""

    def __init__(self, ops: Iterable[Op], *, threads: int = 0, **settings: Any) -> None:
        """``threads`` beside the caller; pictures are shared out among them."""
        super().__init__(ops, **settings)
        self.threads = threads
        self._pool: ThreadPoolExecutor | None = None

    def run(self, images: Images, steps: list[Step]) -> Images:
        upto = next((place for place, step in enumerate(steps) if step.name in ("mix_up", "cut_mix")), len(steps))
        own, last = _ending(steps[:upto], len(images))
        programs = programs_of(own, len(images))
        pairs = list(zip(images, programs, strict=True))
        done = list(self._mapped(lambda pair: self.one(*pair), pairs))
        alike = len({(one.shape, one.dtype) for one in done}) == 1
        if last and alike and done[0].dtype == torch.uint8:
            return super().run(self._normalized(done, *last), steps[upto:])
        done = [self.one(one, [(step, 0) for step in last]) for one in done]
        return super().run(torch.stack(done) if alike else done, steps[upto:])

    def _normalized(self, done: list[torch.Tensor], convert: Step, normalize: Step) -> torch.Tensor:
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

    def one(self, sample: Any, program: list[tuple[Step, int]]) -> Any:
        """A sample (a tensor, or a picture of PIL) through its own steps."""
        for step, position in program:
            if step.name == "blend":
                sample = self._blend_one(sample, step, position)
            else:
                sample = self._kernels[step.name](sample, **step.scalars(position))
        return sample

    def _blend_one(self, sample: torch.Tensor, step: Step, position: int) -> torch.Tensor:
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


def programs_of(steps: list[Step], count: int) -> list[list[tuple[Step, int]]]:
    """For each sample its steps, and its position in each."""
    programs: list[list[tuple[Step, int]]] = [[] for _ in range(count)]
    for step in steps:
        if step.name != "of_boxes":
            for position, row in enumerate(step.rows):
                programs[row].append((step, position))
    return programs


def _ending(steps: list[Step], count: int) -> tuple[list[Step], list[Step]]:
    """The steps, and apart from them the usual end of a list: to [0, 1], then normalised, for every sample."""
    steps = [step for step in steps if step.name not in ("to_tensor", "of_boxes")]
    usual = [step.name for step in steps[-2:]] == ["to_dtype", "normalize"] and all(len(step.rows) == count for step in steps[-2:])
    if usual and steps[-2].fixed["scale"] and steps[-2].fixed["dtype"] == "float32":
        return steps[:-2], steps[-2:]
    return steps, []


def _several_sizes(step: Step) -> bool:
    """Whether its pictures come out in sizes that differ."""
    if step.name == "rotate" and step.fixed["expand"]:
        return True
    names = {"resize": ("height", "width"), "pad": ("padding",)}.get(step.name, ())
    return any((step.values[name] != step.values[name][:1]).any() for name in names)


def _sizes(images: Images) -> Any:
    if isinstance(images, torch.Tensor):
        return np.tile(np.asarray(images.shape[1:]), (len(images), 1))
    return np.asarray([tuple(one.shape) for one in images])


def _device(images: Images) -> torch.device:
    return images[0].device if len(images) else torch.device("cpu")
