"""The way back: what an interruption left is settled, and the last step is taken back, what it made on the disk included."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path
from typing import Any

import msgspec

from pipefix.fixes import build_cache
from pipefix.fixes.log import INTERRUPTED, Log, Step
from pipefix.fixes.outcome import Undone
from pipefix.plan import planfile
from pipefix.vocabulary.errors import BadUsage, UnreadableFile


def plan_text(folder: Path) -> str | None:
    """The plan file as it lies there; None where there is none."""
    path = folder / planfile.NAME
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise UnreadableFile(f"The plan file {path} could not be read: {error}.") from error


def replace_plan(folder: Path, text: str | None) -> None:
    """Put ``text`` in the plan file's place, whole or not at all; None takes it away."""
    path = folder / planfile.NAME
    draft = path.with_name(f".pipefix-{secrets.token_hex(6)}")
    try:
        if text is None:
            path.unlink(missing_ok=True)
            return
        with open(draft, "x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise UnreadableFile(
            f"The plan file {path} could not be written: {error.strerror or error}.",
            advice="Make room, and run the same command again: what held before still holds.",
        ) from error


def recover(log: Log) -> None:
    """Settle what an interrupted run left open. Nothing is half in effect: the plan file says which side of the line it is on."""
    for step in log.steps:
        if step.status == "begun":
            log.write("dropped", step=step.number, id=step.id, why=INTERRUPTED)
        elif step.status == "keeping":
            if plan_text(log.folder) == step.after:
                log.write("kept", step=step.number, id=step.id, why="found in effect after an interruption")
            else:
                log.write("dropped", step=step.number, id=step.id, why=INTERRUPTED)
        elif step.status == "undoing":
            take_back(log, step)
    for draft in log.folder.glob(".pipefix-*"):
        if len(draft.name) == len(".pipefix-") + 12 and draft.is_file():
            draft.unlink()


def leftovers(log: Log) -> list[str]:
    """What steps made that are not in effect, and that no step which can be undone needs."""
    known = log.steps
    needed = {step.makes for step in known if step.status in ("kept", "keeping", "undoing") and step.makes}
    for text in (plan_text(log.folder), *(step.before for step in known if step.status == "kept")):
        needed |= _named_caches(text)
    made = dict.fromkeys(step.makes for step in known if step.makes)
    return [one for one in made if one is not None and one not in needed and (log.folder / one).exists()]


def _named_caches(text: str | None) -> set[str]:
    if text is None:
        return set()
    try:
        plan = planfile.decode(text, origin=planfile.NAME)
    except UnreadableFile:
        return set()  # somebody edited it: what it names is not known, and nothing of theirs is among what steps made
    return {plan.cache.path} if plan.cache is not None else set()


def sweep(log: Log) -> list[str]:
    """Remove what is left over."""
    gone = leftovers(log)
    for one in gone:
        build_cache.remove(log.folder / one)
        log.write("swept", makes=one)
    return gone


def undo(folder: Path) -> Undone:
    """Take back the last step: one that was interrupted, or else the last that is in effect."""
    if not (folder / Log(folder).path.name).exists():
        raise BadUsage(
            f"There is no log of pipefix fix in {folder}: there is nothing to take back.", advice="Name its folder: --out DIR"
        )
    with Log(folder) as log:
        resumed = [step for step in log.steps if step.status == "undoing"]
        recover(log)
        if resumed:
            return _undone(log, resumed[-1], [*(one for one in (resumed[-1].makes,) if one), *sweep(log)])
        left = leftovers(log)
        if left:
            owner = next(step for step in reversed(log.steps) if step.makes in left)
            return _undone(log, owner, sweep(log), finished=False)
        kept = [step for step in log.steps if step.status == "kept"]
        if not kept:
            raise BadUsage(f"The log in {folder} holds no step that is in effect: there is nothing to take back.")
        last = kept[-1]
        log.write("undoing", step=last.number, id=last.id)
        removed, edited = take_back(log, last)
        return _undone(log, last, [*removed, *sweep(log)], edited=edited)


def _undone(log: Log, step: Step, removed: list[str], *, finished: bool = True, edited: bool = False) -> Undone:
    plan = planfile.NAME if (log.folder / planfile.NAME).exists() else None
    return Undone(
        folder=str(log.folder), id=step.id, step=step.number, finished=finished, removed=removed, plan=plan, edited=edited
    )  # fmt: skip


def take_back(log: Log, step: Step) -> tuple[list[str], bool]:
    """The plan first, so that it never names what is gone; then what the step had made. Done twice, it is as if done once."""
    now = plan_text(log.folder)
    edited = now not in (step.after, step.before)
    if edited and now is not None:
        replace_plan(log.folder, without(now, step))
    elif now != step.before:
        replace_plan(log.folder, step.before)
    removed = []
    named = _named_caches(plan_text(log.folder))
    if step.makes is not None and step.makes not in named and build_cache.remove(log.folder / step.makes):
        removed.append(step.makes)
    log.write("undone", step=step.number, id=step.id)
    return removed, edited and now is not None


# -- a plan that was edited since --------------------------------------------------------------------------------------------


def without(text: str, step: Step) -> str | None:
    """The plan with only what the step had changed put back, where that is still as the step left it."""
    now = _flat(text)
    before, after = _flat(step.before), _flat(step.after)
    for key in {*before, *after}:
        if before.get(key) != after.get(key) and now.get(key) == after.get(key):
            if key in before:
                now[key] = before[key]
            else:
                now.pop(key, None)
    if not any(key[0] in ("loader", "cache", "augmentation") for key in now):
        return None
    plan = msgspec.convert(_nested(now), planfile.PlanFile)
    return planfile.encode(plan)


def _flat(text: str | None) -> dict[tuple[str, ...], Any]:
    if text is None:
        return {}
    found: dict[tuple[str, ...], Any] = {}

    def walk(value: Any, way: tuple[str, ...]) -> None:
        for key, inner in value.items():
            if isinstance(inner, dict) and len(way) < 1:
                walk(inner, (*way, key))
            elif inner is not None:
                found[(*way, key)] = inner

    walk(msgspec.to_builtins(planfile.decode(text, origin=planfile.NAME)), ())
    return found


def _nested(flat: dict[tuple[str, ...], Any]) -> dict[str, Any]:
    whole: dict[str, Any] = {}
    for way, value in flat.items():
        inner = whole
        for key in way[:-1]:
            inner = inner.setdefault(key, {})
        inner[way[-1]] = value
    return whole
