"""The removal of a cache: what a sealed file of ours (manifest, copy, plan) says the converter wrote goes, and nothing else."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from pipefix.caches import blueprint as blueprints
from pipefix.caches import manifest as manifests
from pipefix.caches import ownership
from pipefix.caches.blueprint import Blueprint
from pipefix.caches.manifest import Manifest
from pipefix.caches.ownership import COPY, FOLDERS, MANIFEST, PLAN, QUARANTINE, is_plain
from pipefix.vocabulary import folder_lock
from pipefix.vocabulary.errors import UnreadableFile


def remove(folder: Path) -> str | None:
    """Take a cache of ours from the disk. Why something of it, or all of it, was left there; None where nothing is left.

    Interrupted at any moment, this leaves no cache that looks whole, and enough for another call to go on: the file that says what
    is ours goes last, and of each part the facts go first, without which a part counts as not made.
    """
    if not os.path.lexists(folder):
        return None
    for path in (folder, *(folder / name for name in FOLDERS)):
        if path.is_symlink() or (path.exists() and not path.is_dir()):
            return f"{path} is a symbolic link" if path.is_symlink() else f"{path} is not a directory"
    try:
        sealed = _sealed(folder)
        if sealed is not None:
            _remove_files(folder, sealed)
        elif foreign := [path for path in _entries(folder) if not ownership.is_left_behind(path)]:
            return f"nothing in it says that pipefix made it, and it holds {foreign[0].name!r}"
        else:
            for path in _entries(folder):
                path.unlink()
        for path in (*(folder / name for name in FOLDERS), folder):
            with contextlib.suppress(OSError):  # not empty: told below
                path.rmdir()
    except OSError as error:
        return f"{error.filename or folder} could not be removed: {error.strerror or error}"
    left = _entries(folder) if folder.exists() else []
    return f"it holds what pipefix did not make, such as {left[0].name!r}" if left else None


def _sealed(folder: Path) -> Manifest | Blueprint | None:
    """What the manifest, its copy or the plan of an unfinished cache says; None where none of them is sealed by us."""
    with contextlib.suppress(UnreadableFile, OSError):
        if is_plain(folder / MANIFEST):
            return manifests.read(folder)
    copy = manifests.copied(folder) if is_plain(folder / COPY) else None
    if copy is not None:
        return manifests.unseal(copy, Manifest, folder / COPY)  # type: ignore[no-any-return]
    with contextlib.suppress(UnreadableFile, OSError):
        if is_plain(folder / PLAN):
            return blueprints.read(folder / PLAN)
    return None


def _remove_files(folder: Path, sealed: Manifest | Blueprint) -> None:
    manifest, copy, begun = folder / MANIFEST, folder / COPY, folder / PLAN
    if is_plain(manifest) and (folder / "index").is_dir():
        if manifests.copied(folder) is None:
            manifest.replace(copy)
        else:
            manifest.unlink()
    last = [path for path in (begun, copy, manifest) if is_plain(path)]
    count = len(sealed.parts) if isinstance(sealed, Manifest) else sealed.parts
    ours = [path for path in (*ownership.part_files(folder, count), *ownership.drafts(folder)) if path not in last]
    if sealed.recipe.on_bad == "quarantine" and ownership.is_quarantine(folder / QUARANTINE):
        ours.append(folder / QUARANTINE)
    if folder_lock.is_lock(folder / folder_lock.NAME):
        ours.append(folder / folder_lock.NAME)
    for path in sorted(ours, key=lambda path: path.suffix != ".facts"):
        path.unlink()
    for path in last:
        path.unlink()


def _entries(folder: Path) -> list[Path]:
    """Everything in the directory and in those two of it that hold a cache's files, which are left out themselves."""

    def walk() -> Iterator[Path]:
        for path in sorted(folder.iterdir()):
            if path.name in FOLDERS and path.is_dir() and not path.is_symlink():
                yield from sorted(path.iterdir())
            else:
                yield path

    return list(walk())
