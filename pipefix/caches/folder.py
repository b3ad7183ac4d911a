"""Makes, locks, publishes and removes caches: the only file of the package, beside ``vocabulary/files.py``, that removes anything.

A cache is made in ``DIR.building`` and published by one rename, which the system refuses where DIR holds anything. A directory is
ours where its manifest or the plan of an unfinished cache begins with our mark. Then, and only then, the plain
files in its ``parts`` and ``index`` that are called as a cache calls its parts, up to the last part that a plan or manifest of ours
names, are the cache's. No link is followed, no name of a file is read from a file, and directories go only when they are empty.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from pipefix.caches import layout
from pipefix.caches import manifest as manifests
from pipefix.caches.layout import FOLDERS, GONE, MANIFEST, PART, PLAN, QUARANTINE, building_of, is_folder, is_plain, marked
from pipefix.caches.manifest import Blueprint, Manifest
from pipefix.vocabulary import folder_lock
from pipefix.vocabulary.commands import command
from pipefix.vocabulary.errors import BadUsage, PipefixError, UnreadableFile
from pipefix.vocabulary.files import DRAFT, read_regular, remove_empty_folder, sync_folder
from pipefix.vocabulary.folder_lock import FolderLock, unwritable

_ELSEWHERE = "Name a directory that does not exist yet: --out DIR"
_MOVE_IT = "Move it elsewhere, or name another directory: --out DIR"


class WorkFolder:
    """The directory that a converter works in, locked: the cache itself, or the one beside it in which it is made."""

    def __init__(self, path: Path, goal: Path, lock: FolderLock) -> None:
        self.path, self.goal, self._lock = path, goal, lock

    @property
    def is_new(self) -> bool:
        return self.path != self.goal

    def publish(self) -> None:
        """The cache appears, whole, where it is to be; what is there already stays."""
        if not self.is_new:
            return
        try:
            os.rename(self.path, self.goal)
        except OSError as error:
            if not os.path.lexists(self.goal) or (is_folder(self.goal) and not os.listdir(self.goal)):
                raise
            raise BadUsage(
                f"{self.goal} came to hold other things while the cache was made: it is finished in {self.path}.",
                advice=f"Move {self.goal} elsewhere and run the same command again, which only renames it.",
            ) from error
        self._lock.moved(self.goal)
        sync_folder(self.goal.parent)


@contextlib.contextmanager
def locked(goal: Path, *, quarantine: bool = False) -> Iterator[WorkFolder]:
    """Refuse a ``goal`` that holds what is not ours; else the directory to work in, which nobody else works in meanwhile.

    ``goal`` may be missing, or empty. ``quarantine``: whether a list of damaged samples is going to be written.
    """
    while True:
        path = _place(goal, quarantine=quarantine)
        missing = [folder for folder in (path, *path.parents) if not os.path.lexists(folder)]
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise unwritable(path, error) from error
        try:
            with FolderLock(path, "converter") as lock:
                if path == goal or not layout.is_cache(goal):
                    yield WorkFolder(path, goal, lock)
                    return
                # another converter published it just now
        finally:
            for folder in missing:
                remove_empty_folder(folder)


def is_ours(goal: Path) -> bool:
    """Whether a cache is there, whole or damaged, or one is begun for it, or the empty folders that making or removing one left."""
    if layout.is_cache(goal) or layout.is_being_removed(goal) or marked(building_of(goal) / PLAN):
        return True
    places = [place for place in (building_of(goal), goal) if os.path.lexists(place)]
    return bool(places) and all(is_folder(place) and all(map(_is_left_behind, layout.entries(place))) for place in places)


def _place(goal: Path, *, quarantine: bool) -> Path:
    try:
        if layout.is_cache(goal):
            _check_cache(goal, quarantine=quarantine)
            return goal
        if layout.is_being_removed(goal) or _is_left_over(goal):
            _remove(goal)
        if os.path.lexists(goal) and not is_folder(goal):
            raise BadUsage(f"{goal} exists and is not a directory: nothing is written there.", advice=_ELSEWHERE)
        # Of a cache whose removal was interrupted these two may be left.
        empty = [goal / name for name in FOLDERS if is_folder(goal / name) and not os.listdir(goal / name)]
        others = sorted(set(os.listdir(goal)) - {path.name for path in empty}) if is_folder(goal) else []
        if others:
            raise BadUsage(
                f"{goal} exists and holds other things, such as {others[0]!r}: nothing is written there.", advice=_ELSEWHERE
            )
        if os.path.ismount(goal):
            raise BadUsage(
                f"{goal} is where another disk begins, and a cache is made beside its directory, on the same disk.",
                advice=f"Name a directory on it: {command('--out', goal / 'cache')}",
            )
        _check_building(building_of(goal))
        for path in empty:
            path.rmdir()
    except OSError as error:
        raise UnreadableFile(
            f"{goal} cannot be made or read: {error.strerror or error}.",
            advice="Choose a directory that you may write to: --out DIR",
        ) from error
    return building_of(goal)


def _check_cache(folder: Path, *, quarantine: bool) -> None:
    inside, listed = [folder / name for name in FOLDERS], folder / QUARANTINE
    misplaced = [(path, "directory") for path in inside if os.path.lexists(path) and not is_folder(path)]
    misplaced += [(path, "file") for path in _called_as_ours(folder) if not is_plain(path)]
    misplaced += [(listed, "file")] if quarantine and os.path.lexists(listed) and not layout.is_quarantine(listed) else []
    for path, kind in misplaced:
        raise BadUsage(f"{path} is not a {kind} that a cache would hold: nothing is written there.", advice=_MOVE_IT)


def _check_building(folder: Path) -> None:
    """Whether what is there was left by a converter of ours; it may hold nothing else, since it is going to be renamed."""
    if not os.path.lexists(folder):
        return
    if foreign := [path for path in layout.entries(folder) if not _is_of_building(path, folder)] if is_folder(folder) else [folder]:
        raise BadUsage(
            f"{folder}, in which the cache would be made, holds what is not of a cache: {foreign[0]}. Nothing is written there.",
            advice=_MOVE_IT,
        )


def _is_of_building(path: Path, folder: Path) -> bool:
    if path.name == folder_lock.NAME:
        return folder_lock.is_lock(path)
    if not is_plain(path):
        return False
    if not marked(folder / PLAN):
        return _is_empty_draft(path)
    if path.parent == folder:
        return marked(path) if path.name in (PLAN, MANIFEST) else layout.is_quarantine(path) or _is_empty_draft(path)
    return DRAFT.match(path.name) is not None or PART[path.parent.name].match(path.name) is not None


def _is_empty_draft(path: Path) -> bool:
    """Whether a process that was killed may have left this: it is called so, and nothing in it is anybody's."""
    return DRAFT.match(path.name) is not None and is_plain(path) and layout.MARK.startswith(layout.head(path)[: len(layout.MARK)])


