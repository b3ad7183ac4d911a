"""DALI's loader: decodes files, crops, resizes, flips and normalises natively; the module does the rest of the list to its batches.

What a sample's transforms draw is recorded as everywhere else, from generators that are seeded for the sample.
"""

from __future__ import annotations

import ctypes
import hashlib
import io
import itertools
import os
import random
import struct
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from nvidia.dali import fn, pipeline_def, types
from nvidia.dali.plugin.pytorch import feed_ndarray
from PIL import Image
from torch import distributed

from pipefix.augment.dali_front import INTERPOLATIONS, Front, front_of, numbers_of
from pipefix.augment.module import run_packed
from pipefix.augment.record import Program, RecordedCall, RecordedImage, packed
from pipefix.augment.transforms import ListedTransform
from pipefix.kernels.reused import Memory
from pipefix.vocabulary.errors import BadUsage
from pipefix.vocabulary.quantity import counted
from pipefix.vocabulary.random_state import preserved

# -- DALI's pipeline -------------------------------------------------------------------------------------------------------------


_made: weakref.WeakSet[Any] = weakref.WeakSet()


def pipeline(front: Front, feed: Callable[[], tuple[Any, ...]], by_name: bool, decoder: str, **settings: Any) -> Any:
    """Until it is built it asks for no driver."""
    pipe = pipeline_def(_nodes, exec_dynamic=decoder == "mixed", **settings)(front, feed, by_name, decoder)
    _made.add(pipe)
    return pipe


def _leave_to_the_parent() -> None:
    """A forked process has none of a pipeline's threads: whoever collected the pipeline there would wait for them, and crash."""
    for pipe in _made:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(pipe._pipe))  # for ever: nor is what lies behind it taken down
        pipe._pipe = None


os.register_at_fork(after_in_child=_leave_to_the_parent)


def _nodes(front: Front, feed: Callable[[], tuple[Any, ...]], by_name: bool, decoder: str) -> Any:
    encoded, *numbers = fn.external_source(source=feed, num_outputs=1 + len(front.numbers), batch=True, no_copy=True)
    fed = dict(zip(front.numbers, numbers, strict=True))
    if by_name:  # mapped, each file costs more in pages that are mapped and unmapped than in bytes that are copied
        encoded = fn.io.file.read(encoded, dont_use_mmap=True)
    settings = {"device": decoder, "output_type": types.RGB, "adjust_orientation": False}
    if front.window:
        images = fn.decoders.image_slice(encoded, start=fed["start"], shape=fed["shape"], axis_names="HW", **settings)
    else:
        images = fn.decoders.image(encoded, **settings)
    if front.resize is not None:
        mode, antialias = front.resize
        images = fn.resize(images, size=fed["size"], interp_type=getattr(types, INTERPOLATIONS[mode]), antialias=antialias)
    if front.crop:
        window = {"start": fed["corner"], "shape": fed["extent"], "axis_names": "HW"}
        images = fn.slice(images, **window, out_of_bounds_policy="pad", fill_values=0)
    scale = 255 if front.to_float else 1
    return fn.crop_mirror_normalize(
        images, dtype=types.FLOAT if front.to_float else types.UINT8, output_layout="CHW", mirror=fed.get("mirror", 0),
        mean=[scale * value for value in front.mean], std=[scale * value for value in front.std],
    )  # fmt: skip


# -- the loader --------------------------------------------------------------------------------------------------------------------


@dataclass
class _Order:
    """A batch to be made."""

    place: tuple[int, int, int]
    """Which call asked for it (0: any that goes through an epoch), the epoch, and the number in it."""
    index: Any
    fed: tuple[Any, ...] = ()
    """What DALI reads without a copy: kept until the batch has come out."""
    rest: list[bytes] = field(default_factory=list)
    """What the module does to each picture afterwards, where it does anything."""


