"""The caches that `fix` made, found by looking into its own folder: which of them a plan reads, and the removal of the others.

No path comes from a file. A cache is removed where it bears a name that `fix` gives, says itself that it is ours, and no plan in
the folder, backups included, names it; what is removed of it, and what is left, is decided by `pipefix.caches.folder`.
"""

from __future__ import annotations

import os
from pathlib import Path

from pipefix.caches import folder as cache_folder
from pipefix.plan import backups, planfile
from pipefix.vocabulary import files
from pipefix.vocabulary.errors import UnreadableFile

FOLDER = planfile.CACHES
"""Beside the plan file."""
NAMES = ("source", "resized-256", "decoded", "sample")


def unused(folder: Path) -> list[str]:
    """Caches of ours, finished or begun, that no plan in ``folder`` names, relative to it."""
    ours = [f"{FOLDER}/{name}" for name in NAMES if cache_folder.is_ours(folder / FOLDER / name)]
    if not ours:
        return []
    named = _named(folder)
    return [] if named is None else [path for path in ours if os.path.realpath(folder / path) not in named]


def _named(folder: Path) -> set[str] | None:
    """Real paths of the caches that the plans in a folder name, however they write them; None where one may name any."""
    named = set()
    for path in sorted(folder.glob("*.toml")):
        if backups.is_undone(path):
            continue
        try:
            text = planfile.text_of(path)
            plan = planfile.decode(text, origin=path.name) if text else None
        except UnreadableFile:
            if path.stem.startswith(Path(planfile.NAME).stem) or _mentions(path):
                return None
            continue
        if plan is not None and plan.cache is not None:
            named.add(os.path.realpath(folder / plan.cache.path))
    return named


def _mentions(path: Path) -> bool:
    try:
        return FOLDER.encode() in files.read_regular(path, planfile.LARGEST)
    except OSError:
        return False


def remove_unused(folder: Path, only: str | None = None) -> tuple[list[str], list[str]]:
    """What is removed, and sentences on what is not, and why. ``only``: no other than this one."""
    removed, left = [], []
    for path in unused(folder):
        if only is not None and path != only:
            continue
        why = f"{FOLDER} is a symbolic link" if (folder / FOLDER).is_symlink() else cache_folder.remove(folder / path)
        if why is None:
            removed.append(path)
        else:
            left.append(f"{path} is left alone: {why}.")
    if removed:
        files.remove_empty_folder(folder / FOLDER)
    return removed, left
