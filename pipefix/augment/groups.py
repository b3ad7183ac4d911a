"""Brings together what the samples of a batch call: those that call the same function at the same point of the list are a group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from pipefix.augment import color
from pipefix.augment.batched import BY_NAME, BatchedOp
from pipefix.augment.record import OutlinedCall, apart, outline_of


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
    """All numbers in one copy from pinned memory, which nobody waits for."""
    every = [column for group in groups for column in (group.there, *group.columns.values())]
    if not every:
        return
    flat = torch.cat([column.double().flatten() for column in every]).pin_memory()
    pieces = iter(flat.to(device, non_blocking=True).split([column.numel() for column in every]))
    for group in groups:
        group.there = next(pieces).long()
        group.columns = {name: next(pieces).view(column.shape) for name, column in group.columns.items()}
