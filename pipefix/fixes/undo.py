"""The way back: the newest backup of the plan is put in its place, and caches that no plan names any more are removed."""

from __future__ import annotations

from pathlib import Path

from pipefix.fixes import caches_made
from pipefix.fixes.log import Log
from pipefix.fixes.outcome import Undone
from pipefix.plan import backups, planfile
from pipefix.vocabulary import files
from pipefix.vocabulary.errors import BadUsage


def settle(folder: Path) -> int | None:
    """Clear up what an interrupted run left of its writing. The number of a change that was begun and never made."""
    files.remove_drafts(folder)
    return backups.drop_unused(folder / planfile.NAME)


def undo(folder: Path) -> Undone:
    """Take back the last change of the plan; or, after an interruption, no more than what that left."""
    plan = folder / planfile.NAME
    if not backups.numbers(plan) and not caches_made.unused(folder):
        raise BadUsage(
            f"There is nothing to take back in {folder}: no backup of a plan (pipefix.plan.before-1.toml), and no cache of fix's "
            "that no plan names.",
            advice="Name its folder: pipefix fix --undo --out DIR",
        )
    with Log(folder) as log:
        dropped = settle(folder)
        removed, left = caches_made.remove_unused(folder)
        finished = dropped is None and not removed and bool(backups.numbers(plan))
        number, kept = dropped or 0, None
        if finished:
            number, kept = backups.put_back(plan)
            removed, left = caches_made.remove_unused(folder)
        name = log.name_of(number)
        log.write("undone" if finished else "dropped", step=number, id=name, why=None if finished else "it was not in effect")
        for cache in removed:
            log.write("removed", makes=cache)
        return Undone(
            folder=str(folder), id=name, step=number, finished=finished, removed=removed,
            plan=planfile.NAME if plan.exists() else None, kept_as=kept.name if kept is not None else None,
            left_alone=[*left, *log.unwritten],
        )  # fmt: skip
