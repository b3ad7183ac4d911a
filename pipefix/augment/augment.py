"""The augmentation as one module for whole batches: draws each sample's parameters, runs the steps, and lets the labels follow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import distributed, nn

from pipefix.augment.batch import ImageBatch, mixed_labels
from pipefix.augment.follow import follow
from pipefix.augment.on_device import DeviceValues, on_host
from pipefix.augment.operation import Op, draw_list
from pipefix.augment.steps import DrawnStep, Frame
from pipefix.augment.stream import Stream, keys_of

Images: TypeAlias = "torch.Tensor | list[torch.Tensor]"
Kernels: TypeAlias = Mapping[str, Callable[..., Any]]


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
        seed: int = 0,
        dtype: torch.dtype | None = None,
        channels_last: bool = False,
        rank: int | None = None,
        first: int = 0,
    ) -> None:
        """``kernels`` does each step to the pictures of a batch.

        ``dtype`` replaces that of floating-point results (float16, bfloat16). ``rank`` keeps processes without indices apart; by
        default it is the process's own in `torch.distributed`.

        ``first`` is the place of the first operation in the whole list, where others stay before it.
        """
        super().__init__()
        self.ops = tuple(ops)
        self.seed, self.rank, self.epoch, self.seen = seed, rank, 0, 0
        self.dtype, self.channels_last, self.first = dtype, channels_last, first
        self._kernels = dict(kernels)

    def set_epoch(self, epoch: int) -> None:
        """Begin an epoch: its numbers differ from those of any other."""
        self.epoch, self.seen = epoch, 0

    def pass_over(self, samples: int) -> None:
        """So many samples of the epoch were augmented before it is gone on with."""
        self.seen += samples

    def get_extra_state(self) -> dict[str, int]:
        return {"seed": self.seed, "epoch": self.epoch, "seen": self.seen}

    def set_extra_state(self, state: dict[str, int]) -> None:
        self.seed, self.epoch, self.seen = state["seed"], state["epoch"], state["seen"]

    @torch.compiler.disable
    def forward(self, given: Any, *, index: Any = None, epoch: int | None = None) -> Any:
        batch = ImageBatch.of(given)
        images = batch.images
        steps = self.steps(_sizes(images), self._index(index, len(images)), epoch)
        with torch.autocast(_device(images).type, enabled=False):
            batch.images = self._finished(self.run(images, steps))
        for step in steps:
            if step.name in ("mix_up", "cut_mix") and batch.labels is not None:
                labels = batch.leaves[batch.labels]
                batch.leaves[batch.labels] = mixed_labels(labels, step.fixed["share"], step.fixed["num_classes"])
        return follow(batch, steps)

    def steps(self, sizes: Any, index: Any, epoch: int | None = None) -> list[DrawnStep]:
        """What is drawn for samples of these sizes (channels, height, width) and indices."""
        stream = Stream(keys_of(self.seed, self.epoch if epoch is None else epoch, index))
        return draw_list(self.ops, stream, Frame.of(sizes), first=self.first)

    def run(self, images: Images, steps: list[DrawnStep]) -> Images:
        """The steps, one after the other, each on all of its samples at once."""
        return self._run(images, steps, DeviceValues(steps, _device(images)))

    def _run(self, images: Images, steps: Iterable[DrawnStep], values: DeviceValues) -> Images:
        for step in steps:
            if len(step.rows):
                images = self._step(images, step, values)
        return images

    def _index(self, index: Any, count: int) -> Any:
        if index is None:
            position = np.arange(self.seen, self.seen + count, dtype=np.int64)
            self.seen += count
            # The upper bits tell processes apart that count for themselves.
            rank = _rank() if self.rank is None else self.rank
            return position + (np.int64(rank) << np.int64(40))
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

    def _step(self, images: Images, step: DrawnStep, values: DeviceValues) -> Images:
        if step.name == "of_boxes":
            return images
        if isinstance(images, list):
            return self._on_list(images, step, values)
        if step.name == "blend":
            return self._blend(images, step, values)
        if step.name == "mix_up":
            share = step.fixed["share"]
            return images.roll(1, 0) * (1 - share) + images * share
        if step.name == "cut_mix":
            left, top, right, bottom = step.fixed["box"]
            out = images.clone()
            out[..., top:bottom, left:right] = images.roll(1, 0)[..., top:bottom, left:right]
            return out
        if _several_sizes(step):
            return self._on_list(list(images), step, values)
        if len(step.rows) == len(images):
            return self._call(step, images, values)
        rows = values[step.rows]
        part = images[rows]
        changed = self._call(step, part, values)
        if changed.shape != part.shape or changed.dtype != part.dtype:
            return self._on_list(list(images), step, values)
        return images.index_copy(0, rows, changed)

    def _call(self, step: DrawnStep, images: torch.Tensor, values: DeviceValues) -> torch.Tensor:
        given = self._given(step, values)
        result: torch.Tensor = self._kernels[step.name](images, **given, **step.fixed)
        return result

    @staticmethod
    def _given(step: DrawnStep, values: DeviceValues) -> dict[str, Any]:
        stays = on_host(step)
        return {name: value if name in stays else values[value] for name, value in step.values.items()}

    def _on_list(self, images: list[torch.Tensor], step: DrawnStep, values: DeviceValues) -> Images:
        """Pictures of several sizes, one by one; a tensor again as soon as all are alike."""
        if step.name in ("mix_up", "cut_mix"):
            raise ValueError(
                f"{'MixUp' if step.name == 'mix_up' else 'CutMix'} mixes pictures of one size, and these differ: end the list of "
                "transforms before it with a crop or one size."
            )
        new = list(images)
        there = DrawnStep(step.name, step.rows, self._given(step, values), step.fixed)
        for position, row in enumerate(step.rows):
            new[row] = self._step(new[row][None], there.alone(position), values)[0]
        alike = {(one.shape, one.dtype) for one in new}
        return torch.stack(new) if len(alike) == 1 else new

    def _blend(self, images: torch.Tensor, step: DrawnStep, values: DeviceValues) -> torch.Tensor:
        whole = values[step.values["weights"]].to(torch.float32, copy=True)
        if len(step.rows) < len(images):
            whole = torch.zeros((len(images), whole.shape[1]), device=images.device).index_copy(0, values[step.rows], whole)
        whole[:, 0] += 1 - whole.sum(dim=1)
        mixed = images * whole[:, 0].view(-1, 1, 1, 1)
        for chain, steps in enumerate(step.fixed["chains"], 1):
            moved = self._run(images, steps, values)
            assert isinstance(moved, torch.Tensor)
            mixed = mixed + moved * whole[:, chain].view(-1, 1, 1, 1)
        return mixed.to(images.dtype)


def _several_sizes(step: DrawnStep) -> bool:
    """Whether its pictures come out in sizes that differ."""
    if len(step.rows) == 1:
        return False
    if step.name == "rotate" and step.fixed["expand"]:
        return True
    names = {"resize": ("height", "width"), "pad": ("padding",)}.get(step.name, ())
    return any((step.values[name] != step.values[name][:1]).any() for name in names)


def _rank() -> int:
    """This process's number among those that train together."""
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank()
    return 0


def _sizes(images: Images) -> Any:
    if isinstance(images, torch.Tensor):
        return np.tile(np.asarray(images.shape[1:]), (len(images), 1))
    return np.asarray([tuple(one.shape) for one in images])


def _device(images: Images) -> torch.device:
    return images[0].device if len(images) else torch.device("cpu")
