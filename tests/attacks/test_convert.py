"""`pipefix convert --out DIR` where DIR is the user's: nothing of theirs is lost, changed or followed (attack.md H1)."""

from __future__ import annotations

import os
import shutil

import pytest

from tests.attacks.scene import Scene, write

FOREIGN = (
    "parts/00000.mdb", "index/00000.idx", "plan.json", "manifest.json.draft", "quarantine.jsonl",
    ".pipefix-0123456789ab",
)  # fmt: skip


def convert(scene: Scene, *how: str, out: str = "out"):
    return scene.run("convert", "train.py", "--to", "lmdb", "--out", out, "--workers", "0", "-q", *how)


@pytest.mark.parametrize("name", FOREIGN)
def test_a_folder_of_the_users_is_refused_whatever_its_files_are_called(scene: Scene, name: str) -> None:
    write(scene.project / "out" / name)
    scene.remember()
    told = convert(scene).of_the_table()
    scene.unchanged()
    assert told.code == 2, str(told)
    assert "rm " not in told.text
    assert scene.made() == []


@pytest.mark.parametrize("name", ["parts", "manifest.json", "."])
def test_no_link_is_followed(scene: Scene, name: str) -> None:
    victim = write(scene.place / "victim" / "thesis.txt").parent
    write(victim / "00000.mdb")
    out = scene.project / "out"
    if name == ".":
        out.symlink_to(victim)
    else:
        out.mkdir()
        (out / name).symlink_to(victim)
    scene.remember()
    convert(scene).ended_with(2, 4)
    scene.unchanged()


@pytest.mark.parametrize("kind", ["folder", "link", "pipe"])
def test_what_lies_where_a_cache_would_be_built_is_left_alone(scene: Scene, kind: str) -> None:
    building = scene.project / "out.building"
    victim = write(scene.place / "victim" / "thesis.txt").parent
    if kind == "file":
        write(building)
    elif kind == "folder":
        write(building / "parts" / "00000.mdb")
    elif kind == "link":
        building.symlink_to(victim)
    else:
        os.mkfifo(building)
    scene.remember()
    convert(scene).of_the_table()
    scene.unchanged()


@pytest.mark.parametrize("how", [("--update",), ("--store", "sample")])
def test_what_a_user_put_into_a_cache_stays(cached: Scene, how: tuple[str, ...]) -> None:
    notes = [write(cached.project / "lmdb" / name) for name in ("notes.txt", "parts/00099.mdb", "parts/a.draft", "index/b.txt")]
    write(cached.project / "files" / "003.bin", b"changed")
    cached.remember(*notes, cached.project / "files", cached.project / "train.py")
    convert(cached, *how, out="lmdb").of_the_table()
    cached.unchanged()


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
