"""What is drawn for a batch: steps with their parameters fixed, and the samples that each is for. No randomness is left in them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

GEOMETRIC = frozenset(
    ("resize", "crop", "center_crop", "resized_crop", "pad", "hflip", "vflip", "rotate", "affine", "perspective", "elastic")
)
"""Steps that masks and boxes follow."""


@dataclass(frozen=True)
class DrawnStep:
    """One operation with fixed parameters, on some samples of a batch."""

    name: str
    rows: Any
    """Positions of its samples in the batch, ascending."""
    values: dict[str, Any] = field(default_factory=dict)
    """Parameters that differ from sample to sample: arrays whose first dimension is that of the rows."""
    fixed: dict[str, Any] = field(default_factory=dict)
    """Parameters that are the same for all."""

    def only(self, position: int) -> DrawnStep:
        """The same for the sample at ``position`` of its rows."""
        row = slice(position, position + 1)
        return DrawnStep(self.name, self.rows[row], {key: value[row] for key, value in self.values.items()}, self.fixed)

    def alone(self, position: int) -> DrawnStep:
        """The same for that sample in a batch of its own; the steps within it too."""
        row = self.rows[position]
        only = self.only(position)
        fixed = dict(self.fixed)
        if self.name == "blend":
            fixed["chains"] = [
                [step.alone(int(place)) for step in chain for place in np.flatnonzero(step.rows == row)]
                for chain in fixed["chains"]
            ]
        return DrawnStep(self.name, np.zeros(1, np.int64), only.values, fixed)

    def scalars(self, position: int) -> dict[str, Any]:
        """All parameters of the sample at ``position``, as Python values."""
        return {**{key: value[position].tolist() for key, value in self.values.items()}, **self.fixed}


@dataclass
class Frame:
    """The samples that a step may be drawn for, and how large their pictures are by then."""

    rows: Any
    channels: Any
    height: Any
    width: Any

    @classmethod
    def of(cls, sizes: Any) -> Frame:
        """From (channels, height, width) of every sample."""
        table = np.asarray(sizes, dtype=np.int64).reshape(-1, 3)
        return cls(np.arange(len(table)), *(table[:, column].copy() for column in range(3)))

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, chosen: Any) -> Frame:
        return Frame(self.rows[chosen], self.channels[chosen], self.height[chosen], self.width[chosen])

    def put(self, chosen: Any, part: Frame) -> None:
        """Sizes that changed in a part of it."""
        self.channels[chosen], self.height[chosen], self.width[chosen] = part.channels, part.height, part.width

    def step(self, name: str, values: dict[str, Any] | None = None, **fixed: Any) -> DrawnStep:
        """A step for all of these samples."""
        return DrawnStep(name, self.rows, values or {}, fixed)


def programs_of(steps: list[DrawnStep], count: int) -> list[list[tuple[DrawnStep, int]]]:
    """For each sample its steps, and its position in each."""
    programs: list[list[tuple[DrawnStep, int]]] = [[] for _ in range(count)]
    for step in steps:
        if step.name != "of_boxes":
            for position, row in enumerate(step.rows):
                programs[row].append((step, position))
    return programs
