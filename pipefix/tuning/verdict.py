"""Whether the winner of a search really beats the settings that it began with: both are measured once more, side by side. Pure."""

from __future__ import annotations

import math

from pipefix.tuning.results import Goal, Trial
from pipefix.tuning.space import Settings
from pipefix.vocabulary.quantity import percent

SURE = 1.64
"""Standard deviations by which a gain must exceed nothing: one in twenty who gain nothing is believed to."""


def beaten(start: Trial, winner: Trial, goal: Goal) -> str | None:
    """Why the start is kept; None where it is beaten."""
    if start.settings.normal() == winner.settings.normal():
        return "no settings were found that are better"
    if not start.ran:
        return None
    if not winner.ran:
        return f"the settings found did not run again: {winner.reason}"
    fed = winner.stall is not None and winner.stall <= goal.stall
    start_fed = start.stall is not None and start.stall <= goal.stall
    if fed and start_fed:
        return None if takes_less(winner.settings, start.settings) else "the consumer is fed as it is, with no more than is needed"
    if fed:
        return None
    gain = math.log(winner.level / start.level)
    doubt = math.hypot(winner.doubt, start.doubt)
    if gain > SURE * doubt:
        return None
    if gain > -0.01 and takes_less(winner.settings, start.settings) and not start_fed:
        return None
    comparison = "more, which is within the noise" if gain > 0 else "less"
    return f"measured side by side, the settings found deliver {percent(abs(math.expm1(gain)))} {comparison}"


def takes_less(settings: Settings, reference: Settings) -> bool:
    """Fewer workers, or as many with less in flight."""
    return (settings.workers, settings.in_flight) < (reference.workers, reference.in_flight)
