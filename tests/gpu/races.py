"""Loaders of every engine beside a step that lags behind, or copies that do, on a fake device in race mode: what each step read.

The step here is a copy of the batch on the step's stream: nothing else computes on that device.
"""

from __future__ import annotations

import ctypes
import itertools
import warnings
from typing import Any

import torch
from torch.utils.data import Dataset

from pipefix.loader import fast_loader
from pipefix.loader.device import Carrier
from pipefix.loader.fast_loader import FastLoader
from tests.gpu.batches import KINDS, UNSHARED, by_hand, values_of

EACH = 6
"""Batches of a kind, one after the other: so many that memory comes round again."""
ENGINES: dict[str, dict[str, Any]] = {
    "in this process": {"num_workers": 0},
    "processes": {"num_workers": 2, "engine": "processes"},
    "torch": {"num_workers": 1, "engine": "torch"},
    "threads": {"num_workers": 1, "threads_per_worker": 2},
}


class Numbers(Dataset[int]):
    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> int:
        return index


class MadeOf:
    """A collate function: batch after batch of one kind, then of the next."""

    def __init__(self, kinds: list[str]) -> None:
        self.kinds = kinds

    def __call__(self, numbers: list[int]) -> Any:
        (number,) = numbers
        return KINDS[self.kinds[number // EACH]](number % EACH + 1)


def wrong(kinds: list[str], engine: dict[str, Any], *, pin: bool, moved: bool) -> list[str]:
    """What steps read that was not their batch's; ``moved``: the loader brings batches to the device, else the user does."""
    loader: FastLoader[Any] = FastLoader(
        Numbers(EACH * len(kinds)), batch_size=1, collate_fn=MadeOf(kinds), pin_memory=pin,
        device="cuda" if moved else None, **engine,
    )  # fmt: skip
    read: list[list[torch.Tensor]] = []
    places: list[set[str]] = []
    for batch in loader:
        there = batch if moved else by_hand(batch)
        del batch
        values = list(values_of(there))
        places.append({value.device.type for value in values})
        read.append([value.clone() for value in values])
        torch.cuda._sleep(1000)
        del there, values
    torch.cuda.synchronize()
    found = []
    for number, tensors in enumerate(read):
        kind, wanted = kinds[number // EACH], number % EACH + 1
        seen = sorted({int(value) for tensor in tensors for value in tensor.cpu().unique()})
        if seen != [wanted] or places[number] != {"cuda"}:
            found.append(f"{kind}: batch {wanted} was read as {seen} on {sorted(places[number])}")
    if len(read) != EACH * len(kinds):
        found.append(f"{len(read)} batches came")
    return found


def walk() -> dict[str, Any]:
    """Every kind, engine, pinning and way to the device."""
    warnings.simplefilter("ignore")
    torch.zeros(1, device="cuda")
    combinations, found = 0, []
    for (name, engine), pin, moved in itertools.product(ENGINES.items(), (False, True), (False, True)):
        kinds = [kind for kind in KINDS if not (kind in UNSHARED and name in ("processes", "torch", "threads"))]
        combinations += len(kinds)
        found += [f"{name}, pin_memory={pin}, device={moved}: {one}" for one in wrong(kinds, engine, pin=pin, moved=moved)]
    return {"combinations": combinations, "wrong": found, "waits": getattr(ctypes.CDLL(None), "fake_waits", int)()}


# -- mutants ------------------------------------------------------------------------------------------------------------------


class NoRecord(Carrier):
    """Does not tell the allocator that the step's stream uses the memory."""

    def end(self, begun: tuple[Any, Any]) -> Any:
        there, event = begun
        torch.cuda.current_stream(self.device).wait_event(event)
        return there


class RecordsTopOnly(Carrier):
    """Does not look into objects that move themselves."""

    def end(self, begun: tuple[Any, Any]) -> Any:
        there, event = begun
        current = torch.cuda.current_stream(self.device)
        current.wait_event(event)
        for value in there if isinstance(there, (list, tuple)) else [there]:
            if isinstance(value, torch.Tensor):
                value.record_stream(current)
        return there


class NoWait(Carrier):
    """Does not let the step's stream wait for the copy."""

    def end(self, begun: tuple[Any, Any]) -> Any:
        there, _ = begun
        for value in values_of(there):
            value.record_stream(torch.cuda.current_stream(self.device))
        return there


class OneBuffer(Carrier):
    """Writes the next batch into the pinned memory that the copy before may still read."""

    buffers: dict[tuple[Any, ...], torch.Tensor] = {}

    def _copied(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.layout is not torch.strided:
            return super()._copied(tensor)
        key = (tensor.shape, tensor.dtype)
        if key not in self.buffers:
            self.buffers[key] = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        return self.buffers[key].copy_(tensor).to(self.device, non_blocking=True)


class WrongStream(Carrier):
    """Waits for the copy on the stream of the copies."""

    def end(self, begun: tuple[Any, Any]) -> Any:
        with torch.cuda.stream(self._stream):
            return super().end(begun)


MUTANTS = {kind.__name__: kind for kind in (Carrier, NoRecord, RecordsTopOnly, NoWait, OneBuffer, WrongStream)}


def with_mutants() -> dict[str, int]:
    """How much of the batches was wrong, by mutant."""
    torch.zeros(1, device="cuda")
    found = {}
    for name, kind in MUTANTS.items():
        fast_loader.Carrier = kind  # type: ignore[misc]
        found[name] = len(wrong(["tensor", "graph"], ENGINES["in this process"], pin=False, moved=True))
    return found


# -- fused calls --------------------------------------------------------------------------------------------------------------


def fused(folder: str) -> dict[str, Any]:
    """Pictures that fused calls write into reusable memory, against those of a loader that leaves them where they are."""
    from torchvision.datasets import ImageFolder
    from torchvision.transforms import v2

    crop = v2.Compose([v2.ToImage(), v2.CenterCrop(32), v2.ToDtype(torch.float32, scale=True)])
    dataset = ImageFolder(folder, crop)
    wanted = [pictures.clone() for pictures, _ in FastLoader(dataset, batch_size=4)]
    torch.zeros(1, device="cuda")
    found: dict[str, Any] = {"wrong": [], "told": {}}
    for (name, engine), pin, moved in itertools.product(FUSED.items(), (False, True), (False, True)):
        loader = FastLoader(dataset, batch_size=4, fuse="exact", pin_memory=pin, device="cuda" if moved else None, **engine)
        read = []
        for batch in loader:
            there = batch if moved else by_hand(batch)
            del batch
            read.append(there[0].clone())
            torch.cuda._sleep(1000)
            del there
        torch.cuda.synchronize()
        found["told"][name] = loader.explain()
        for number, (one, other) in enumerate(zip(read, wanted, strict=True)):
            if not torch.equal(one.cpu(), other):
                found["wrong"].append(f"{name}, pin_memory={pin}, device={moved}: batch {number}")
    return found


FUSED: dict[str, dict[str, Any]] = {
    "in this process": {"num_workers": 0},
    "threads": {"num_workers": 2},
    "processes": {"num_workers": 2, "engine": "processes"},
}
