"""Refuses places for a cache where its own source would suffer from it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pipefix.caches.dataset import CachedDataset
from pipefix.vocabulary.errors import BadUsage
from pipefix.vocabulary.held_transforms import datasets_in


def refuse_places_of_the_source(dataset: Any, folder: Path) -> None:
    """Raise where ``folder`` is a cache that the dataset reads, or would be taken for one of its class folders from then on."""
    place = os.path.realpath(folder)
    for _, part in datasets_in(dataset):
        if isinstance(part, CachedDataset) and os.path.realpath(part.path) == place:
            raise BadUsage(
                f"{folder} is what the dataset itself reads its samples from.",
                advice="Give the new one a directory of its own: --out DIR. To mend this one, name what it was made of.",
            )
        if new := _new_class(part, place):
            raise BadUsage(
                f"{folder} would lie among the dataset's class folders, and {new!r} would be taken for one more class.",
                advice=f"Name a directory outside {os.path.abspath(part.root)}: --out DIR",
            )


def _new_class(dataset: Any, place: str) -> str:
    """The folder beside an `ImageFolder`'s class folders that ``place`` is, or lies in; empty where there is none."""
    root, classes = getattr(dataset, "root", None), getattr(dataset, "class_to_idx", None)
    if not isinstance(root, (str, os.PathLike)) or not isinstance(classes, dict):
        return ""
    first = os.path.relpath(place, os.path.realpath(os.fspath(root))).split(os.sep)[0]
    return "" if first in (os.curdir, os.pardir, *classes) else first
