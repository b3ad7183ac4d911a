"""How a figure is known. It travels with the figure, so that nothing is worded or drawn as measured that was not."""

from __future__ import annotations

from enum import StrEnum


class EvidenceKind(StrEnum):
    MEASURED = "measured"
    """What the figure speaks of really ran."""
    BOUNDED = "bounded"
    """It did not run; what else was measured leaves at most this."""
    MODELLED = "modelled"
    """Computed by the model from what was measured."""
    NOT_TRIED = "not tried"
    """Nothing is known."""


FEWEST_RESAMPLED = 5
"""Blocks that a share of resamples must rest on: resampling fewer repeats the same few again and again."""
FEWEST_FOR_INTERVAL = 2
"""Blocks that an interval must rest on: one block says nothing of how far blocks differ."""
