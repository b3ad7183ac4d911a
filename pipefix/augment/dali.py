"""DALI: a native pipeline from encoded bytes to a batch, each sample with parameters of its own, keyed as everywhere else."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from nvidia.dali import fn, pipeline_def, types
from nvidia.dali.pipeline import do_not_convert
from nvidia.dali.plugin.pytorch import feed_ndarray
from PIL import Image

from pipefix.augment import dali_graph
from pipefix.augment.augment import Augment
from pipefix.augment.draw import draw_list
from pipefix.augment.draw_colour import ALL_DRAWS
from pipefix.augment.ops import Op
from pipefix.augment.steps import Frame, Step
from pipefix.augment.stream import Stream, keys_of
from pipefix.kernels.reused import Memory

KEPT = 2
"""Batches' worth of memory that is used again: one that the caller looks at, and one for the next."""
DRAWN_AT_ONCE = 32
"""Batches whose parameters are drawn together: drawing takes arrays, and each call costs the same for one batch as for many."""


@dataclass(frozen=True)
class Graph:
    """A list of operations as DALI runs it: slots on bytes, a conversion, slots on floating point, and what is left to others."""

    listed: tuple[Op, ...]
    """What the graph does."""
    slots: tuple[dali_graph.Slot, ...]
    after: tuple[dali_graph.Slot, ...]
    """Slots after the conversion."""
    to_float: bool
    mean: tuple[float, ...]
    std: tuple[float, ...]
    rest: tuple[Op, ...]
    """What a module must do to the batch afterwards."""
    why: str = ""
    """Why the first of these is left."""


@dataclass(frozen=True)
class _Order:
    """A batch to be made."""

    epoch: int
    number: int
    index: Any
    parameters: list[Any] | None
    """Of every slot; None: to be drawn when the sizes of the pictures are known."""

    @property
    def place(self) -> tuple[int, int]:
        return self.epoch, self.number


