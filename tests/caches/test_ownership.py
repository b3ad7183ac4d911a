"""What lies in a directory and is not a cache's own is never changed and never lost, whatever it is called.

`tests/attacks/test_convert.py` has the folders of an attack, by the command line.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipefix.caches import folder as cache_folder
from pipefix.caches.building import Building
from pipefix.caches.convert import convert, recipe_of
from pipefix.caches.layout import building_of
from pipefix.caches.verify import verify
from pipefix.vocabulary.errors import BadUsage, Interrupted, PipefixError, TargetError
from tests.caches.killing import interrupted_after

pytestmark = pytest.mark.usefixtures("fence")

DATASET = list(range(30))
FOREIGN = b'{"name": "a web application", "parts": []}'


def make(folder: Path, store: str = "sample", to: str = "lmdb", **how: Any) -> Any:
    recipe = recipe_of(to, store, on_bad=how.pop("on_bad", "raise"))
    return convert(DATASET, recipe, folder, target="numbers", workers=0, **how)


@pytest.fixture(scope="module", autouse=True)
def small_parts() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipefix.caches.survey._part_samples", lambda samples, record_bytes: 10)
        yield


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory, small_parts: Any) -> Path:
    """An empty directory, a conversion that was interrupted after two parts of three, and a finished cache."""
    folder = tmp_path_factory.mktemp("templates")
    (folder / "new").mkdir()
    make(folder / "finished")
    with interrupted_after(2), pytest.raises(Interrupted):
        make(folder / "begun")
    building_of(folder / "begun").rename(folder / "begun")
    return folder


def laid_out(templates: Path, state: str, folder: Path) -> Path:
    """A copy of one of the templates for the cache ``folder``; the directory that it lies in."""
    return Path(shutil.copytree(templates / state, building_of(folder) if state == "begun" else folder))


# -- in general ------------------------------------------------------------------------------------------------------------

NAMES = (
    "notes.txt", "plan.json", "plan.json.draft", "manifest.json", "manifest.json.draft", "quarantine.jsonl", ".lock", ".repair/a",
    ".pipefix-notes", ".pipefix-0123456789ab", "parts", "index", "parts/holiday.jpg", "parts/00099.mdb", "parts/00001.mdb.bak",
    "parts/00001.txt", "parts/.hidden", "parts/deeper/00000.mdb", "index/notes.idx", "index/00099.facts", "index/b.draft",
    "parts/00002.mdb", "index/00002.facts", "index/manifest.gone", "00000.mdb", "parts.mdb",
)  # fmt: skip
"""Names as people might use them, ours among them."""
CONTENTS = st.sampled_from([b"", b"theirs", FOREIGN, b"123", b'{"index": "no"}\n'])
KINDS = st.one_of(st.tuples(st.just("file"), CONTENTS), st.tuples(st.sampled_from(["link", "linked folder", "pipe", "folder"])))
ACTS = ("convert", "update", "other recipe", "quarantine")


def place(folder: Path, outside: Path, name: str, entry: tuple[Any, ...]) -> bool:
    """Put something of the user's there; False where there is something of ours that they would not have replaced."""
    path = folder / name
    replaces = name in ("manifest.json", "plan.json") and entry[0] == "file" and entry[1] != b""
    if any(parent.is_symlink() or parent.is_file() or parent.is_fifo() for parent in path.parents if folder in parent.parents):
        return False
    if os.path.lexists(path) and not replaces:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    if entry[0] == "file":
        path.write_bytes(entry[1])
    elif entry[0] == "pipe":
        os.mkfifo(path)
    elif entry[0] == "folder":
        path.mkdir()
        (path / "00000.mdb").write_bytes(b"theirs")
    else:
        path.symlink_to(outside if entry[0] == "linked folder" else outside / "photo.jpg")
    return True


def picture(path: Path) -> Any:
    """What can be seen of a user's file."""
    if path.is_symlink():
        return os.readlink(path)
    if path.is_dir():
        return contents(path)
    return path.read_bytes() if path.is_file() else path.lstat().st_mode


def contents(folder: Path) -> dict[str, Any]:
    return {str(path.relative_to(folder)): picture(path) for path in sorted(folder.rglob("*")) if not path.is_dir()}


def act(action: str, folder: Path) -> None:
    if action == "other recipe":
        make(folder, "rows", "parquet")
    else:
        make(folder, update=action == "update", on_bad="quarantine" if action == "quarantine" else "raise")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    state=st.sampled_from(["new", "begun", "finished"]),
    theirs=st.dictionaries(st.sampled_from(NAMES), KINDS, max_size=3),
    damage=st.booleans(),
    acts=st.lists(st.sampled_from(ACTS), min_size=1, max_size=3),
)
def test_nothing_of_theirs_is_changed_or_lost(
    tmp_path_factory: pytest.TempPathFactory, templates: Path, state: str, theirs: dict[str, Any], damage: bool, acts: list[str]
) -> None:
    place_of_all = tmp_path_factory.mktemp("place")
    cache, outside = place_of_all / "cache", place_of_all / "outside"
    folder = laid_out(templates, state, cache)
    outside.mkdir()
    for name in ("photo.jpg", "00000.mdb", "00000.facts", "manifest.gone"):
        (outside / name).write_bytes(b"theirs")
    if damage and state != "new":
        (folder / "parts" / "00001.mdb").write_bytes(b"damage")
    placed = [name for name, entry in theirs.items() if place(folder, outside, name, entry)]
    held = [name for name in placed if not _replaceable(state, name, theirs[name])]
    before = {name: picture(folder / name) for name in held}
    for action in acts:
        with contextlib.suppress(PipefixError):
            act(action, cache)
    after = {name: picture(folder / name) if os.path.lexists(folder / name) else "lost" for name in held}
    for name in ("parts", "index"):  # a folder of theirs may have got company, if it was empty and its name is ours
        if name in before and before[name] == {}:
            after[name] = {}
    assert after == before, (state, placed, acts)
    assert contents(outside) == dict.fromkeys(sorted(contents(outside)), b"theirs")
    shutil.rmtree(place_of_all)


