"""A conversion that was interrupted goes on with what still fits, and says before it removes what does not."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from pipefix.caches.building import Building
from pipefix.caches.dataset import CachedDataset
from pipefix.report.cache_report import ShownConversion
from pipefix.report.shown import shown_as
from pipefix.vocabulary.errors import BadUsage, TargetError
from tests.caches.killing import Killed
from tests.caches.sources import Files, draw


@pytest.fixture
def begun(make: Any, files: Files, small_parts: None, tmp_path: Path) -> Path:
    """Three parts of a cache that was never sealed."""
    with mock.patch.object(Building, "seal", side_effect=Killed), pytest.raises(Killed):
        make(files, "decoded")
    return tmp_path / "cache.building"


def test_another_recipe_leaves_it(begun: Path, make: Any, files: Files) -> None:
    before = sorted(os.listdir(begun / "parts"))
    with pytest.raises(BadUsage, match="an unfinished cache of another recipe: decoded in lmdb; 3 finished parts"):
        make(files, "source")
    assert sorted(os.listdir(begun / "parts")) == before and make(files, "decoded").found == 3


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_what_makes_no_other_records_makes_no_difference(begun: Path, make: Any, files: Files, monkeypatch: Any) -> None:
    """Neither what the target is called, nor a survey that measured a byte more, nor how many damaged samples are borne."""
    monkeypatch.setattr("pipefix.caches.survey._part_samples", lambda *_: 5)
    monkeypatch.setattr("pipefix.caches.survey._classes", lambda _: ["named since"])
    assert make(files, "decoded", max_bad=0.5).found == 3


def test_another_dataset_is_told_before_its_parts_go(begun: Path, make: Any, files: Files) -> None:
    files.convert = "L"
    with pytest.warns(
        RuntimeWarning, match=r"was begun from another dataset \(convert differ\): the parts that it has, 3, are removed"
    ):
        done = make(files, "decoded")
    assert (done.found, done.made) == (0, 3) and CachedDataset(done.folder)[0][0].mode == "L"


@pytest.mark.parametrize("change", ["label", "file"])
def test_parts_of_other_labels_or_files_are_made_anew(begun: Path, make: Any, files: Files, change: str) -> None:
    if change == "label":
        files.labels[5] = 1000
    else:
        draw(Path(files.paths[5]), 40)
    done = make(files, "decoded")
    assert (done.found, done.made) == (2, 1)
    assert CachedDataset(done.folder, dataset=files)[5][1] == files.labels[5]


def test_the_advice_of_a_damaged_sample_can_be_taken(make: Any, files: Files, small_parts: None) -> None:
    """With ``--on-bad``, as the error says, the finished parts were refused as those of another recipe."""
    Path(files.paths[9]).write_bytes(b"no picture")
    with pytest.raises(TargetError, match="Sample 9") as raised:
        make(files, "decoded")
    assert "--on-bad quarantine" in raised.value.advice
    done = make(files, "decoded", on_bad="quarantine")
    assert (done.found, done.made, done.manifest.bad) == (2, 1, 1) and (done.folder / "quarantine.jsonl").exists()
    with pytest.raises(BadUsage, match=r"of another recipe: decoded in lmdb, --on-bad quarantine \(now raise\); 11 records"):
        make(files, "decoded")


def test_the_advice_of_a_damaged_sample_can_be_taken_by_an_update(make: Any, files: Files, small_parts: None) -> None:
    make(files, "decoded")
    Path(files.paths[9]).write_bytes(b"no picture")
    with pytest.raises(TargetError, match="Sample 9"):
        make(files, "decoded", update=True)
    done = make(files, "decoded", update=True, on_bad="skip")
    assert (done.found, done.made, done.manifest.bad, done.manifest.recipe.on_bad) == (2, 1, 1, "skip")


def test_what_only_had_to_be_sealed_is_not_said_to_have_been_there(begun: Path, make: Any, files: Files) -> None:
    """Of a cache that nobody could open it was said that it was there already, and that nothing was done."""
    sealed = make(files, "decoded")
    files.paths, files.labels = files.paths[:8], files.labels[:8]
    shortened = make(files, "decoded", update=True)  # takes a part away, and makes none
    for done, found in ((sealed, 3), (shortened, 2)):
        assert (done.made, done.found) == (0, found)
        assert f"{found} parts of them kept from before" in " ".join(str(shown_as(ShownConversion, done)).split())


def test_what_a_change_would_make_anew_is_no_part_of_what_is_there(make: Any, files: Files, small_parts: None) -> None:
    """Where files came to it, 4 parts of 3 would be made anew."""
    make(files, "decoded")
    more = Files([Path(path) for path in [*files.paths, *files.paths, *files.paths]])
    assert "Add --update to make 6 parts of it anew" in " ".join(str(shown_as(ShownConversion, make(more, "decoded"))).split())
