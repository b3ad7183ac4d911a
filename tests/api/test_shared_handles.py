"""Samples that fail because workers share a handle: the handle is blamed, not the sample."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable

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


def _archive() -> zipfile.ZipFile:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as made:
        made.writestr("0", b"0")
    return zipfile.ZipFile(held)


@pytest.mark.parametrize(("opened", "blamed"), [(_archive, True), (int, False)])
def test_a_handle_that_workers_share_is_blamed(opened: Callable[[], object], blamed: bool) -> None:
    with pytest.raises(TargetError, match="Bad CRC-32") as caught:
        pipefix.probe(DataLoader(Archived(opened), batch_size=4, num_workers=1, multiprocessing_context="fork"), budget=2)
    assert ("dataset.archive (zipfile.ZipFile)" in caught.value.advice) is blamed
    assert ("Mend the sample" in caught.value.advice) is not blamed