class DaliLoader:
    """Iterates over batches of an epoch as ``(images, labels)``; images are torch tensors on the device.

    On a GPU they are DALI's own memory, without a copy. So they are on the CPU with ``lend``: a batch is then valid until the next
    is asked for, as in a loop that copies it to a device or computes with it at once. Otherwise it is the caller's for ever.

    ``source`` is a list of files, or a function that gives the encoded bytes of an index (a cache). ``device`` "cuda" decodes with
    DALI's mixed backend. ``rest`` is called with each batch and its indices for what DALI does not compute.
    """

    def __init__(
        self,
        source: Sequence[str | Path] | Callable[[int], bytes],
        graph: Graph,
        *,
        labels: Sequence[int] | None = None,
        length: int | None = None,
        batch_size: int = 32,
        shuffle: bool = False,
        drop_last: bool = False,
        threads: int = 2,
        device: str = "cpu",
        seed: int = 0,
        lend: bool = False,
        rest: Augment | None = None,
    ) -> None:
        self.files = None if callable(source) else [str(one) for one in source]
        self.read = source if callable(source) else None
        if length is None and self.files is None and labels is None:
            raise ValueError("A function that reads bytes does not tell how many there are: give length.")
        self.length = length if length is not None else len(self.files if self.files is not None else labels or ())
        self.labels = torch.as_tensor(labels) if labels is not None else torch.zeros(self.length, dtype=torch.int64)
        self.batch_size, self.shuffle, self.drop_last = batch_size, shuffle, drop_last
        self.threads, self.device, self.seed, self.epoch, self.rest, self.lend = threads, device, seed, 0, rest, lend
        self.by_name = self.files is not None
        """Whether the graph reads the files, in its own threads."""
        self.graph = graph
        if graph.rest and rest is None:
            raise ValueError(f"DALI does not compute {type(graph.rest[0]).__name__} ({graph.why}): give rest, a module that does.")
        if not len(self):
            raise ValueError(f"{self.length} samples make no batch of {batch_size}: give a smaller batch_size, or drop_last=False.")
        self._sizes = np.zeros((self.length, 3), dtype=np.int64)
        self._pipe: Any = None
        self._memory = Memory(kept=KEPT)
        self._orders: Iterator[_Order] = iter(())
        self._asked: list[tuple[_Order, Any]] = []
        """What was fed and has not come out yet, with the memory that it lies in: DALI reads it there, without a copy."""

    def __len__(self) -> int:
        return self.length // self.batch_size if self.drop_last else -(-self.length // self.batch_size)

    def set_epoch(self, epoch: int) -> None:
        """The epoch that comes next. Without this each iteration is the epoch after the last."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        return self.batches()

    def batches(self, start: int = 0) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """The epoch from batch ``start`` on: the same batches as without stopping there."""
        epoch, self.epoch = self.epoch, self.epoch + 1
        if self._pipe is None:
            self._pipe = self._built()
        if not self._asked or self._asked[0][0].place != (epoch, start):
            self._orders = self._following(epoch, start)
        for number in range(start, len(self)):
            # What was made ahead of time for another epoch is dropped.
            while True:
                (found,) = self._pipe.run()
                order, _ = self._asked.pop(0)
                if order.place == (epoch, number):
                    break
            images = self._handed(found.as_tensor())
            labels = self.labels[torch.from_numpy(order.index)].to(images.device, non_blocking=True)
            batch = (images, labels)
            yield self.rest(batch, index=order.index, epoch=epoch) if self.rest is not None else batch

    def _handed(self, found: Any) -> torch.Tensor:
        """On a GPU, and where batches are lent, the tensor is DALI's own memory."""
        if self.device != "cpu" or self.lend:
            return torch.utils.dlpack.from_dlpack(found)
        kept = self._memory.batch(tuple(found.shape()), torch.float32 if self.graph.to_float else torch.uint8)
        return feed_ndarray(found, kept)

    def _following(self, epoch: int, start: int) -> Iterator[_Order]:
        """Every batch from there on, epoch after epoch: the graph works ahead over the end of one."""
        while True:
            batches = self._order(epoch)
            for first in range(start, len(batches), DRAWN_AT_ONCE):
                yield from self._drawn(epoch, first, batches[first : first + DRAWN_AT_ONCE])
            epoch, start = epoch + 1, 0

    def _drawn(self, epoch: int, first: int, batches: list[Any]) -> Iterator[_Order]:
        """Parameters for several batches at a time, where the sizes of all their pictures are known already."""
        whole = np.concatenate(batches)
        ready = self._parameters(epoch, whole) if self._sizes[whole, 1].all() else None
        begin = 0
        for offset, index in enumerate(batches):
            end = begin + len(index)
            yield _Order(epoch, first + offset, index, None if ready is None else [each[begin:end] for each in ready])
            begin = end

    def _order(self, epoch: int) -> list[Any]:
        order = np.arange(self.length)
        if self.shuffle:
            key = int(keys_of(self.seed, epoch, np.asarray([-1]))[0])
            order = np.random.Generator(np.random.Philox(key)).permutation(self.length)
        last = len(self) * self.batch_size
        return [order[begin : begin + self.batch_size] for begin in range(0, min(self.length, last), self.batch_size)]

    # -- what the graph is fed -----------------------------------------------------------------------------------------

    def _feed(self) -> tuple[Any, ...]:
        """Encoded bytes (or names) of the next batch, then the parameters of every slot."""
        order = next(self._orders)
        index = order.index
        if self.by_name:
            assert self.files is not None
            names = [self.files[one] for one in index]
            pictures = [np.frombuffer(name.encode(), dtype=np.uint8) for name in names]
            self._learn(index, names.__getitem__)
        else:
            assert self.read is not None
            pictures = [np.frombuffer(self.read(int(one)), dtype=np.uint8) for one in index]
            self._learn(index, lambda place: io.BytesIO(pictures[place].tobytes()))
        parameters = order.parameters if order.parameters is not None else self._parameters(order.epoch, index)
        fed = (pictures, *parameters)
        self._asked.append((order, fed))
        return fed

    def _parameters(self, epoch: int, index: Any) -> list[Any]:
        """What is drawn for these samples, by slot."""
        stream = Stream(keys_of(self.seed, epoch, index))
        steps = draw_list(self.graph.listed, stream, Frame.of(self._sizes[index]), ALL_DRAWS)
        return _dense(self._slots, steps, self._sizes[index][:, 1:])

    def _learn(self, index: Any, opened: Callable[[int], Any]) -> None:
        """The size of every picture, from its header, once."""
        for place in np.flatnonzero(self._sizes[index, 1] == 0):
            with Image.open(opened(int(place))) as picture:
                self._sizes[index[place]] = (3, picture.height, picture.width)

    @property
    def _slots(self) -> tuple[dali_graph.Slot, ...]:
        return (*self.graph.slots, *self.graph.after)

    def _built(self) -> Any:
        on_gpu = self.device != "cpu"
        number = (torch.device(self.device).index or 0) if on_gpu else None
        make = pipeline_def(
            _nodes, batch_size=self.batch_size, num_threads=self.threads, device_id=number, enable_conditionals=True,
            exec_dynamic=on_gpu,
        )  # fmt: skip
        pipe = make(self.graph, self._feed, self.by_name, "mixed" if on_gpu else "cpu")
        pipe.build()
        return pipe


