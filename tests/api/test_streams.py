"""Streams that every worker goes through whole: more workers bring copies, which nobody is told to want."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from torch.utils.data import DataLoader, IterableDataset

from pipefix.api import tune
from pipefix.subject.load import load
from pipefix.tuning.space import Space


class Whole(IterableDataset[Any]):
    def __iter__(self) -> Iterator[int]:
        yield from range(64)


@pytest.mark.parametrize(("workers", "each", "most"), [(0, True, 1), (4, True, 4), (0, False, 16), (0, None, 16)])
def test_tune_tries_no_more_workers_than_there_are(
    workers: int, each: bool | None, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tune, "whole_stream_each", lambda subject: each)
    notes: list[str] = []
    subject = load(DataLoader(Whole(), batch_size=4, num_workers=workers))
    space = tune._without_copies(subject, Space(most_workers=16, cores=4.0, open=True), notes)
    assert (space.most_workers, space.open, len(notes)) == (most, not each, int(bool(each)))
    assert not each or "each goes through the whole stream. Give each worker its part" in notes[0]