def _replaceable(state: str, name: str, entry: tuple[Any, ...]) -> bool:
    """In a cache of ours, plain files with the very names of its parts are the cache's."""
    return state != "new" and entry[0] == "file" and name in ("parts/00002.mdb", "index/00002.facts")


# -- what must go on -------------------------------------------------------------------------------------------------------


def test_what_was_interrupted_goes_on_once_files_of_theirs_are_moved(tmp_path: Path, templates: Path) -> None:
    place = laid_out(templates, "begun", tmp_path / "cache")
    (place / "parts" / "holiday.jpg").write_bytes(b"theirs")
    (place / ".lock").write_text("99999 on a-host")
    (place / "parts" / ".pipefix-0123456789ab").write_bytes(b"half")
    with pytest.raises(BadUsage, match=r"holds what is not of a cache: .*holiday\.jpg"):
        make(tmp_path / "cache")
    (place / "parts" / "holiday.jpg").rename(tmp_path / "holiday.jpg")
    done = make(tmp_path / "cache")
    assert (done.found, done.made) == (2, 1)
    assert contents(tmp_path / "cache") == contents(templates / "finished") and not place.exists()


def test_a_goal_that_somebody_filled_meanwhile_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Building.seal

    def meanwhile(self: Any, **how: Any) -> Any:
        (tmp_path / "cache").mkdir()
        (tmp_path / "cache" / "thesis.tex").write_bytes(b"theirs")
        return real(self, **how)

    monkeypatch.setattr(Building, "seal", meanwhile)
    with pytest.raises(BadUsage, match="came to hold other things while the cache was made"):
        make(tmp_path / "cache")
    assert contents(tmp_path / "cache") == {"thesis.tex": b"theirs"}
    monkeypatch.undo()
    (tmp_path / "cache").rename(tmp_path / "theirs")
    assert make(tmp_path / "cache").made == 0 and verify(tmp_path / "cache").sound


def test_nothing_is_left_of_a_conversion_that_never_began(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="empty"):
        convert([], recipe_of("lmdb", "sample"), tmp_path / "some" / "where" / "cache", workers=0)
    assert os.listdir(tmp_path) == []


def test_an_empty_folder_of_theirs_stays_where_a_cache_is_refused(tmp_path: Path) -> None:
    (tmp_path / "project" / "index").mkdir(parents=True)
    (tmp_path / "project" / "main.py").touch()
    with pytest.raises(BadUsage, match=r"holds other things, such as 'main\.py'"):
        make(tmp_path / "project")
    assert sorted(os.listdir(tmp_path / "project")) == ["index", "main.py"]


def test_a_linked_directory_is_filled_where_it_leads(tmp_path: Path, templates: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "cache").symlink_to(tmp_path / "disk")
    make(tmp_path / "cache")
    assert (tmp_path / "cache").is_symlink() and contents(tmp_path / "disk") == contents(templates / "finished")


def test_killed_before_there_was_a_plan(tmp_path: Path, templates: Path) -> None:
    place = building_of(tmp_path / "cache")
    place.mkdir()
    (place / ".lock").touch()
    (place / ".pipefix-0123456789ab").write_bytes((templates / "begun" / "plan.json").read_bytes()[:20])
    make(tmp_path / "cache")
    left = contents(tmp_path / "cache")
    assert left.pop(".lock") == b"" and left == contents(templates / "finished")


def test_a_removal_that_was_killed_while_it_took_the_lock_is_finished_by_the_next(tmp_path: Path, templates: Path) -> None:
    """Between the making of the lock file and the writing of its first line: it is empty, and nothing else is left to say whose."""
    place = laid_out(templates, "finished", tmp_path / "cache")
    (place / ".lock").touch()
    assert cache_folder.remove(place) is None
    assert not place.exists()


@pytest.mark.parametrize("name", ["lmdb-source-v1", "parquet-rows-v1"])
def test_caches_of_past_versions_go_on(root: Path, tmp_path: Path, name: str) -> None:
    from scripts.make_golden_caches import Pictures, Rows

    shutil.copytree(root / "fixtures" / "caches" / name, tmp_path / "cache")
    before = contents(tmp_path / "cache")
    dataset: Any = Pictures() if "source" in name else Rows()
    to, store, _ = name.split("-")
    again = convert(dataset, recipe_of(to, store), tmp_path / "cache", target="golden", workers=0)
    assert again.made == 0 and contents(tmp_path / "cache") == before
    data = next((tmp_path / "cache" / "parts").iterdir())
    data.write_bytes(b"damage")
    if "source" not in name:  # whose files lay elsewhere when it was made
        assert convert(dataset, recipe_of(to, store), tmp_path / "cache", target="golden", workers=0, update=True).made
        assert verify(tmp_path / "cache").sound
