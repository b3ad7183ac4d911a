"""What a fixer is: it turns one kind of remedy into a changed plan, and makes what that plan needs on the disk."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pipefix.fixes.builder import Builder, Say
from pipefix.plan.plan import Proposed
from pipefix.plan.planfile import PlanFile
from pipefix.subject.subject import Subject
from pipefix.system.machine import Machine


@dataclass(frozen=True)
class FixContext:
    """Where a remedy is to be applied."""

    subject: Subject
    """The pipeline as the user wrote it, without any plan."""
    plan: PlanFile
    """What is in effect already."""
    folder: Path
    """Where the plan lies, and what it names."""
    machine: Machine
    builder: Builder | None = None
    """Makes caches; without one this process does."""


class Fixer(ABC):
    """One kind of change. Subclasses lie in this package, where `registry.all_fixers` finds them."""

    remedies: ClassVar[frozenset[str]]
    """Ids of the remedies that it applies; ``workers`` stands for ``workers-8`` too."""
    last: ClassVar[bool] = False
    """What it makes of the pipeline is not seen into by a probe, so that it comes after everything else, and ends the run."""

    def refuses(self, step: Proposed, context: FixContext) -> str | None:
        """Why it cannot be done here; None where it can be tried."""
        return None

    def alters(self, step: Proposed) -> str | None:
        """What training sees afterwards that it did not before; None where samples stay what they were."""
        return None

    @abstractmethod
    def plan(self, step: Proposed, context: FixContext) -> PlanFile:
        """The plan with the step in it."""

    def makes(self, step: Proposed, context: FixContext) -> str | None:
        """What will lie on the disk, relative to the folder."""
        return None

    def make(self, step: Proposed, context: FixContext, say: Say) -> None:
        """Make it, where there is anything to be made. Raises what stands in the way."""
        return


def kind_of(id: str, known: frozenset[str]) -> str | None:
    """``workers-8`` -> ``workers``, ``fuse-exact`` -> ``fuse``, where that is known."""
    head = id.rpartition("-")[0]
    return id if id in known else head if head in known else None
