"""Settings of the loader: how many workers and how they start and stay, pinning, the order of batches, threads."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from pipefix.fixes.fixer import Fixer, Place
from pipefix.plan.plan import Proposed
from pipefix.plan.planfile import LoaderChange, PlanFile


class Retune(Fixer):
    """What `pipefix.plan.remedies` proposes as arguments of the DataLoader."""

    SETTINGS: ClassVar[dict[str, dict[str, Any]]] = {
        "persistent-workers": {"persistent_workers": True},
        "start-method": {"start_method": "forkserver"},
        "tail-scheduling": {"in_order": False},
        "pinning": {"pin_memory": True},
        "thread-caps": {"worker_threads": 1},
    }
    remedies = frozenset({"workers", *SETTINGS})

    def refuses(self, step: Proposed, place: Place) -> str | None:
        if step.frees is not None:
            return f"it gains no time (it frees {step.frees}), and here only what is faster is kept"
        return None

    def alters(self, step: Proposed) -> str | None:
        return "batches come in another order from run to run" if step.id == "tail-scheduling" else None

    def plan(self, step: Proposed, place: Place) -> PlanFile:
        now = place.plan.loader or LoaderChange()
        return msgspec.structs.replace(place.plan, loader=msgspec.structs.replace(now, **self.settings(step.id)))

    def settings(self, id: str) -> dict[str, Any]:
        if id in self.SETTINGS:
            return self.SETTINGS[id]
        return {"num_workers": int(id.rpartition("-")[2])}
