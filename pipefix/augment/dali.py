"""DALI: a native pipeline from encoded bytes to a batch, each sample with parameters of its own, keyed as everywhere else."""

from __future__ import annotations

import io
import itertools
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from nvidia.dali.plugin.pytorch import feed_ndarray
from PIL import Image
from torch import distributed

from pipefix.augment import dali_graph, dali_pipeline
from pipefix.augment.augment import Augment
from pipefix.augment.dali_pipeline import Graph
from pipefix.augment.operation import draw_list
from pipefix.augment.steps import DrawnStep, Frame
from pipefix.augment.stream import Stream, keys_of
from pipefix.kernels.reused import Memory
from pipefix.vocabulary.errors import BadUsage

KEPT = 2
"""Batches' worth of reusable memory: one that the caller looks at, and one for the next."""
DRAWN_AT_ONCE = 32
"""Batches whose parameters are drawn together: drawing takes arrays, and each call costs the same for one batch as for many."""


@dataclass(frozen=True)
class _Order:
    """A batch to be made."""

    turn: int
    """Which call asked for it; 0: any of `DaliLoader.batches`, whose order goes on over the ends of epochs."""
    epoch: int
    number: int
    index: Any
    parameters: list[Any] | None
    """Of every slot; None: to be drawn when the sizes of the pictures are known."""

    @property
    def place(self) -> tuple[int, int, int]:
        return self.turn, self.epoch, self.number


