"""Damage is found and named, and mended from the source, to the very bytes that were there."""

from __future__ import annotations

import os
import random
from pathlib import Path

import msgspec
import pytest

from pipefix.caches.dataset import CachedDataset
from pipefix.caches.verify import verify
from pipefix.vocabulary.errors import BadUsage, CacheDamaged, UnreadableFile
from tests.caches import mutating
from tests.caches.killing import contents
from tests.caches.mutating import flip
from tests.caches.sources import Files, Texts


@pytest.mark.parametrize("store", ["source", "resized"])
def test_damage_is_named_and_mended(files, make, small_parts, store):
    folder = make(files, store).folder
    before = contents(folder)
    assert verify(folder).sound
    samples = [bytes(CachedDataset(folder).raw(index)) for index in range(12)]
    data = next((folder / "parts").glob("00001.*"))
    flip(data, data.stat().st_size // 2)
    (folder / "index" / "00002.idx").unlink()
    checked = verify(folder)
    assert sorted(checked.damage) == [1, 2]
    assert "00001" in checked.damage[1][0] and "00002.idx is missing" in checked.damage[2][0]
    with pytest.raises(CacheDamaged, match=r"00002.idx is missing") as raised:
        CachedDataset(folder)[9]
    assert "--update" in raised.value.advice
    assert make(files, store).made == 0
    mended = make(files, store, update=True)
    assert (mended.made, mended.found) == (2, 1) and verify(folder).sound
    assert {name: data for name, data in contents(folder).items() if "00000." in name}.items() <= before.items()
    assert [bytes(CachedDataset(folder).raw(index)) for index in range(12)] == samples


def test_what_only_other_programs_look_at_is_checked_too(files, make):
    folder = make(files, "source").folder
    flip(folder / "parts" / "00000.mdb", 40)
    assert "damaged between its records" in verify(folder).damage[0][0]
    assert CachedDataset(folder)[0]


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("<Files object>", "pipefix.convert(dataset, to='lmdb', store='resized', out='made', size=20, update=True)"),
        ("train.py:14", "pipefix convert TARGET --to lmdb --store resized --out made --size 20 --update"),
    ],
)
def test_what_mends_a_cache_of_what_has_no_name_is_told_so_that_it_can_be_done(files, make, target, said):
    """`pipefix convert '<Files object>'` and `pipefix convert train.py:14` name nothing."""
    assert msgspec.structs.replace(make(files, "resized", size=20).manifest, target=target).update(Path("made")) == said


def test_the_source_is_compared(files, make):
    folder = make(files, "resized").folder
    os.utime(files.paths[3], (1, 1))
    os.unlink(files.paths[5])
    checked = verify(folder)
    assert checked.sound and (checked.changed_count, checked.missing_count) == (1, 1) and checked.changed == [files.paths[3]]


def test_a_damaged_manifest_is_told_with_the_way_out(files, make):
    folder = make(files, "source").folder
    flip(folder / "manifest.json", 60)
    for read in (CachedDataset, lambda _: make(files, "source", update=True)):
        with pytest.raises(CacheDamaged, match=r"manifest.json") as raised:
            read(folder)
        assert f"Move {folder} elsewhere" in raised.value.advice
    (folder / "manifest.json").unlink()
    with pytest.raises(UnreadableFile, match="is not a pipefix cache"):
        CachedDataset(folder)
    with pytest.raises(BadUsage, match="holds other things"):
        make(files, "source")


@pytest.mark.parametrize(("store", "to"), [("resized", "lmdb"), ("decoded", "lmdb"), ("source", "lmdb"), ("rows", "parquet")])
def test_whatever_happens_to_its_files_it_opens_right_or_is_told_as_damaged(pictures, make, tmp_path, monkeypatch, store, to):
    """`scripts/bench mutations` does the same at length."""
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


def test_a_file_is_said_to_be_no_cache_by_calls_too(tmp_path):
    """They said that it cannot be read, and that its permissions were to be looked at."""
    (tmp_path / "run.json").write_text("{}")
    for read in (CachedDataset, verify):
        with pytest.raises(UnreadableFile, match=r"run.json is a file, and a cache is a folder\."):
            read(tmp_path / "run.json")
