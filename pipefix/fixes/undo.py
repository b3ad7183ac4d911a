"""The way back: what an interruption left is settled, and the last step is taken back, what it made on the disk included."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from pipefix.fixes import build_cache
from pipefix.fixes.log import INTERRUPTED, NAME, Log, LoggedStep
from pipefix.fixes.outcome import Undone
from pipefix.plan import planfile
from pipefix.plan.planfile import LoaderChange, PlanFile
from pipefix.vocabulary.errors import BadUsage, UnreadableFile
from pipefix.vocabulary.files import DRAFT


def plan_text(folder: Path) -> str | None:
    """The plan file as it lies there; None where there is none."""
    return planfile.text_of(folder / planfile.NAME)


def replace_plan(folder: Path, text: str | None) -> None:
    """Put ``text`` in the plan file's place, whole or not at all; None takes it away."""
    path = folder / planfile.NAME
    again = "Make room, and run the same command again: what held before still holds."
    if text is not None:
        planfile.write_text(text, path, advice=again)
        return
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise UnreadableFile(f"The plan file {path} could not be removed: {error.strerror or error}.", advice=again) from error


# -- what an interruption left -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TakenBack:
    """What became of a step that was undone."""

    step: LoggedStep
    removed: list[str] = field(default_factory=list)
    """Caches, relative to the folder."""
    edited: bool = False
    """The plan had been edited since the step."""
    edits_kept: list[str] = field(default_factory=list)
    """Parts of the plan that the step had changed and the user edited since, which stay as they are. Sentences."""


def recover(log: Log) -> TakenBack | None:
    """Settle what an interrupted run left open. Nothing is half in effect: the plan file says which side of the line it is on.

    Returns the undoing that was interrupted and is finished now.
    """
    finished = None
    for step in log.steps:
        if step.status == "begun":
            log.write("dropped", step=step.number, id=step.id, why=INTERRUPTED)
        elif step.status == "keeping":
            if plan_text(log.folder) == step.after:
                log.write("kept", step=step.number, id=step.id, why="found in effect after an interruption")
            else:
                log.write("dropped", step=step.number, id=step.id, why=INTERRUPTED)
        elif step.status == "undoing":
            finished = take_back(log, step)
    for path in log.folder.iterdir():
        if DRAFT.fullmatch(path.name) is not None and path.is_file() and not path.is_symlink():
            path.unlink()
    return finished


def leftovers(log: Log) -> list[str]:
    """What steps made that are not in effect, and that no step which can be undone needs."""
    steps = log.steps
    needed = {_real(log.folder, step.makes) for step in steps if step.status in ("kept", "keeping", "undoing") and step.makes}
    for text in (plan_text(log.folder), *(step.before for step in steps if step.status == "kept")):
        needed |= _named_caches(log.folder, text)
    made = [makes for makes in dict.fromkeys(step.makes for step in steps) if makes is not None]
    return [makes for makes in made if os.path.lexists(log.folder / makes) and _real(log.folder, makes) not in needed]


def _named_caches(folder: Path, text: str | None) -> set[str]:
    """The caches that a plan names: however it writes their paths, they can be told from others."""
    if text is None:
        return set()
    try:
        plan = planfile.decode(text, origin=planfile.NAME)
    except UnreadableFile:
        return set()  # somebody edited it: what it names is not known, and nothing of theirs is among what steps made
    return {_real(folder, plan.cache.path)} if plan.cache is not None else set()


def _real(folder: Path, path: str) -> str:
    try:
        return os.path.realpath(folder / path)
    except ValueError:  # a NUL: it names nothing
        return path


def sweep(log: Log) -> list[str]:
    """Remove what is left over."""
    gone = [makes for makes in leftovers(log) if remove(log, makes)]
    for makes in gone:
        log.write("swept", makes=makes)
    return gone


def remove(log: Log, makes: str) -> bool:
    """Take what a step made from the disk, and write down what stays there, and why. Whether it was there and is gone."""
    if not os.path.lexists(log.folder / makes):
        return False
    why = build_cache.remove(log.folder, makes)
    if why is not None and makes not in log.left_alone:
        log.write("left", makes=makes, why=why)
    return why is None


# -- undo --------------------------------------------------------------------------------------------------------------------


