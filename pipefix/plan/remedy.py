"""The base class of remedies, and `all_remedies`, which finds them in `pipefix.plan.remedies`."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable
from typing import Any, ClassVar

from pipefix.plan.case import Case
from pipefix.plan.plan import UNKNOWN, Declined, Proposed, Step
from pipefix.plan.planfile import Change
from pipefix.vocabulary.gain import Gain, Modelled, Told
from pipefix.vocabulary.quantity import Interval
from pipefix.vocabulary.stage import Stage

WORTH_TRYING = 0.1
"""Share of a sample's making that a remedy must replace, or what it would bring is not tried beside the pipeline."""

NAMED = ("id", "stage", "title", "relieves")


class Remedy:
    """One kind of change. Subclasses lie in `pipefix.plan.remedies`, where `all_remedies` finds them."""

    id: ClassVar[str]
    stage: ClassVar[Stage]
    title: ClassVar[str]
    every_epoch: ClassVar[bool] = False
    relieves: ClassVar[tuple[Stage, ...]] = ()
    """Stages besides its own that cost less with it."""
    change: ClassVar[Change | None] = None
    """What it merges into a plan file, where that is always the same."""
    by_hand: ClassVar[str] = ""
    """Why only the user's own code can make the change."""

    def judge(self, case: Case) -> Iterable[Step]:
        """All that it has to say: one answer, but for remedies with several forms."""
        yield self.answer(case)

    def answer(self, case: Case) -> Step:
        """Proposed with what it would be worth, or declined with the reason."""
        raise NotImplementedError(f"{type(self).__name__} gives no answer")

    def proposed(self, why: str, gain: Told | Interval, command: str, **more: Any) -> Proposed:
        """``gain``: an interval alone is the model's. ``more``: what else `Proposed` says, also in place of what the remedy is."""
        own = {name: getattr(self, name) for name in (*NAMED, "every_epoch", "change", "by_hand")}
        told = Modelled(gain) if isinstance(gain, Interval) else gain
        return Proposed(**{**own, **more}, why=why, gain=told, command=command)

    def declined(self, why: str, gain: Gain | Interval = UNKNOWN, **more: Any) -> Declined:
        known = Modelled(gain) if isinstance(gain, Interval) else gain
        own = {name: getattr(self, name) for name in NAMED}
        return Declined(**{**own, **more}, why=why, gain=known)


def all_remedies() -> list[type[Remedy]]:
    """Every remedy, by walking the package."""
    from pipefix.plan import remedies

    modules = [importlib.import_module(f"{remedies.__name__}.{info.name}") for info in pkgutil.iter_modules(remedies.__path__)]
    values = [value for module in modules for value in vars(module).values() if isinstance(value, type)]
    kinds = {value for value in values if issubclass(value, Remedy) and "id" in vars(value)}
    return sorted(kinds, key=lambda kind: (list(Stage).index(kind.stage), kind.id))