def part_files(folder: Path, count: int | None) -> Iterator[Path]:
    """The plain files of a directory of ours in ``parts`` and ``index``: of its first ``count`` parts, or of all, and drafts."""
    for path in _called_as_ours(folder):
        number = PART[path.parent.name].match(path.name)
        if is_plain(path) and (number is None or count is None or int(number[1]) < count):
            yield path


def _called_as_ours(folder: Path) -> list[Path]:
    paths = [path for name in PART if is_folder(folder / name) for path in sorted((folder / name).iterdir())]
    return [path for path in paths if PART[path.parent.name].match(path.name) or DRAFT.match(path.name)]


def _drafts(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.iterdir()) if _is_empty_draft(path) and path.stat().st_size]


# -- what goes -------------------------------------------------------------------------------------------------------------


def sweep(folder: Path, keep: set[str], parts: int | None) -> None:
    """Remove drafts, and of the first ``parts`` parts the files of those that are not kept."""
    for path in [*part_files(folder, parts), *_drafts(folder)]:
        if path.stem not in keep or path.name.startswith("."):
            path.unlink(missing_ok=True)


def forget(path: Path) -> None:
    """A finished cache's plan, or its list of damaged samples, is not needed any more."""
    if layout.is_quarantine(path) if path.name == QUARANTINE else marked(path):
        path.unlink()


