"""What was done in a folder, from its run files, plan and log, the oldest first; and which target to use where none is named."""

from __future__ import annotations

import ast
import datetime
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from pipefix.fixes.fix_log import LOG, Entry, read_entries
from pipefix.fixes.outcome import Measured
from pipefix.plan import planfile
from pipefix.report import descriptions, runfile
from pipefix.report.history_report import Done, History
from pipefix.vocabulary import quantity
from pipefix.vocabulary.errors import BadUsage, PipefixError
from pipefix.vocabulary.files import open_regular, read_regular

MOST_FILES, LARGEST = 500, 64_000_000
"""JSON files of a folder that are looked into, the last that were written, and bytes of one."""
_FILE = re.compile(r"(?P<file>[^:\0]+\.py)(:[^\W\d]\w*)?")


def history(folder: Path) -> History:
    """All that the files of a folder tell, each of them read once. Files of others are passed over."""
    if not folder.is_dir():
        raise BadUsage(f"There is no folder {str(folder)!r}.", advice="Name the folder of your run files: pipefix log DIR")
    probed, logged = list(_runs(folder)), _entries(folder / LOG)
    deeds = [_of_run(run, path) for path, run in probed]
    # Where fix kept nothing, its files from before and after hold one and the same probe.
    deeds = list({(deed.at, deed.what, deed.target, deed.said): deed for deed in deeds}.values())
    deeds += _of_log(logged, str(folder / LOG))
    deeds += _of_plan(folder / planfile.NAME)
    deeds.sort(key=lambda deed: _moment(deed.at))
    return History(done=deeds, saved_of_an_epoch_s=_saved(logged, [run for _, run in probed]))


def _moment(at: str) -> float:
    try:
        return datetime.datetime.fromisoformat(at).timestamp()
    except ValueError:
        return 0.0


def _written_at(path: Path) -> float:
    with suppress(OSError):  # somebody removes it meanwhile
        return path.lstat().st_mtime
    return 0.0


def _runs(folder: Path) -> Iterator[tuple[Path, runfile.Run]]:
    """The run files of a folder, and that of a program's run in it."""
    paths = sorted([*folder.glob("*.json"), *folder.glob("*/run.json")], key=_written_at)
    for path in sorted(paths[-MOST_FILES:]):
        with suppress(OSError, PipefixError):
            with open_regular(path) as file:
                ours = os.fstat(file.fileno()).st_size <= LARGEST and b"pipefix.run/" in file.read(200)
            if ours:
                yield path, runfile.read(path)


def _of_run(run: runfile.Run, path: Path) -> Done:
    kind = "run" if run.program is not None and not run.stages else "probe"
    return Done(at=run.created, what=kind, target=run.target, said=descriptions.verdict_line(run), where=str(path))


def _entries(path: Path) -> list[Entry]:
    """Of a log of `fix`; none where it is somebody else's, or damaged."""
    with suppress(OSError, PipefixError):
        return read_entries(path.read_bytes(), origin=str(path)) if path.is_file() else []
    return []


def _of_log(entries: list[Entry], where: str) -> list[Done]:
    target, deeds = "", []
    begun: Done | None = None
    for entry in entries:
        target = entry.target or target
        if begun is not None and entry.event == "started":
            deeds.append(begun)
        if entry.event in ("started", "begun", "kept", "dropped"):
            said = f"began {entry.id}, of which no end is told: it is at work, or was killed"
            begun = Done(at=entry.at, what="fix", target=target, said=said, where=where) if entry.event == "begun" else None
        text = _said(entry)
        if text:
            deeds.append(Done(at=entry.at, what="fix", target=target, said=text, where=where))
    return [*deeds, begun] if begun is not None else deeds


