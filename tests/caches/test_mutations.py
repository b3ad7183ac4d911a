"""Whatever happens to a cache's files, it opens right or says it is damaged. `scripts/bench mutations` does the same at length."""

from __future__ import annotations

import random

import pytest

from pipefix.caches.dataset import CachedDataset
from pipefix.caches.verify import verify
from pipefix.vocabulary.errors import UnreadableFile
from tests.caches import mutating
from tests.caches.sources import Files, Texts


@pytest.mark.parametrize(("store", "to"), [("resized", "lmdb"), ("decoded", "lmdb"), ("source", "lmdb"), ("rows", "parquet")])
def test_right_or_told(pictures, make, tmp_path, monkeypatch, store, to):
    monkeypatch.setattr("pipefix.caches.survey._part_samples", lambda samples, record_bytes: max(4, (samples or 0) // 3))
    whole = make(Texts(300) if store == "rows" else Files(pictures), store, to).folder
    expected = [mutating.plain(CachedDataset(whole)[index]) for index in range(len(CachedDataset(whole)))]
    for seed in range(60):
        folder = mutating.copy(whole, tmp_path / "mutated")
        mutation = mutating.mutate(folder, random.Random(seed))
        outcome = mutating.outcome(folder, expected, forged="forge" in mutation)
        assert not outcome.startswith("wrong"), f"seed {seed}, {mutation}: {outcome}"
        try:
            sound = verify(folder).sound
        except UnreadableFile:
            sound = False
        assert not (sound and outcome == "damaged"), f"seed {seed}, {mutation}: verify saw nothing"
