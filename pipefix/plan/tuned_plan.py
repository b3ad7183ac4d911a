"""Writes what a tuning found into the plan file, in place of what stood there; keeps what it did not look at."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import msgspec

from pipefix.plan import backups, planfile
from pipefix.plan.planfile import BeforeAfter, LoaderChange, PlanFile

NEVER_SEARCHED = ("fuse", "start_method")
"""Settings that `fix` writes, and tuning has no trials for."""
_OF_NO_SETTING = ("evidence", "in_order")
"""Not to be kept because it was declined: who asks for ``--keep-order`` wants no plan that gives it up."""


def new_plan(
    new: PlanFile, older: PlanFile | None, changes: dict[str, Any], evidence: BeforeAfter | None, declined: Collection[str], *,
    follows: bool = False,
) -> PlanFile:  # fmt: skip
    """``new``, which says what for, where and when, with settings. ``older``: of the same target; None where there is none.
    ``follows``: what was tuned has its settings already, and ``changes`` are changes of them."""
    before = older.loader if older is not None else None
    names = [name for name in LoaderChange.__struct_fields__ if name in declined and name not in _OF_NO_SETTING]
    names = [name for name in LoaderChange.__struct_fields__ if name != "evidence"] if follows else [*NEVER_SEARCHED, *names]
    kept = {name: getattr(before, name) for name in names} if before is not None else {}
    settings = {name: value for name, value in kept.items() if value is not None} | changes
    loader = LoaderChange(**settings, evidence=evidence if changes else None) if settings else None
    older = older or new
    return msgspec.structs.replace(new, loader=loader, cache=older.cache, augmentation=older.augmentation)


def given_up(older: PlanFile | None, plan: PlanFile) -> list[str]:
    """The older plan's settings that the new one does not repeat, as they stand in the file."""
    if older is None or older.loader is None:
        return []
    now = plan.loader or LoaderChange()
    before = {name: getattr(older.loader, name) for name in LoaderChange.__struct_fields__ if name != "evidence"}
    gone = {name: value for name, value in before.items() if value not in (None, getattr(now, name))}
    return [f"{name} = {msgspec.json.encode(value).decode()}" for name, value in gone.items()]


def write(plan: PlanFile, path: Path) -> Path | None:
    """Write the plan; where one lies there, with a numbered backup of it, which is returned."""
    path = path.resolve()
    if not path.exists():
        planfile.write(plan, path)
        return None
    return backups.before(path, backups.replace(path, planfile.encode(plan)))