def _saved(entries: list[Entry], runs: list[runfile.Run]) -> float | None:
    """Seconds that the steps which fix kept, and nobody took back, save of each epoch; None where the files do not tell."""
    kept: dict[int | None, None] = {}
    measured: dict[tuple[int | None, ...], Measured] = {}
    """The pipeline without a plan and with it, as one run of fix had both in turn: by the plan's steps."""
    target = ""
    for entry in entries:
        target = entry.target or target
        if entry.event == "kept":
            kept[entry.step] = None
        elif entry.event == "undone":
            kept.pop(entry.step, None)
            measured = {steps: total for steps, total in measured.items() if entry.step not in steps}
        elif entry.event == "ended" and (total := _measured(entry)):
            measured[tuple(kept)] = total
    now = measured.get(tuple(kept))
    of_target = sorted((run for run in runs if run.target == target), key=lambda run: _moment(run.created))
    epochs = [epoch for run in of_target if (epoch := run.settings.epoch)]
    if not kept or now is None or not epochs or min(now.before.value, now.after.value) <= 0:
        return None
    return epochs[-1] * (1 / now.before.value - 1 / now.after.value)


def _said(entry: Entry) -> str:
    name = entry.id or (f"step {entry.step}" if entry.step else "")
    measured = _measured(entry)
    worth = f", {quantity.times_between(measured.gain)} measured" if measured is not None else ""
    why = f": {entry.why}" if entry.why else ""
    return {
        "kept": f"kept {name}{worth}",
        "refused": f"left {name} alone{worth}{why}",
        "dropped": f"took {name} back{why}" if name else "took back what an interrupted run had left",
        "undone": f"undid {name}",
    }.get(entry.event, "")


def _measured(entry: Entry) -> Measured | None:
    try:
        return msgspec.convert(entry.measured, Measured)
    except msgspec.ValidationError:
        return None


def _of_plan(path: Path) -> list[Done]:
    with suppress(PipefixError):
        plan = planfile.read(path)
        parts = {"loader settings": plan.loader, "a cache": plan.cache, "augmentation on the device": plan.augmentation}
        changes = ", ".join(name for name, part in parts.items() if part is not None) or "no change"
        return [Done(at=plan.created, what="plan", target=plan.target, said=changes, where=str(path))]
    return []


def target_here(folder: Path) -> tuple[str, str]:
    """What a command that names no target is used on, and why: what was last probed here, or the only file here with a dataset.

    A run file or a plan, which may be anybody's, says which of the folder's own files is loaded, as it is, and no more: a target of
    any other kind, or with arguments, is typed. Raises `BadUsage` where there is none, or several; they are named.
    """
    known = [deed for deed in history(folder).done if deed.what in ("probe", "plan") and _lies_in(folder, deed.target)]
    if known:
        return known[-1].target, f"the target of the last {known[-1].what}, {known[-1].where}"
    files = [path.name for path in sorted(folder.glob("*.py")) if makes_data(path)]
    if len(files) == 1:
        return files[0], "the only file here with a dataset or a loader"
    if files:
        raise BadUsage("No TARGET is named, and several files here hold data.", advice=f"Name one: {', '.join(files)}")
    problem = "No TARGET is named, and no run file, plan or Python file with a dataset is here."
    raise BadUsage(problem, advice="Name it: FILE.py, FILE.py:name, package.module:name or a directory of class folders.")


def _lies_in(folder: Path, target: str) -> bool:
    """Whether a target is a Python file that is in the folder, or a plain name in one."""
    file = _FILE.fullmatch(target)
    path = Path(os.path.realpath(folder / file["file"])) if file is not None else None
    return path is not None and path.is_file() and path.is_relative_to(os.path.realpath(folder))


def makes_data(path: Path) -> bool:
    """Whether a file defines a dataset, or calls something named like a dataset or a loader, as far as its text tells."""
    try:
        tree = ast.parse(read_regular(path))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    for node in ast.walk(tree):
        named = node.bases if isinstance(node, ast.ClassDef) else [node.func] if isinstance(node, ast.Call) else []
        words = [getattr(name, "attr", getattr(name, "id", "")) for name in named]
        if any(word.endswith(("Dataset", "DataLoader", "ImageFolder")) for word in words):
            return True
    return False
