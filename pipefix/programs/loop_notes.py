"""`LoopNotes`: what one process noted of one loop, as read from its file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any


@dataclass
class LoopNotes:
    loader: str
    """The line that made it; empty for optimizer steps outside any loop over a loader."""
    process: dict[str, Any]
    facts: dict[str, Any]
    blocks: list[dict[str, Any]] = field(default_factory=list)
    """About half a second each, the first ones less, and those of a long run more."""
    epochs: list[dict[str, Any]] = field(default_factory=list)
    """Their beginnings and ends."""
    checksums: list[int] = field(default_factory=list)
    """Of the first batches of its first epoch; empty where nothing is known of them."""
    tensors: int = 0
    """Of its first batch."""
    in_turn: list[LoopNotes] = field(default_factory=list)
    """Loops of this process whose batches its steps work on as well: of two loaders, one batch each in turn."""
    from_memory: bool = False
    """Whether the program trained on when it had gone through the loader once, and never asked it again."""
    idle_workers: int = 0
    """Those that had left when the others were at their fourth batch."""

    def take(self, event: dict[str, Any]) -> None:
        match event["event"]:
            case "steps":
                self.blocks.append(event)
            case "epoch" | "epoch ended":
                self.epochs.append(event)
            case "batches":
                self.checksums = event["checksums"]
            case "batch":
                self.tensors = event["tensors"]
            case "from memory":
                self.from_memory = True
            case "idle workers":
                self.idle_workers = event["workers"]

    def part_off(self) -> LoopNotes | None:
        """Its epochs in which nothing was trained, where it trains in others: an evaluation on the same samples, a look at all.

        Of two iterators that are gone through at once, one may only be asked beside the other.
        """
        runs = [(epoch, [*blocks]) for epoch, blocks in groupby(self.blocks, key=lambda block: block.get("epoch", 0))]
        trained = {epoch for epoch, blocks in runs if _have_stepped(blocks)}
        together = {epoch for epoch, count in Counter(epoch for epoch, _ in runs).items() if count > 1}
        aside = {epoch for epoch, blocks in runs if epoch and total(blocks, "steps") > 1} - trained - together
        if not trained or not aside or self.in_turn or not self.facts.get("main_thread", True):
            return None
        parted = LoopNotes(self.loader, self.process, self.facts)
        for events, others in ((self.blocks, parted.blocks), (self.epochs, parted.epochs)):
            others += [event for event in events if event.get("epoch") in aside]
            events[:] = [event for event in events if event.get("epoch") not in aside]
        for name in _AROUND:
            self.blocks[0][name] = self.blocks[0].get(name, 0) + parted.total(name)
            parted.blocks = [{**block, name: 0} for block in parted.blocks]
        for notes in (self, parted):
            lines = [epoch["iterated"] for epoch in notes.epochs if "iterated" in epoch]
            notes.facts = {**notes.facts, "iterated": (lines or [self.place[1]])[0]}
        return parted

    def leave_out(self, seconds: float, end: float) -> None:
        """A wait for another rank that stood still for so long, until ``end``; nothing where none of its blocks has that in it."""
        around = [block for block in self.blocks if end - seconds < block["at"] and block["at"] - _length(block) < end]
        block = max(around, key=_length, default=None)
        if block is None or block["step_s"] < seconds / 2:
            return
        part = max(("forward_s", "backward_s", "optimizer_s"), key=lambda part: block.get(part, 0.0))
        for name in ("step_s", *([part] if block.get(part, 0.0) >= seconds / 2 else [])):
            block[name] = max(0.0, block[name] - seconds)
        block["on_device"], block["on_device_steps"] = {}, 0  # of the step in which it waited

    @property
    def place(self) -> tuple[str, str, int]:
        """Where its loaders are made and where they are gone through, and which loop it is of those: the same on every rank."""
        return self.loader, self.facts.get("iterated", ""), self.facts.get("nth", 1)

    @property
    def rank(self) -> int | None:
        rank = str(self.process.get("rank") or "")
        return int(rank) if rank.isdigit() else None

    @property
    def workers(self) -> int:
        """Processes that make its batches."""
        return int(self.facts.get("workers") or 0)

    @property
    def waits(self) -> bool:
        """Whether the program waits where this loop does: it is gone through where the program trains."""
        return bool(self.facts.get("main_thread", True) or self.total("steps_in_thread"))

    def total(self, name: str) -> float:
        return total(self.blocks, name)

    @property
    def seconds(self) -> float:
        """Of waits and steps, without loops inside them."""
        return max(0.0, self.total("wait_s") + self.total("step_s") - self.total("inner_s"))

    @property
    def first_s(self) -> list[float]:
        """Waits for the first batches of its epochs."""
        return [spent for block in self.blocks for spent in block["first_s"]]

    @property
    def role(self) -> str:
        """training, evaluation, or unknown: also where a thread takes batches ahead for another that trains."""
        if not self.waits:
            return "unknown"
        steps = self.total("steps")
        evaluates = self.total("without_gradients") > steps / 2 or self.total("calls_without_gradients")
        # A check now and then in the steps of another loop: these go on after it, with that loop's batch.
        between_others = any(other.total("steps") > 2 * steps for other in self.in_turn)
        if _have_stepped(self.blocks) and not (evaluates and between_others):
            return "training"
        if evaluates:
            return "evaluation"
        return "training" if any(_have_stepped(other.blocks) for other in self.in_turn) else "unknown"


_AROUND = ("between_s", "saved_s", "saved_outside_s", "saved_between_s")
"""What is done between its epochs, and belongs to the training."""


def _have_stepped(blocks: list[dict[str, Any]]) -> bool:
    return bool(total(blocks, "optimizer_steps") or total(blocks, "backward_s"))


def _length(block: dict[str, Any]) -> float:
    return float(block["wait_s"] + block["step_s"])


def total(blocks: Iterable[dict[str, Any]], name: str) -> float:
    return float(sum(block.get(name, 0.0) for block in blocks))
