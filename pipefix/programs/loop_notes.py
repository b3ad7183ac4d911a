"""`LoopNotes`: what one process noted of one loop, as read from its file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any


@dataclass
class LoopNotes:
    loader: str
    """The line that made it; empty for optimizer steps outside any loop over a loader."""
    process: dict[str, Any]
    facts: dict[str, Any]
    blocks: list[dict[str, Any]] = field(default_factory=list)
    """About half a second each, the first ones less."""
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
        if self._stepped and not (evaluates and between_others):
            return "training"
        if evaluates:
            return "evaluation"
        return "training" if any(other._stepped for other in self.in_turn) else "unknown"

    @property
    def _stepped(self) -> bool:
        return bool(self.total("optimizer_steps") or self.total("backward_s"))


def _length(block: dict[str, Any]) -> float:
    return float(block["wait_s"] + block["step_s"])


def total(blocks: Iterable[dict[str, Any]], name: str) -> float:
    return float(sum(block.get(name, 0.0) for block in blocks))
