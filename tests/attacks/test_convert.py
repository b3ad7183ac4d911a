"""`pipefix convert --out DIR` where DIR is the user's: nothing of theirs is lost, changed or followed (attack.md H1).

`tests/caches/test_ownership.py` has files, links and pipes of all names.
"""

from __future__ import annotations

import os
import resource
import shutil
import sys

import pytest

from tests.attacks.scene import Scene, write


def convert(scene: Scene, *how: str, out: str = "out"):
    return scene.run("convert", "train.py", "--to", "lmdb", "--out", out, "--workers", "0", "-q", *how)


@pytest.mark.parametrize("kind", ["folder", "link", "pipe"])
def test_what_lies_where_a_cache_would_be_built_is_left_alone(scene: Scene, kind: str) -> None:
    building = scene.project / "out.building"
    victim = write(scene.place / "victim" / "thesis.txt").parent
    if kind == "folder":
        write(building / "parts" / "00000.mdb")
    elif kind == "link":
        building.symlink_to(victim)
    else:
        os.mkfifo(building)
    scene.remember()
    convert(scene).of_the_table()
    scene.unchanged()


def test_the_dataset_in_a_folder_called_parts(scene: Scene) -> None:
    """Thirty files were lost this way."""
    (scene.project / "data").mkdir()
    shutil.move(scene.project / "files", scene.project / "data" / "parts")
    text = (scene.project / "train.py").read_text().replace('"files"', '"data/parts"')
    write(scene.project / "train.py", text)
    scene.remember()
    told = convert(scene, out="data")
    scene.unchanged()
    told.ended_with(2)


def test_a_foreign_manifest_brings_no_advice_to_remove(scene: Scene) -> None:
    write(scene.project / "out" / "manifest.json", b'{"name": "a web application", "parts": []}')
    scene.remember()
    for command in (("convert", "train.py", "--to", "lmdb", "--out", "out", "--update"), ("verify", "out")):
        told = scene.run(*command).ended_with(2, 4)
        assert "rm -r" not in told.text
    scene.unchanged()


def test_a_stale_lock_or_draft_of_another_program_is_no_end(scene: Scene) -> None:
    """A folder that is not there yet, beside drafts of an editor."""
    beside = [write(scene.project / name) for name in (".out.swp", "out~", "out.draft", "out.tmp", "out.lock")]
    scene.remember(*beside)
    convert(scene).ended_with(0)
    scene.unchanged()
    assert sorted(name for name in os.listdir(scene.project) if name.startswith(("out", ".out"))) == sorted(
        [path.name for path in beside] + ["out"]
    )


def files_may_grow_no_more() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (400, resource.RLIM_INFINITY))
    sys.dont_write_bytecode = True  # Python 3.11 leaves half of train.pyc there, and cannot load it the next time


@pytest.mark.parametrize("to", [("lmdb",), ("parquet", "--store", "rows")])
def test_no_room_for_a_part_is_told_and_the_same_command_goes_on(scene: Scene, to: tuple[str, ...]) -> None:
    """LMDB on a full disk was called a bug of pipefix (M3)."""
    command = ("convert", "train.py", "--out", "out", "--workers", "0", "-q", "--to", *to)
    for path in (scene.project / "files").iterdir():
        write(path, os.urandom(3000))
    scene.remember()
    assert scene.run(*command, before=files_may_grow_no_more).of_the_table().code not in (0, 1)
    scene.unchanged()
    scene.run(*command).ended_with(0)
    scene.run("verify", "out").ended_with(0)
    assert not (scene.project / "out.building").exists()