class DaliLoader:
    """Iterates over batches of an epoch as ``(images, labels)``; images are torch tensors on the device.

    On a GPU they are DALI's own memory, without a copy. So they are on the CPU with ``lend``: a batch is then valid until the next
    is asked for, as in a loop that copies it to a device or computes with it at once. Otherwise it is the caller's for ever.

    ``source`` is a list of files, or a function that gives the encoded bytes of an index (a cache). ``device`` "cuda" decodes with
    DALI's mixed backend. ``rest`` is called with each batch and its indices for what DALI does not compute.

    ``rank`` of ``world_size`` processes makes batches of its share of an epoch, as `DistributedSampler` deals them.
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
        rank: int = 0,
        world_size: int | None = None,
    ) -> None:
        self.files = None if callable(source) else [str(one) for one in source]
        self.read = source if callable(source) else None
        if length is None and self.files is None and labels is None:
            raise ValueError("A function that reads bytes does not tell how many there are: give length.")
        self.length = length if length is not None else len(self.files if self.files is not None else labels or ())
        self.labels = torch.as_tensor(labels) if labels is not None else torch.zeros(self.length, dtype=torch.int64)
        self.rank, self.world_size = rank, _world_size() if world_size is None else world_size
        if world_size is None and self.world_size > 1:
            raise BadUsage(
                f"{self.world_size} ranks train here, and every one of them would be given the same batches.",
                advice="Give rank=torch.distributed.get_rank() and world_size=torch.distributed.get_world_size(), or world_size=1 "
                "where source is this rank's share already.",
            )
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
        self._turn = 0
        self._asked: list[tuple[_Order, Any]] = []
        """What was fed and has not come out yet, with the memory that it lies in: DALI reads it there, without a copy."""

    def __len__(self) -> int:
        length = -(-self.length // self.world_size)
        return length // self.batch_size if self.drop_last else -(-length // self.batch_size)

    def set_epoch(self, epoch: int) -> None:
        """The epoch that comes next. Without this each iteration is the epoch after the last."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        return self.batches()

    def batches(self, start: int = 0) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """The epoch from batch ``start`` on: the same batches as without stopping there."""
        epoch, self.epoch = self.epoch, self.epoch + 1
        if not self._asked or self._asked[0][0].place != (0, epoch, start):
            self._orders = self._following(epoch, start)
        for number in range(start, len(self)):
            made = self._made((0, epoch, number))
            assert made is not None, "this order has no end"
            yield made

    def in_order(self, batches: Iterable[Any], epoch: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Batches of these indices. What another call has not taken yet is dropped: one at a time can be gone through."""
        self._turn += 1
        turn = self._turn
        self._orders = self._of(batches, turn, epoch)
        for number in itertools.count():
            if turn != self._turn:
                raise RuntimeError("Another epoch of this loader has begun: DALI makes the batches of one at a time.")
            made = self._made((turn, epoch, number))
            if made is None:
                return
            yield made

    def _made(self, place: tuple[int, int, int]) -> tuple[torch.Tensor, torch.Tensor] | None:
        """The batch of that place; None: the order has come to its end before."""
        if self._pipe is None:
            self._pipe = self._built()
        # Bound to the stream that batches are used on, memory that the caller lets go of is not written before that is done.
        streams = () if self.device == "cpu" else (torch.cuda.current_stream(self.device),)
        ended = False
        while True:
            try:
                (found,) = self._pipe.run(*streams)
            except StopIteration:  # no more is fed: to the latest call, or to one whose last batches were dropped here
                self._pipe.reset()
                if ended:
                    return None
                ended = True
                continue
            order, _ = self._asked.pop(0)
            if order.place == place:
                break
        images = self._handed(found.as_tensor())
        labels = self.labels[torch.from_numpy(order.index)].to(images.device, non_blocking=True)
        batch = (images, labels)
        return self.rest(batch, index=order.index, epoch=order.epoch) if self.rest is not None else batch

    def _of(self, batches: Iterable[Any], turn: int, epoch: int) -> Iterator[_Order]:
        remaining = iter(batches)
        number = 0
        while some := [np.asarray(one, dtype=np.int64) for one in itertools.islice(remaining, DRAWN_AT_ONCE)]:
            yield from self._drawn(turn, epoch, number, some)
            number += len(some)

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
                yield from self._drawn(0, epoch, first, batches[first : first + DRAWN_AT_ONCE])
            epoch, start = epoch + 1, 0

    def _drawn(self, turn: int, epoch: int, first: int, batches: list[Any]) -> Iterator[_Order]:
        """Parameters for several batches at a time, where the sizes of all their pictures are known already."""
        whole = np.concatenate(batches)
        ready = self._parameters(epoch, whole) if self._sizes[whole, 1].all() else None
        begin = 0
        for offset, index in enumerate(batches):
            end = begin + len(index)
            yield _Order(turn, epoch, first + offset, index, None if ready is None else [each[begin:end] for each in ready])
            begin = end

    def _order(self, epoch: int) -> list[Any]:
        order = np.arange(self.length)
        if self.shuffle:
            key = int(keys_of(self.seed, epoch, np.asarray([-1]))[0])
            order = np.random.Generator(np.random.Philox(key)).permutation(self.length)
        share = -(-self.length // self.world_size)
        order = np.resize(order, share * self.world_size)[self.rank :: self.world_size]
        last = len(self) * self.batch_size
        return [order[begin : begin + self.batch_size] for begin in range(0, min(share, last), self.batch_size)]

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
        steps = draw_list(self.graph.listed, stream, Frame.of(self._sizes[index]))
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
        device = torch.device(self.device)
        settings: dict[str, Any] = {"batch_size": self.batch_size, "num_threads": self.threads}
        fed = weakref.WeakMethod(self._feed)

        def feed() -> tuple[Any, ...]:
            """Without this loader in it: the pipeline, its threads and its memory go when the loader goes."""
            method = fed()
            assert method is not None, "a loader that is gone asks for no batch"
            return method()

        if device.type == "cpu":
            return dali_pipeline.made(self.graph, feed, self.by_name, "cpu", device_id=None, **settings)
        try:
            number = torch.cuda.current_device() if device.index is None else device.index
            return dali_pipeline.made(self.graph, feed, self.by_name, "mixed", device_id=number, **settings)
        except RuntimeError as error:
            raise BadUsage(
                f"DALI cannot use the device {self.device!r}: {_cause(error)}",
                advice="See that nvidia-smi works and that DALI is built for this driver's CUDA (nvidia-dali-cuda120, -cuda130); "
                "device='cpu' needs neither",
            ) from error


def _world_size() -> int:
    """How many processes train together."""
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


def _cause(error: RuntimeError) -> str:
    """What DALI says in one sentence: where it happened in its sources tells nobody anything."""
    told = [line for line in str(error).splitlines() if line.strip() and not line.startswith(("[", "Stack", "Error when"))]
    whole = (told or [str(error)])[0].rpartition('" failed: ')[2].strip()
    return whole.partition(". ")[0].rstrip(".") + "."


def _dense(slots: Sequence[dali_graph.Slot], steps: list[DrawnStep], sizes: Any) -> list[Any]:
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


def _resize(sizes: Any, slot: dali_graph.Slot, table: dict[str, Any], step: DrawnStep) -> None:
    """Keep account of the pictures' sizes."""
    if slot.name == "resize":
        sizes[step.rows] = table["size"][step.rows]
    elif slot.name == "resized_crop":
        sizes[step.rows] = step.fixed["size"]
    elif slot.name in ("crop", "center_crop"):
        sizes[step.rows] = table["shape"][step.rows]
    elif slot.name == "pad":
        sizes[step.rows] += table["grow"][step.rows]
