"""Samples that fail because workers share a handle: the handle is blamed, not the sample."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader, Dataset

import pipefix
from pipefix.vocabulary.errors import TargetError


class Archived(Dataset[int]):
    def __init__(self, opened: Callable[[], object]) -> None:
        self.archive = opened()

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> int:
        raise zipfile.BadZipFile("Bad CRC-32 for file '1.jpg'")


def _archive(file: Any) -> zipfile.ZipFile:
    with zipfile.ZipFile(file, "w") as made:
        made.writestr("0", b"0")
    return zipfile.ZipFile(file)


@pytest.mark.parametrize(("on_disk", "blamed"), [(True, True), (False, False)])
def test_a_handle_that_workers_share_is_blamed(on_disk: bool, blamed: bool, tmp_path: Path) -> None:
    """An archive in memory is each worker's own."""
    opened = partial(_archive, tmp_path / "a.zip" if on_disk else io.BytesIO())
    with pytest.raises(TargetError, match="Bad CRC-32") as caught:
        pipefix.probe(DataLoader(Archived(opened), batch_size=4, num_workers=1, multiprocessing_context="fork"), budget=2)
    assert ("dataset.archive (zipfile.ZipFile)" in caught.value.advice) is blamed
    assert ("Mend the sample" in caught.value.advice) is not blamed
