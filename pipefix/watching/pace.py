"""The slow-down that all computing stages share, as on a busier or slower machine. Pure.

A stage's figure is held against its level without that part, so that a neighbour's load is no drift of the stage, and hides none.
The part itself is a figure of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import median

from pipefix.vocabulary.stage import Stage

COMPUTING = (Stage.DECODE.value, Stage.AUGMENT.value, Stage.COLLATE.value)
FELT = (*COMPUTING, Stage.IPC.value)
"""Whose figures the machine's load is taken out of."""
LEAST = 2
"""Other stages that must agree before anything is thought to be shared."""
BY_CHANCE, BELIEVED = 0.03, 0.07
"""What all of them show is chance up to the one, and the machine's from the other on; between the two a part of it is."""


class SharedPace:
    """Fed the logarithms of each window's figures; tells how far they lie from the job's beginning together."""

    def __init__(self, learn: int) -> None:
        self._learn = learn
        self._taught: dict[str, list[float]] = {}
        self._excess: dict[str, float] = {}

    def feed(self, values: Mapping[str, float]) -> None:
        self._excess = {}
        for name in COMPUTING:
            if name in values:
                taught = self._taught.setdefault(name, [])
                if len(taught) < self._learn:
                    taught.append(values[name])
                self._excess[name] = values[name] - median(taught)

    def felt_by(self, name: str) -> float:
        """The part of a stage's figure that all others which compute show too."""
        others = [excess for figure, excess in self._excess.items() if figure != name]
        if name not in FELT or len(others) < LEAST:
            return 0.0
        agreed = _agreed(others)
        return agreed * max(0.0, min(1.0, (abs(agreed) - BY_CHANCE) / (BELIEVED - BY_CHANCE)))

    @property
    def all(self) -> float | None:
        """Their middle, as far as all of them agree; None where too few have figures."""
        if len(self._excess) <= LEAST:
            return None
        most = 2 * abs(_agreed(self._excess.values()))
        return max(-most, min(most, median(self._excess.values())))

    @property
    def usual(self) -> Mapping[str, float]:
        """Logarithms of seconds a sample, as they were in the job's beginning."""
        return {name: median(self._taught[name]) for name in self._excess}


def _agreed(excesses: Iterable[float]) -> float:
    """As much as every one of them lies above, or below: one that drifts by itself says nothing of the others."""
    values = list(excesses)
    return max(0.0, min(values)) + min(0.0, max(values))