def remove(folder: Path) -> str | None:
    """Take a cache of ours from the disk, begun or finished. Why something of it was left there; None where nothing is left.

    Interrupted at any moment, this leaves no cache that looks whole, and enough for another call to go on: the file that says what
    is ours goes last, and of each part the facts go first, without which a part counts as not made.
    """
    reasons = [_remove(place) for place in (building_of(folder), folder) if os.path.lexists(place)]
    return next((reason for reason in reversed(reasons) if reason is not None), None)


def _remove(folder: Path) -> str | None:
    for path in (folder, *(folder / name for name in FOLDERS)):
        if os.path.lexists(path) and not is_folder(path):
            return f"{path} is a symbolic link" if path.is_symlink() else f"{path} is not a directory"
    try:
        sealed = _sealed(folder)
        if sealed:
            with FolderLock(folder, "converter", ours=True):
                _remove_files(folder, sealed)
        else:
            if foreign := [path for path in layout.entries(folder) if not _is_left_behind(path)]:
                return f"nothing in it says that pipefix made it, and it holds {foreign[0].name!r}"
            for path in layout.entries(folder):
                path.unlink()
        for path in (*(folder / name for name in FOLDERS), folder):  # what is not empty is told below
            remove_empty_folder(path)
    except OSError as error:
        return f"{error.filename or folder} could not be removed: {error.strerror or error}"
    except PipefixError as error:  # somebody works in it
        return str(error)
    left = layout.entries(folder) if folder.exists() else []
    return f"it holds what pipefix did not make, such as {left[0].name!r}" if left else None


def _is_left_over(folder: Path) -> bool:
    """Whether all that it holds is the lock of a removal that was killed at its very end. An empty file may be anybody's."""
    entries = layout.entries(folder) if is_folder(folder) else []
    lock = folder / folder_lock.NAME
    return entries == [lock] and folder_lock.is_lock(lock) and layout.head(lock) != b""


def _is_left_behind(path: Path) -> bool:
    return folder_lock.is_lock(path) if path.name == folder_lock.NAME else _is_empty_draft(path)


def _sealed(folder: Path) -> list[Manifest | Blueprint]:
    """What the manifest says, and the plan of an unfinished cache or update, as far as they are sealed by us."""
    found: list[Manifest | Blueprint] = []
    for path in (folder / MANIFEST, folder / GONE):
        with contextlib.suppress(UnreadableFile, OSError):
            if marked(path):
                found.append(manifests.of_text(read_regular(path, manifests.LARGEST), path))
    with contextlib.suppress(UnreadableFile, OSError):
        if is_plain(folder / PLAN):
            found.append(manifests.read_blueprint(folder / PLAN))
    return found


def _remove_files(folder: Path, sealed: list[Manifest | Blueprint]) -> None:
    manifest, gone, plan = folder / MANIFEST, folder / GONE, folder / PLAN
    if is_plain(manifest) and is_folder(gone.parent) and not os.path.lexists(gone):
        manifest.replace(gone)
    last = [path for path in (plan, gone, manifest) if marked(path)]
    counts = [len(each.parts) if isinstance(each, Manifest) else each.parts for each in sealed]
    count = max(filter(None, counts), default=0) if None not in counts else None
    called = [path for path in part_files(folder, count) if path not in last]
    ours = [path for path in called if DRAFT.match(path.name) or layout.begins_as_ours(path)] + _drafts(folder)
    if any(each.recipe.on_bad == "quarantine" for each in sealed) and layout.is_quarantine(folder / QUARANTINE):
        ours.append(folder / QUARANTINE)
    for path in [*sorted(ours, key=lambda path: path.suffix != ".facts"), *last]:
        path.unlink()
