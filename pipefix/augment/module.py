"""`Augment`, the module that does recorded calls to a whole batch: samples that call the same function are done together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import nn
from torchvision import tv_tensors

from pipefix.augment import groups
from pipefix.augment.groups import Group
from pipefix.augment.record import Outline, Program, RecordedCall, apart, outline_of, packed
from pipefix.vocabulary.nested import leaves, map_leaves, members

Images: TypeAlias = "torch.Tensor | list[torch.Tensor]"


class Augment(nn.Module):
    """Give it a batch and the calls that were recorded of its samples, on the device where the batch's tensors are; it returns the
    batch, augmented.

    Batches of `Swap.dataset` come as a pair of both, which may be given as it is: ``augment(batch)``.
    """

    def __init__(self, *, operations: Sequence[str] = (), dtype: torch.dtype | None = None, channels_last: bool = False) -> None:
        """``operations``: names of the transforms that moved here, to be told. ``dtype`` replaces that of floating-point results
        (float16, bfloat16)."""
        super().__init__()
        self.operations = tuple(operations)
        self.dtype, self.channels_last = dtype, channels_last

    @torch.compiler.disable
    def forward(self, batch: Any, calls: Sequence[bytes] | None = None) -> Any:
        if calls is None:
            batch, calls = _pair(batch)
        if not calls:  # a batch of no samples
            return batch
        pictures, put = pictures_of(batch, [outline_of(apart(each)[0]) for each in calls])
        with torch.no_grad(), torch.autocast(pictures[0].device.type if len(pictures) else "cpu", enabled=False):
            return put(self._finished(run_packed(pictures, calls)))

    def _finished(self, images: Images) -> Images:
        if isinstance(images, list):
            return [self._finished(image[None])[0] for image in images]
        if self.dtype is not None and images.is_floating_point():
            images = images.to(self.dtype)
        return images.contiguous(memory_format=torch.channels_last) if self.channels_last else images


def _pair(pair: Any) -> tuple[Any, Sequence[bytes]]:
    if isinstance(pair, (list, tuple)) and len(pair) == 2:
        batch, calls = pair
        if isinstance(calls, (list, tuple)) and all(isinstance(each, bytes) for each in calls):
            return batch, calls
    raise ValueError(
        "The batch comes without the calls that were recorded of its samples: give the module the batches of "
        "DataLoader(swapped.dataset(), ...), and a collate function of your own as collate_fn=swapped.collate(yours)."
    )


# -- the pictures of a batch ---------------------------------------------------------------------------------------------------


def pictures_of(batch: Any, programs: Sequence[Outline]) -> tuple[Images, Any]:
    """The pictures, and what makes the batch with others in their place.

    They are the tensor whose shape is that of the recorded pictures, or as many single ones. Where several are, it is the one that
    lies in the batch where the picture lay in the sample.
    """
    listed = list(leaves(batch))
    shape = (len(programs), *programs[0].shape)
    stacks = [leaf for leaf in listed if _is_picture(leaf) and tuple(leaf.shape) == shape]
    stack = _only(stacks, listed, programs[0])
    found = [stack] if stack is not None else _one_each(batch, programs)
    if found is None:
        raise ValueError(
            f"The batch has no pictures of {len(programs)} samples as they were recorded, of shape {shape}: give the module the "
            "batch as the collate function made it, and the calls that came with it: augment(batch, calls)."
        )
    places = {id(leaf): place for place, leaf in enumerate(found)}

    def put(new: Images) -> Any:
        made = [_together(new)] if stack is not None else new
        return map_leaves(lambda leaf: made[places[id(leaf)]] if id(leaf) in places else leaf, batch)

    pictures = [leaf.as_subclass(torch.Tensor) for leaf in found]
    return pictures[0] if stack is not None else pictures, put


def _only(candidates: Sequence[torch.Tensor], listed: Sequence[Any], program: Outline) -> torch.Tensor | None:
    if len(candidates) < 2:
        return candidates[0] if candidates else None
    if program.place is not None and program.leaves == len(listed):
        chosen = listed[program.place]
        if any(chosen is candidate for candidate in candidates):
            return chosen
    raise ValueError(
        f"{len(candidates)} tensors of a batch may be the pictures (shape {tuple(candidates[0].shape)}), and your collate function "
        "does not leave them where they lay in the sample. Return masks as torchvision.tv_tensors.Mask, or use default_collate."
    )


def _is_picture(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and not isinstance(leaf, (tv_tensors.Mask, tv_tensors.Video))


def _together(new: Images) -> torch.Tensor:
    if isinstance(new, list):
        raise ValueError("The augmented pictures differ in size, so they make no batch: end the list with a crop or one size.")
    return new


def _one_each(batch: Any, programs: Sequence[Outline]) -> list[torch.Tensor] | None:
    """The picture of each member, in the outermost sequence that has one in each: of pictures, or of samples left apart."""
    inner = members(batch)
    if inner is None:
        return None
    values = [value for _, value in inner]
    if len(values) == len(programs):
        own = [list(leaves(value)) for value in values]
        each: list[Any] = [
            _only([leaf for leaf in listed if _is_picture(leaf) and tuple(leaf.shape) == program.shape], listed, program)
            for listed, program in zip(own, programs, strict=True)
        ]
        if all(picture is not None for picture in each):
            return each
    return next((pictures for value in values if (pictures := _one_each(value, programs)) is not None), None)


# -- what is done to them ------------------------------------------------------------------------------------------------------


def run(images: Images, programs: Sequence[Sequence[RecordedCall]]) -> Images:
    """The calls of every sample, in its own order."""
    return run_packed(images, [packed(Program(list(calls), ())) for calls in programs])


def run_packed(images: Images, programs: Sequence[bytes]) -> Images:
    """The same as they cross to the training process; of each transform of the list, the n-th calls of all samples together."""
    waves = groups.waves(programs)
    device = images[0].device if len(images) else torch.device("cpu")
    if device.type == "cuda":
        groups.to_device([group for wave in waves for group in wave], device)
    ours = False
    for wave in waves:
        images, ours = _wave(images, wave, ours)
    return images


def _wave(images: Images, wave: Sequence[Group], ours: bool) -> tuple[Images, bool]:
    """``ours``: whether the memory of the pictures may be written to."""
    if isinstance(images, list):
        return _by_size(images, wave), True
    if len(wave) == 1 and len(wave[0].rows) == len(images):
        return _call(wave[0], images, slice(None)), True
    for place, group in enumerate(wave):
        part = images[group.there]
        changed = _call(group, part, slice(None))
        if changed.shape != part.shape or changed.dtype != part.dtype:
            return _by_size(list(images), wave[place:]), True
        images = images if ours else images.clone()
        images[group.there] = changed
        ours = True
    return images, ours


def _by_size(images: list[torch.Tensor], wave: Sequence[Group]) -> Images:
    """Pictures of several sizes: those of one size together. A tensor again as soon as all are alike."""
    new = list(images)
    for group in wave:
        sizes: dict[Any, list[int]] = {}
        for position, row in enumerate(group.rows):
            sizes.setdefault((images[row].shape, images[row].dtype), []).append(position)
        for positions in sizes.values():
            rows = [group.rows[position] for position in positions]
            for row, image in zip(rows, _call(group, torch.stack([images[row] for row in rows]), positions), strict=True):
                new[row] = image
    return torch.stack(new) if len({(image.shape, image.dtype) for image in new}) == 1 else new


def _call(group: Group, images: torch.Tensor, positions: Any) -> torch.Tensor:
    columns = {name: column[positions] for name, column in group.columns.items()}
    shared = {name: torch.from_numpy(value) if isinstance(value, np.ndarray) else value for name, value in group.shared.items()}
    return group.function(images, **shared, **columns)