def _dense(slots: Sequence[dali_graph.Slot], steps: list[Step], sizes: Any) -> list[Any]:
    """For every slot whether it happens to a sample, and its parameters. Steps come in the order of the slots."""
    count, waiting = len(sizes), list(steps)
    sizes = sizes.copy()
    fed: list[Any] = []
    for slot in slots:
        table = {key: np.tile(value, (count, *(1,) * value.ndim)) for key, value in dali_graph.neutral(slot).items()}
        happens = np.zeros(count, dtype=bool)
        if waiting and waiting[0].name == slot.name:
            step = waiting.pop(0)
            happens[step.rows] = True
            for key, value in dali_graph.values_of(slot, step, sizes[step.rows]).items():
                table[key][step.rows] = value
            _resize(sizes, slot, table, step)
        fed += ([] if slot.always else [happens]) + list(table.values())
        waiting = [step for step in waiting if step.name not in ("to_tensor", "to_dtype", "normalize", "rgb")]
    return fed


def _resize(sizes: Any, slot: dali_graph.Slot, table: dict[str, Any], step: Step) -> None:
    """Keep account of the pictures' sizes."""
    if slot.name == "resize":
        sizes[step.rows] = table["size"][step.rows]
    elif slot.name == "resized_crop":
        sizes[step.rows] = step.fixed["size"]
    elif slot.name in ("crop", "center_crop"):
        sizes[step.rows] = table["shape"][step.rows]
    elif slot.name == "pad":
        sizes[step.rows] += table["grow"][step.rows]


def _nodes(of: Graph, feed: Callable[[], tuple[Any, ...]], by_name: bool, decoder: str) -> Any:
    """The graph: read, decode (only the crop where the list begins with one), the slots, the conversion.

    DALI rewrites this function and those it calls, to make splits of the batch from conditions. What needs no condition is kept
    from that.
    """
    encoded, parameters = _inputs(of, feed, by_name)
    images, first = _decoded(of, encoded, parameters, decoder)
    before, mirror = len(of.slots), 0
    if before > first and of.slots[-1].name == "hflip" and not of.slots[-1].always:
        # Turned over while it is converted anyway.
        before, mirror = before - 1, fn.cast(parameters[before - 1]["happens"], dtype=types.INT32)
    for place in range(first, before):
        images = _perhaps(of.slots[place], images, parameters[place])
    images = _converted(of, images, mirror)
    for place in range(len(of.after)):
        images = _perhaps(of.after[place], images, parameters[len(of.slots) + place])
    return images


@do_not_convert
def _inputs(of: Graph, feed: Callable[[], tuple[Any, ...]], by_name: bool) -> tuple[Any, list[dict[str, Any]]]:
    """Encoded bytes, and the parameters of every slot by name."""
    slots = (*of.slots, *of.after)
    keys = [[*([] if slot.always else ["happens"]), *dali_graph.neutral(slot)] for slot in slots]
    fed = list(fn.external_source(source=feed, num_outputs=1 + sum(map(len, keys)), batch=True, no_copy=True))
    # Mapped, each file costs more in pages that are mapped and unmapped than in bytes that are copied.
    encoded = fn.io.file.read(fed.pop(0), dont_use_mmap=True) if by_name else fed.pop(0)
    return encoded, [{key: fed.pop(0) for key in own} for own in keys]


@do_not_convert
def _decoded(of: Graph, encoded: Any, parameters: list[dict[str, Any]], decoder: str) -> tuple[Any, int]:
    """The pictures, and how many slots are done with that."""
    settings = {"device": decoder, "output_type": types.RGB, "adjust_orientation": False}
    if not of.slots or of.slots[0].name != "resized_crop" or not of.slots[0].always:
        return fn.decoders.image(encoded, **settings), 0
    window = {"start": parameters[0]["start"], "shape": parameters[0]["shape"], "axis_names": "HW"}
    images = fn.decoders.image_slice(encoded, **window, **settings)
    return dali_graph.resized(of.slots[0].op, images, list(of.slots[0].op.size)), 1  # type: ignore[attr-defined]


@do_not_convert
def _converted(of: Graph, images: Any, mirror: Any) -> Any:
    """Channels first, and normalised floating point where the list has it."""
    if not of.to_float:
        return fn.crop_mirror_normalize(images, dtype=types.UINT8, output_layout="CHW", mean=[0.0], std=[1.0], mirror=mirror)
    mean, std = [255 * one for one in of.mean], [255 * one for one in of.std]
    return fn.crop_mirror_normalize(images, dtype=types.FLOAT, output_layout="CHW", mean=mean, std=std, mirror=mirror)


def _perhaps(slot: dali_graph.Slot, images: Any, values: dict[str, Any]) -> Any:
    if slot.always:
        return dali_graph.apply_slot(slot, images, values)
    return _chosen(slot, images, values, values["happens"])


def _chosen(slot: dali_graph.Slot, images: Any, values: dict[str, Any], happens: Any) -> Any:
    if happens:
        images = dali_graph.apply_slot(slot, images, values)
    return images
