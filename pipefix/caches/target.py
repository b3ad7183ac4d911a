"""A cache as the thing that is probed or converted: its samples as they are, pictures as tensors."""

from __future__ import annotations

from pathlib import Path

from pipefix.caches import layout
from pipefix.caches.dataset import CachedDataset
from pipefix.vocabulary.commands import command
from pipefix.vocabulary.errors import TargetError


def dataset(path: Path) -> CachedDataset | None:
    """The dataset of a cache's directory; None where the directory is something else."""
    if not (path / layout.MANIFEST).is_file():
        return None
    cached = CachedDataset(path, images="tensor")
    if cached.manifest.recipe.store == "source":
        raise TargetError(
            f"{path} keeps the files that samples read, and no samples: they are made by the dataset that it was made from.",
            advice="Name that dataset, which reads from it through a plan or CachedDataset(DIR, dataset=dataset): "
            + command("pipefix", "probe", "train.py"),
        )
    return cached