def undo(folder: Path) -> Undone:
    """Take back the last step: one that was interrupted, or else the last that is in effect."""
    if not os.path.lexists(folder / NAME):
        raise BadUsage(
            f"There is no log of pipefix fix in {folder}: there is nothing to take back.", advice="Name its folder: --out DIR"
        )
    with Log(folder) as log:
        now = plan_text(folder)
        if now is not None:
            planfile.decode(now, origin=planfile.NAME)  # a plan that cannot be read is told of before anything is done
        back = recover(log)
        swept = sweep(log)
        if back is not None:
            return _undone(log, back, swept)
        owners = [step for step in log.steps if step.makes in swept]
        kept = [step for step in log.steps if step.status == "kept"]
        # Removing what an interrupted step had made is all that this call does. What an undone step had to leave, because the plan
        # still named it, goes together with the next step.
        if owners and (not kept or any(step.status != "undone" for step in owners)):
            return _undone(log, TakenBack(owners[-1]), swept, finished=False)
        if not kept:
            left = " ".join(log.told_left_alone())
            raise BadUsage(f"The log in {folder} holds no step that is in effect: there is nothing to take back. {left}".rstrip())
        last = kept[-1]
        log.write("undoing", step=last.number, id=last.id)
        back = take_back(log, last)
        return _undone(log, back, [*swept, *sweep(log)])


def _undone(log: Log, back: TakenBack, swept: list[str], *, finished: bool = True) -> Undone:
    plan = planfile.NAME if (log.folder / planfile.NAME).exists() else None
    return Undone(
        folder=str(log.folder), id=back.step.id, step=back.step.number, finished=finished, removed=[*back.removed, *swept],
        plan=plan, edited=back.edited, left_alone=[*back.edits_kept, *log.told_left_alone()],
    )  # fmt: skip


def take_back(log: Log, step: LoggedStep) -> TakenBack:
    """The plan first, so that it never names what is gone; then what the step had made. Done twice, it is as if done once."""
    now = plan_text(log.folder)
    text, edits_kept = text_without(now, step)
    if text != now:
        replace_plan(log.folder, text)
    removed = []
    if step.makes is not None and _real(log.folder, step.makes) not in _named_caches(log.folder, text) and remove(log, step.makes):
        removed.append(step.makes)
    log.write("undone", step=step.number, id=step.id)
    return TakenBack(step, removed, now is not None and now not in (step.before, step.after), edits_kept)


def text_without(now: str | None, step: LoggedStep) -> tuple[str | None, list[str]]:
    """What the plan file is to hold without the step, and what of the step stays in it because it was edited since."""
    if now is None or now in (step.before, step.after):
        return (None if now is None else step.before), []
    plan = planfile.decode(now, origin=planfile.NAME)
    try:
        before, after = (PlanFile() if text is None else planfile.decode(text, origin=NAME) for text in (step.before, step.after))
    except UnreadableFile:
        return now, [f"The plan was edited since, and {NAME} does not say what the step had changed: the plan stays as it is."]
    plan, edits_kept = without(plan, before, after)
    empty = plan.loader is None and plan.cache is None and plan.augmentation is None
    return (None if empty else now if not _changes(plan, now) else planfile.encode(plan)), edits_kept


def _changes(plan: PlanFile, text: str) -> bool:
    return plan != planfile.decode(text, origin=planfile.NAME)


def without(plan: PlanFile, before: PlanFile, after: PlanFile) -> tuple[PlanFile, list[str]]:
    """The plan without what a step changed (``before`` to ``after``) where it is as the step left it; and what was edited, told.

    The loader's settings are looked at one by one, a cache and moved augmentation as a whole.
    """
    kept = []
    put_back = {
        name: getattr(before, name)
        for name in ("created", "target", "machine", "pipefix")
        if getattr(plan, name) == getattr(after, name)
    }
    for name in ("cache", "augmentation"):
        now, was, made = (_without_evidence(getattr(one, name)) for one in (plan, before, after))
        if was != made and now == made:
            put_back[name] = getattr(before, name)
        elif was != made and now is not None and now != was:
            kept.append(f"[{name}] of the plan was edited since, and stays as it is.")
    now, was, made = (one.loader or LoaderChange() for one in (plan, before, after))
    settings = {}
    for name in LoaderChange.__struct_fields__:
        value, old, new = (getattr(loader, name) for loader in (now, was, made))
        if old != new and value == new:
            settings[name] = old
        elif old != new and value is not None and value != old and name != "evidence":
            kept.append(f"{name} of the plan was edited since, and stays {value!r}.")
    loader = msgspec.structs.replace(now, **settings)
    put_back["loader"] = None if loader == LoaderChange() else loader
    return msgspec.structs.replace(plan, **put_back), kept


def _without_evidence(part: msgspec.Struct | None) -> msgspec.Struct | None:
    return None if part is None else msgspec.structs.replace(part, evidence=None)
