"""Makes a batch by fused calls, in threads of this process or in a worker process.

A fused call writes a picture straight into the batch, in reusable memory. What it leaves over is made by the dataset's
own code, under the loader's rules, where the batch is put together: under its own random numbers, which are set for the process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import default_collate

from pipefix.hooks.torch_internals import stacks_as_ever
from pipefix.kernels.request import Target
from pipefix.kernels.reused import Memory
from pipefix.loader.fusing.stand_in import collated, paths
from pipefix.loader.policy import read_policy
from pipefix.loader.slots.batch_in_slot import empty_in_slot
from pipefix.vocabulary.nested import with_at

if TYPE_CHECKING:
    from pipefix.loader.fusing.source import FusedSource


class UnfinishedBatch:
    """The samples of a batch: their pictures in one tensor, the rest of each, and which of them are not made."""

    def __init__(self, source: FusedSource, request: read_policy.Asked, pictures: torch.Tensor) -> None:
        self.source, self.indices, seed = source, list(request.index), request.seed or 0
        self.keys = [read_policy.key_of(seed, epoch, index) for epoch, index in request.each(self.indices)]
        self.key = read_policy.batch_key(seed, request.epoch, self.indices)
        """Of what the user's own collate function draws."""
        self.target = Target(pictures)
        self.rests: list[Any] = [None] * len(self.indices)
        """Samples but for their pictures."""
        self.left: dict[int, Exception] = {}
        """Places that are not made, and why."""

    def make(self, place: int) -> None:
        try:
            self.rests[place] = self.source.begin(self.indices[place], self.keys[place], self.target, place)
        except Exception as error:  # noqa: BLE001 - raised again, or lived with, when the batch is put together
            self.left[place] = error

    def together(self, rules: read_policy.ReadPolicy, collate: Callable[[Any], Any] | None) -> Any:
        """The batch; `FlawedBatch` where samples could not be read and that is lived with. ``collate``: the user's own."""
        flaws: dict[int, read_policy.QuarantinedSample] = {}
        for place in sorted(self.left):
            index, why = self.indices[place], self.left[place]
            try:
                if isinstance(why, read_policy.SampleTimeout):
                    raise why
                with read_policy.limited(rules.seconds, index):
                    self.rests[place] = self.source.finish(index, self.keys[place], self.target, place, why)
            except Exception as error:  # noqa: BLE001 - raised, or written down as the rules say
                flaws[place] = read_policy.bad(self.source.dataset, index, error)
                if rules.on_bad == "raise":
                    raise named(error, flaws[place]) from None
        pictures, rests = self.target.tensor, self.rests
        good = [place for place in range(len(rests)) if place not in flaws]
        bad_samples = tuple(flaws.values())
        if not good and flaws:
            return read_policy.FlawedBatch(None, bad_samples, empty=True)
        if flaws and rules.on_bad == "refill":
            # The batch's other samples, in their order: a rank meets only what is its own.
            for number, hole in enumerate(flaws):
                donor = good[number % len(good)]
                pictures[hole].copy_(pictures[donor])
                rests[hole] = rests[donor]
        elif flaws:
            pictures, rests = pictures[good], [rests[place] for place in good]
        if collate is None:
            batch = collated(rests, pictures)
        else:
            with read_policy.drawing(self.key):
                batch = collate([with_at(rest, paths(rest)[0], picture) for rest, picture in zip(rests, pictures, strict=True)])
        return read_policy.FlawedBatch(batch, bad_samples, empty=False) if flaws else batch


def named(error: Exception, bad_sample: read_policy.QuarantinedSample) -> Exception:
    """The user's error, which says of which sample it is where it does not."""
    where = f"sample {bad_sample.index}" + (f", {bad_sample.source}" if bad_sample.source else "")
    if bad_sample.source and bad_sample.source in str(error):
        return error
    if len(error.args) == 1 and isinstance(error.args[0], str):
        error.args = (f"{error.args[0]} ({where})",)
    elif hasattr(error, "add_note"):
        error.add_note(f"It is {where}.")
    return error


def own_collate(collate: Any) -> Callable[[Any], Any] | None:
    """The collate function, unless it is torch's own and does what torch's does."""
    return None if collate is default_collate and stacks_as_ever() else collate


# -- in worker processes -----------------------------------------------------------------------------------------------------


class FusedOrder:
    """A batch that is to be made. It is as long as the batch: who counts samples may ask it."""

    def __init__(self, source: FusedSource, rules: read_policy.ReadPolicy, request: read_policy.Asked) -> None:
        self.source, self.rules, self.asked = source, rules, request

    def __len__(self) -> int:
        return len(self.asked.index)


class FusedOrders(read_policy.PolicedDataset):
    """Stands for the dataset in a worker: takes orders for batches, and leaves them to `FusedCollate`."""

    def __init__(self, source: FusedSource, rules: read_policy.ReadPolicy) -> None:
        super().__init__(source.dataset, rules)
        self.source = source

    def __getitems__(self, request: read_policy.Asked) -> Any:
        return FusedOrder(self.source, self.rules, request)


class FusedCollate:
    """The collate function of a worker that makes fused batches."""

    def __init__(self, collate: Any) -> None:
        self.collate, self._memory = collate, Memory()

    def __call__(self, order: FusedOrder) -> Any:
        source, rules, request = order.source, order.rules, order.asked
        shape = (len(order), 3, source.height, source.width)
        pictures = empty_in_slot(shape, source.kind)
        if pictures is None:
            pictures = self._memory.batch(shape, source.kind)
        parts = UnfinishedBatch(source, request, pictures)
        for place, index in enumerate(parts.indices):
            with read_policy.limited(rules.seconds, index):
                parts.make(place)
        return parts.together(rules, own_collate(self.collate))