class DaliLoader:
    """Iterates over batches of an epoch as ``(images, labels)``; images are torch tensors on the device.

    On a GPU they are DALI's own memory, without a copy. So they are on the CPU with ``lend``: a batch is then valid until the next
    is asked for, as in a loop that copies it to a device or computes with it at once. Otherwise it is the caller's for ever.

    ``source`` is a list of files, or a function that gives the encoded bytes of an index (a cache). ``device`` "cuda" decodes with
    DALI's mixed backend. What a sample draws depends on ``seed``, the epoch and its index alone.

    ``rank`` of ``world_size`` processes makes batches of its share of an epoch, as `DistributedSampler` deals them.
    """

    def __init__(
        self, source: Sequence[str | Path] | Callable[[int], bytes], parts: Sequence[ListedTransform], *,
        labels: Sequence[int] | None = None, length: int | None = None, batch_size: int = 32, shuffle: bool = False,
        drop_last: bool = False, threads: int = 2, device: str = "cpu", seed: int = 0, lend: bool = False, rank: int = 0,
        world_size: int | None = None,
    ) -> None:  # fmt: skip
        self.files = None if callable(source) else [str(name) for name in source]
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
        self.threads, self.device, self.seed, self.epoch, self.lend = threads, device, seed, 0, lend
        stays = [f"{part.name}: {part.why_not}" for part in parts if part.recorded is None]
        front = front_of(parts) if not stays else stays[0]
        if isinstance(front, str):
            raise BadUsage(f"DALI cannot make these batches: {front}.", advice="Move to Kornia instead (to='kornia').")
        self.front, self._parts = front, parts
        if not len(self):
            raise ValueError(
                f"{counted(self.length, 'sample')} cannot fill a batch of {batch_size}: give a smaller one, or drop_last=False."
            )
        self._sizes: dict[int, tuple[int, int]] = {}
        self._pipe: Any = None
        self._memory = Memory(kept=2)  # a batch that the caller looks at, and the next one
        self._orders: Iterator[_Order] = iter(())
        self._turn = 0
        self._asked: list[_Order] = []
        """What was fed and has not come out yet."""

    def __len__(self) -> int:
        length = -(-self.length // self.world_size)
        return length // self.batch_size if self.drop_last else -(-length // self.batch_size)

    def set_epoch(self, epoch: int) -> None:
        """The epoch that comes next. Without this each iteration is the epoch after the last."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        epoch, self.epoch = self.epoch, self.epoch + 1
        if not self._asked or self._asked[0].place != (0, epoch, 0):
            # Every batch from this epoch on: the graph works ahead over the end of one.
            epochs = ((each, self._order(each)) for each in itertools.count(epoch))
            self._orders = (_Order((0, each, number), index) for each, order in epochs for number, index in enumerate(order))
        for number in range(len(self)):
            batch = self._made((0, epoch, number))
            assert batch is not None, "this order has no end"
            yield batch

    def in_order(self, batches: Iterable[Any], epoch: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Batches of these indices. What another call has not taken yet is dropped: one at a time can be gone through."""
        self._turn += 1
        turn = self._turn
        self._orders = (_Order((turn, epoch, number), np.asarray(index, np.int64)) for number, index in enumerate(batches))
        for number in itertools.count():
            if turn != self._turn:
                raise RuntimeError("Another epoch of this loader has begun: DALI makes the batches of one at a time.")
            batch = self._made((turn, epoch, number))
            if batch is None:
                return
            yield batch

    def _made(self, place: tuple[int, int, int]) -> tuple[torch.Tensor, torch.Tensor] | None:
        """The batch of that place; None: the order has come to its end before."""
        if self._pipe is None:
            self._pipe = self._built()
        # Bound to the stream that batches are used on, memory that the caller lets go of is not written before that is done.
        streams = () if self.device == "cpu" else (torch.cuda.current_stream(self.device),)
        ended = False
        while True:
            try:
                (output,) = self._pipe.run(*streams)
            except StopIteration:  # no more is fed: to the latest call, or to one whose last batches were dropped here
                self._pipe.reset()
                if ended:
                    return None
                ended = True
                continue
            order = self._asked.pop(0)
            if order.place == place:
                break
        made = output.as_tensor()
        if self.device != "cpu" or self.lend:  # DALI's own memory
            images = torch.utils.dlpack.from_dlpack(made)
        else:
            kind = torch.float32 if self.front.to_float else torch.uint8
            images = feed_ndarray(made, self._memory.batch(tuple(made.shape()), kind))
        labels = self.labels[torch.from_numpy(order.index)].to(images.device, non_blocking=True)
        if order.rest:
            with torch.no_grad():
                images = run_packed(images, order.rest)  # type: ignore[assignment]
        return images, labels

    def _order(self, epoch: int) -> list[Any]:
        order = np.arange(self.length)
        if self.shuffle:
            order = np.random.default_rng(sample_seed(self.seed, epoch, -1)).permutation(self.length)
        share = -(-self.length // self.world_size)
        order = np.resize(order, share * self.world_size)[self.rank :: self.world_size]
        last = len(self) * self.batch_size
        return [order[begin : begin + self.batch_size] for begin in range(0, min(share, last), self.batch_size)]

    # -- what the graph is fed -----------------------------------------------------------------------------------------

    def _feed(self) -> tuple[Any, ...]:
        """Encoded bytes (or names) of the next batch, and the numbers of every stage."""
        order, files = next(self._orders), self.files
        read: Any = self.read if files is None else lambda item: os.fsencode(files[item])
        pictures = [np.frombuffer(read(int(item)), dtype=np.uint8) for item in order.index]
        fed = []
        with preserved():
            for place, item in enumerate(map(int, order.index)):
                if item not in self._sizes:
                    with Image.open(files[item] if files is not None else io.BytesIO(pictures[place].tobytes())) as picture:
                        if picture.mode.startswith(("I", "F")):
                            raise BadUsage(
                                f"The picture of sample {item} has more than 8 bits a value, of which DALI leaves 8.",
                                advice="Move to Kornia instead (to='kornia').",
                            )
                        self._sizes[item] = (picture.height, picture.width)
                calls = recorded(self._parts, self._sizes[item], sample_seed(self.seed, order.place[1], item))
                fed.append(numbers_of(self.front, [call for call in calls if call.place < self.front.count], *self._sizes[item]))
                if self.front.count < len(self._parts):
                    order.rest.append(packed(Program([call for call in calls if call.place >= self.front.count], ())))
        kinds = {name: np.float32 if name == "size" else np.int32 for name in self.front.numbers}
        order.fed = (pictures, *(np.array([each[name] for each in fed], kind) for name, kind in kinds.items()))
        self._asked.append(order)
        return order.fed

    def _built(self) -> Any:
        device = torch.device(self.device)
        decoder = "cpu" if device.type == "cpu" else "mixed"
        settings: dict[str, Any] = {"batch_size": self.batch_size, "num_threads": self.threads, "device_id": None}
        fed = weakref.WeakMethod(self._feed)

        def feed() -> tuple[Any, ...]:
            """Without this loader in it: the pipeline, its threads and its memory go when the loader goes."""
            method = fed()
            assert method is not None, "a loader that is gone asks for no batch"
            return method()

        try:
            if decoder == "mixed":
                settings["device_id"] = torch.cuda.current_device() if device.index is None else device.index
            pipe = pipeline(self.front, feed, self.files is not None, decoder, **settings)
            pipe.build()
            return pipe
        except RuntimeError as error:
            if decoder == "cpu":
                raise
            raise BadUsage(
                f"DALI cannot use the device {self.device!r}: {_cause(error)}",
                advice="See that nvidia-smi works and that DALI is built for this driver's CUDA (nvidia-dali-cuda120, -cuda130); "
                "device='cpu' needs neither",
            ) from error


def sample_seed(seed: int, epoch: int, index: int) -> int:
    """Of one sample in one epoch: 32 bits, as many as NumPy's generator takes."""
    return int.from_bytes(hashlib.blake2b(struct.pack("<qqq", seed, epoch, index), digest_size=4).digest(), "little")


def recorded(parts: Sequence[ListedTransform], size: tuple[int, int], seed: int) -> list[RecordedCall]:
    """What the list does to a picture of this size with generators of this seed. They are left as they are then."""
    random.seed(seed)
    np.random.seed(seed)
    torch.default_generator.manual_seed(seed)
    image = RecordedImage.of((3, *size), torch.uint8)
    sample = image
    for place, part in enumerate(parts):
        image.place[0] = place
        sample = part.recorded(sample)  # type: ignore[misc]
    return image.calls


def _world_size() -> int:
    """How many processes train together."""
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


def _cause(error: RuntimeError) -> str:
    """What DALI says in one sentence: where it happened in its sources tells nobody anything."""
    lines = [line for line in str(error).splitlines() if line.strip() and not line.startswith(("[", "Stack", "Error when"))]
    return (lines or [str(error)])[0].rpartition('" failed: ')[2].strip().partition(". ")[0].rstrip(".") + "."
