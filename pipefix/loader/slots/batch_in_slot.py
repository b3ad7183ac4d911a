"""Puts a batch into a slot: a worker collates tensors straight into it and copies the rest there; a few bytes are sent.

`Assembler` takes the place of the collate function in a worker. `default_collate` stacks tensors into the slot; other tensors and
arrays of the batch are copied there once; the rest (numbers, strings, the user's own types) is pickled. What does not fit, or what
only torch knows how to send (tensors on a device, sparse, sharing memory with something else), goes torch's way, tensor by tensor;
where no slot is free, the whole batch does. So every batch that torch can hand over is handed over.
"""

from __future__ import annotations

import io
import pickle
import threading
import weakref
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np
import torch
from torch.utils.data import get_worker_info

from pipefix.hooks.torch_internals import collate_tensors, pin_memory, stack_by, stacks_as_ever
from pipefix.loader.slots.arena import Arena, SlotBytes, arena_of

ALIGNED = 64
SMALL = 4096
"""Bytes of an array below which it travels with the rest."""
_here = threading.local()


class SlotPage:
    """What of a slot is written."""

    def __init__(self, window: SlotBytes) -> None:
        self.window = window
        self.start = torch.frombuffer(window, dtype=torch.uint8, count=1).data_ptr()
        self.used = 0
        self.copied: dict[int, int] = {}
        """Where the storages of this batch lie. (Two of them may begin at the same address: of an array, and of its beginning.)"""

    def reserve(self, size: int) -> int | None:
        begin = -(-self.used // ALIGNED) * ALIGNED
        if begin + size > len(self.window):
            return None
        self.used = begin + size
        return begin

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor | None:
        size = torch.Size(shape).numel() * dtype.itemsize
        begin = self.reserve(size) if size else None
        if begin is None:
            return None
        return torch.frombuffer(self.window, dtype=torch.uint8, count=size, offset=begin).view(dtype).view(shape)

    def offset(self, tensor: torch.Tensor) -> int | None:
        """Where in the slot a tensor begins, put there if it is not; None if it has to go another way."""
        begin = tensor.data_ptr() - self.start
        if 0 <= begin < self.used:
            return begin
        storage = tensor.untyped_storage()
        size = int(storage.nbytes())
        if storage._cdata not in self.copied:
            # A small piece of something large, or of what is shared already: torch sends a handle.
            if storage.is_shared() or size > 2 * tensor.numel() * tensor.itemsize:
                return None
            begun = self.reserve(size)
            if begun is None:
                return None
            source = torch.empty(0, dtype=torch.uint8, device="cpu").set_(storage, 0, (size,), (1,))
            torch.frombuffer(self.window, dtype=torch.uint8, count=size, offset=begun).copy_(source)
            self.copied[storage._cdata] = begun
        return self.copied[storage._cdata] + int(tensor.storage_offset()) * tensor.itemsize

    def copy(self, array: np.ndarray[Any, Any]) -> int | None:
        """Where in the slot a copy of an array begins; None if it has to go another way."""
        if type(array) is not np.ndarray or array.nbytes < SMALL or array.dtype.hasobject:
            return None
        # (Pickled, numbers in another machine's order come out in this one's: torch takes no others.)
        if not (array.flags.c_contiguous or array.flags.f_contiguous) or not array.dtype.isnative:
            return None
        begin = self.reserve(array.nbytes)
        if begin is not None:
            np.ndarray(array.shape, array.dtype, memoryview(self.window), begin, array.strides)[...] = array
        return begin


class Packer(ForkingPickler):
    """Pickles a batch; what lies in the slot is only named."""

    def __init__(self, file: io.BytesIO, page: SlotPage) -> None:
        super().__init__(file)
        self.page = page

    def reducer_override(self, value: Any) -> Any:
        if type(value) is torch.Tensor and _plain(value):
            begin = self.page.offset(value)
            if begin is not None:
                return tensor_in_slot, (begin, value.dtype, tuple(value.size()), value.stride())
        elif isinstance(value, np.ndarray):
            begin = self.page.copy(value)
            if begin is not None:
                return array_in_slot, (begin, value.dtype, value.shape, value.strides)
        return NotImplemented


def _plain(tensor: torch.Tensor) -> bool:
    if tensor.layout is not torch.strided or tensor.device.type != "cpu" or tensor.numel() == 0:
        return False
    return not (tensor.requires_grad or tensor.is_quantized or tensor.is_nested or tensor.is_conj() or tensor.is_neg())


class Assembler:
    """The collate function of a worker: the user's own, made in a slot of an arena. Elsewhere it is the user's own alone."""

    def __init__(self, collate_fn: Callable[[Any], Any], arena: Arena | None = None) -> None:
        self.collate_fn, self.arena = collate_fn, arena
        self._looks: dict[int, weakref.ref[SlotBytes]] = {}
        """Windows on slots that this worker's own code may still look at."""

    def __call__(self, samples: Any) -> Any:
        info = get_worker_info()
        # Called by the collate function of another one, it makes a batch for that one to hand over.
        arena = None if info is None or hasattr(_here, "page") else self._arena_here(info.num_workers)
        if info is None or arena is None:
            return self.collate_fn(samples)
        return self._parcel(samples, arena, self._free(arena, info.id % arena.workers))

    def _arena_here(self, workers: int) -> Arena | None:
        """What this one of so many ``workers`` writes into."""
        return self.arena

    def _parcel(self, samples: Any, arena: Arena, slot: int | None) -> Any:
        page = None
        if slot is not None:
            window = arena.window(slot)
            self._looks[slot] = weakref.ref(window)
            page = SlotPage(window)
        # `default_collate` stacks by a table of the whole process. To change that for one batch would change it for every thread
        # that makes samples meanwhile: it is changed once, before the worker's first batch, and never back, unless the user taught
        # it another way to stack tensors. Where a tensor goes is the calling thread's.
        if stacks_as_ever():
            stack_by(_stack)
        _here.page = page
        try:
            batch = self.collate_fn(samples)
        finally:
            del _here.page
        if slot is None or page is None:
            return batch
        file = io.BytesIO()
        Packer(file, page).dump(batch)
        if not page.used:
            # Not pickled again: each time torch does so, it keeps a descriptor open for each tensor until that is fetched.
            return Sent(unpickled, file.getvalue())
        arena.lend(slot)
        return self._sent(arena, slot, file.getvalue())

    def _sent(self, arena: Arena, slot: int, payload: bytes) -> Sent:
        return Sent(arrival, arena.key, slot, payload)

    def _free(self, arena: Arena, worker: int) -> int | None:
        free = (slot for slot in range(worker * arena.slots, (worker + 1) * arena.slots) if arena.is_free(slot))
        return next((slot for slot in free if (look := self._looks.get(slot)) is None or look() is None), None)


def empty_in_slot(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor | None:
    """Of the slot that this batch is made in: a tensor of whatever was there. None where there is no slot, or no room."""
    page: SlotPage | None = getattr(_here, "page", None)
    return None if page is None else page.empty(shape, dtype)


def _stack(batch: Any, *, collate_fn_map: Any = None) -> Any:
    """A batch of tensors, in the slot that this thread's batch is made in; elsewhere where torch puts it."""
    first = batch[0]
    room = empty_in_slot((len(batch), *first.size()), first.dtype) if type(first) is torch.Tensor and _plain(first) else None
    if room is None:
        assert collate_tensors is not None
        return collate_tensors(batch, collate_fn_map=collate_fn_map)
    return torch.stack(batch, 0, out=room)


class Sent:
    """What a worker sends. It arrives as what ``make`` gives for these arguments."""

    def __init__(self, make: Callable[..., Any], *arguments: Any) -> None:
        self._made = make, arguments

    def __reduce__(self) -> Any:
        return self._made


def unpickled(payload: bytes) -> Any:
    """A name that can be sent: while a look is taken a hook stands in the place of `pickle.loads`."""
    return pickle.loads(payload)


class Arrival:
    """A batch that has arrived. Dropped unopened, its slot is free again."""

    def __init__(self, arena: Arena, slot: int, payload: bytes) -> None:
        self._arena: Arena | None = arena
        """None where it was copied out of the slot."""
        self._slot, self._batch, self._error = slot, None, None
        # At once: the worker of a stream may end before the batch's turn comes, and what torch sends by handle is gone with it.
        self._window: SlotBytes | None = arena.lease(slot)
        _here.window = self._window
        try:
            self._batch = pickle.loads(payload)
        except Exception as error:  # noqa: BLE001 - of the user's own types; raised where the batch is asked for
            self._error = error
        finally:
            del _here.window

    def open(self) -> Any:
        if self._error is not None:
            raise self._error
        if self._arena is not None:
            self._arena.opened(self._slot)
        return self._batch

    def pin_memory(self) -> Arrival:
        """Called by torch's pinning thread: pinned copies are the caller's, and the slot is free at once where all of the batch was
        copied. Arrays, dataclasses and types of the user's own, which torch passes over, stay in it."""
        if self._error is None:
            assert self._window is not None
            self._batch = pin_memory(self._batch)
            look, self._window = weakref.ref(self._window), None
            if look() is None:
                self._arena = None
        return self


def arrival(arena: str, slot: int, payload: bytes) -> Arrival | None:
    """None where nobody waits for it any more."""
    known = arena_of(arena)
    return None if known is None else Arrival(known, slot, payload)


def tensor_in_slot(begin: int, dtype: torch.dtype, size: tuple[int, ...], stride: tuple[int, ...]) -> torch.Tensor:
    """A tensor of what lies in the slot that is being opened."""
    count = 1 + sum((length - 1) * step for length, step in zip(size, stride, strict=True))
    flat = torch.frombuffer(_here.window, dtype=dtype, count=count, offset=begin)
    return torch.empty(0, dtype=dtype, device="cpu").set_(flat.untyped_storage(), 0, size, stride)


def array_in_slot(begin: int, dtype: Any, shape: tuple[int, ...], strides: tuple[int, ...]) -> np.ndarray[Any, Any]:
    return np.ndarray(shape, dtype, _here.window, begin, strides)
