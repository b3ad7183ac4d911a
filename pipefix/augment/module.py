"""`Augment`, the module that does recorded calls to a whole batch: samples that call the same function are done together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import nn
from torchvision import tv_tensors

from pipefix.augment import color
from pipefix.augment.batched import BY_NAME, BatchedOp
from pipefix.augment.geometry import finest
from pipefix.augment.record import Outline, OutlinedCall, Program, RecordedCall, apart, outline_of, packed
from pipefix.vocabulary.nested import leaves, map_leaves, members
from pipefix.vocabulary.quantity import counted

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
            f"The batch has no pictures of {counted(len(programs), 'sample')} as they were recorded, of shape {shape}: give the "
            "module the batch as the collate function made it, and the calls that came with it: augment(batch, calls)."
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


# -- what its samples call -----------------------------------------------------------------------------------------------------


@dataclass
class Group:
    """Samples that call the same function at the same point of the list, with the same arguments but those of each sample."""

    function: Callable[..., torch.Tensor]
    shared: dict[str, Any]
    rows: list[int] = field(default_factory=list)
    columns: dict[str, Any] = field(default_factory=dict)
    """Of each argument of a sample's own a row for each sample."""
    there: Any = None
    """``rows`` on the device."""
    parts: list[tuple[BatchedOp, dict[str, np.ndarray]]] = field(default_factory=list)
    """``columns`` of the samples of one outline each, until all are there."""

    def close(self) -> None:
        """All are there: put them in the order of the batch."""
        ops = {op.name: op for op, _ in self.parts}
        if len(ops) > 1:
            self.function = color.blended
            for place, (op, columns) in enumerate(self.parts):
                (factor,) = columns.values()
                self.parts[place] = (op, {"factor": factor, "kind": np.full(len(factor), op.blend)})
        order = np.argsort(self.rows)
        self.rows = [self.rows[place] for place in order]
        for name in self.parts[0][1]:
            column = np.concatenate([columns[name] for _, columns in self.parts])[order]
            self.columns[name] = torch.from_numpy(column if column.dtype == np.float32 else column.astype(np.float64))
        self.there = torch.tensor(self.rows)


def waves(programs: Sequence[bytes]) -> list[list[Group]]:
    """Of each transform of the list, the n-th calls of all samples, by group."""
    by_head: dict[bytes, dict[int, bytes]] = {}
    """Of each outline the samples, by their rows, and their numbers."""
    for row, program in enumerate(programs):
        head, own = apart(program)
        by_head.setdefault(head, {})[row] = own
    alike = [
        (outline_of(head).calls, list(held), np.frombuffer(b"".join(held.values()), np.uint8).reshape(len(held), -1))
        for head, held in by_head.items()
    ]
    whole = []
    for place in sorted({call.place for calls, _, _ in alike for call in calls}):
        here = [([call for call in calls if call.place == place], rows, numbers) for calls, rows, numbers in alike]
        for turn in range(max(len(calls) for calls, _, _ in here)):
            wave: dict[Any, Group] = {}
            for calls, rows, numbers in here:
                if turn < len(calls):
                    _join(wave, calls[turn], rows, numbers)
            for group in wave.values():
                group.close()
            whole.append(list(wave.values()))
    return whole


def _join(wave: dict[Any, Group], call: OutlinedCall, rows: list[int], numbers: np.ndarray) -> None:
    op = BY_NAME[call.name]
    columns = {column.name: column.of(numbers) for column in call.columns}
    if not call.alone:
        group = wave.setdefault(call.key, Group(op.batched, call.shared))
        group.rows.extend(rows)
        group.parts.append((op, columns))
        return
    for place, row in enumerate(rows):
        own = {name: column[place].tolist() for name, column in columns.items()}
        wave[call.name, row] = Group(op.functional, {**call.shared, **own}, [row], parts=[(op, {})])


def to_device(groups: Sequence[Group], device: torch.device) -> None:
    """All numbers in one copy, to CUDA from pinned memory, which nobody waits for."""
    every = [column for group in groups for column in (group.there, *group.columns.values())]
    if not every:
        return
    flat, is_cuda = torch.cat([column.to(finest(device)).flatten() for column in every]), device.type == "cuda"
    flat = (flat.pin_memory() if is_cuda else flat).to(device, non_blocking=is_cuda)
    pieces = iter(flat.split([column.numel() for column in every]))
    for group in groups:
        group.there = next(pieces).long()
        group.columns = {name: next(pieces).view(column.shape) for name, column in group.columns.items()}


# -- what is done to them ------------------------------------------------------------------------------------------------------


def run(images: Images, programs: Sequence[Sequence[RecordedCall]]) -> Images:
    """The calls of every sample, in its own order."""
    return run_packed(images, [packed(Program(list(calls), ())) for calls in programs])


def run_packed(images: Images, programs: Sequence[bytes]) -> Images:
    """The same as they cross to the training process; of each transform of the list, the n-th calls of all samples together."""
    in_turn = waves(programs)
    device = images[0].device if len(images) else torch.device("cpu")
    if device.type != "cpu":
        to_device([group for wave in in_turn for group in wave], device)
    ours = False
    for wave in in_turn:
        images, ours = _wave(images, wave, ours)
    return images


def _wave(images: Images, wave: Sequence[Group], ours: bool) -> tuple[Images, bool]:
    """``ours``: whether the memory of the pictures may be written to."""
    if isinstance(images, list):
        return _by_size(images, wave), True
    if len(wave) == 1 and len(wave[0].rows) == len(images):
        changed = _call(wave[0], images, slice(None))  # perhaps a view of them, such as their centre
        return changed, ours or changed.untyped_storage().data_ptr() != images.untyped_storage().data_ptr()
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
