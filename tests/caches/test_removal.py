"""What of a directory is a cache of ours: only that is removed, and a removal that is interrupted can be gone on with."""

from __future__ import annotations

import shutil
from pathlib import Path
from unittest import mock

import pytest

from pipefix.caches import folder as folders
from pipefix.caches import manifest as manifests
from pipefix.caches.building import Building
from pipefix.caches.convert import convert, recipe_of
from pipefix.caches.verify import verify
from pipefix.vocabulary.errors import BadUsage, UnreadableFile
from tests.caches.killing import Killed
from tests.caches.sources import Files

pytestmark = pytest.mark.usefixtures("fence")


def dying_at(number: int) -> mock.MagicMock:
    """Every act that changes the disk, until the ``number``-th, before which the process dies."""
    acts = iter(range(number))

    def counted(real):
        def act(self, *arguments, **options):
            if next(acts, None) is None:
                raise Killed
            return real(self, *arguments, **options)

        return act

    return mock.patch.multiple(Path, unlink=counted(Path.unlink), rmdir=counted(Path.rmdir), replace=counted(Path.replace))


@pytest.fixture
def cache(make, files: Files, monkeypatch) -> Path:
    monkeypatch.setattr("pipefix.caches.survey._part_samples", lambda *_: 5)
    return make(files, "source").folder


def test_a_whole_cache_is_removed_whole(cache):
    assert folders.remove(cache) is None and not cache.exists()
    assert folders.remove(cache) is None


def test_a_removal_that_was_interrupted_is_ended_by_the_next_conversion(cache, files):
    with dying_at(4), pytest.raises(Killed):
        folders.remove(cache)
    assert folders.is_ours(cache) and not (cache / "manifest.json").exists()
    assert convert(files, recipe_of("lmdb", "decoded"), cache, workers=0).made == 3 and verify(cache).sound


def test_a_begun_cache_is_removed_by_its_blueprint(tmp_path, files):
    with mock.patch.object(Building, "seal", side_effect=Killed), pytest.raises(Killed):
        convert(files, recipe_of("lmdb", "source"), tmp_path / "begun", workers=0)
    assert (tmp_path / "begun.building" / "plan.json").exists()
    assert folders.remove(tmp_path / "begun") is None and not list(tmp_path.glob("begun*"))


def test_what_an_interrupted_update_had_made_goes_too(cache, files):
    """Parts of samples that had come to the dataset were called somebody else's; nothing in the folder told any more whose."""
    more = Files([Path(path) for path in files.paths * 2])
    with mock.patch.object(Building, "seal", side_effect=Killed), pytest.raises(Killed):
        convert(more, recipe_of("lmdb", "source"), cache, workers=0, update=True)
    assert (cache / "parts" / "00004.mdb").exists()
    assert folders.remove(cache) is None and not cache.exists()


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("thesis.txt", ""), ("plan.json", '{"steps": []}'), ("manifest.json", '{"files": []}'), ("parts/00000.mdb", "mine"),
        (".lock", "my own lock"), ("manifest.json.draft", "# draft"), ("index/manifest.copy", "{}"), ("deep/er/file", "mine"),
        (".pipefix-0123456789ab", "mine"),
    ],
)  # fmt: skip
def test_a_folder_that_nothing_marks_as_ours_stays(tmp_path, path, text):
    (tmp_path / "theirs" / path).parent.mkdir(parents=True)
    (tmp_path / "theirs" / path).write_text(text)
    why = folders.remove(tmp_path / "theirs")
    assert why is not None and "nothing in it says that pipefix made it" in why
    assert (tmp_path / "theirs" / path).read_text() == text


def test_what_a_converter_left_that_had_made_nothing_yet_is_ours(tmp_path):
    for name in ("parts", "index"):
        (tmp_path / "early" / name).mkdir(parents=True)
    (tmp_path / "early" / ".lock").write_text("4711 on host")
    for name in (".pipefix-0123456789ac", ".pipefix-0123456789ab"):
        (tmp_path / "early" / name).write_text('{\n "format": "pipef')
    assert folders.remove(tmp_path / "early") is None and not (tmp_path / "early").exists()


def test_what_a_removal_leaves_that_is_killed_at_its_very_end_holds_no_conversion_up(tmp_path, files):
    (tmp_path / "gone" / "parts").mkdir(parents=True)
    (tmp_path / "gone" / ".lock").write_text("4711 on host")
    assert convert(files, recipe_of("lmdb", "source"), tmp_path / "gone", workers=0).made


@pytest.mark.parametrize(("name", "content"), [(".lock", ""), (".pipefix-0123456789ab", '{\n "format": "pipefix.cache/2"')])
def test_a_file_that_may_be_anybodys_keeps_a_conversion_away(tmp_path, files, name, content):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).write_text(content)
    with pytest.raises(BadUsage, match="holds other things"):
        convert(files, recipe_of("lmdb", "source"), tmp_path / "out", workers=0)
    assert (tmp_path / "out" / name).read_text() == content


@pytest.mark.system
def test_a_removal_that_is_killed_leaves_nothing_that_looks_whole_and_can_be_gone_on_with(tmp_path, cache, files):
    for number in range(40):
        folder = tmp_path / f"killed-{number}"
        shutil.copytree(cache, folder)
        ended = False
        with dying_at(number):
            try:
                assert folders.remove(folder) is None
                ended = True
            except Killed:
                pass
        if ended:
            assert number >= 5
            return
        if number and folder.exists():
            with pytest.raises(UnreadableFile):
                manifests.read(folder)
        copied = tmp_path / f"gone-on-{number}"
        if folder.exists():
            shutil.copytree(folder, copied)
            for update in (False, True):
                convert(files, recipe_of("lmdb", "source"), copied, target="a target", workers=0, update=update)
            assert not verify(copied).damage and manifests.read(copied).length == len(files)
        assert folders.remove(folder) is None and not folder.exists()
    raise AssertionError("the removal never ends")
