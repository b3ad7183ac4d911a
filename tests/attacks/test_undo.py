"""`fix` and `--undo` beside a planted log, an edited plan and linked caches: no path in a file is obeyed (attack.md H2, H4)."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.attacks.scene import Scene, look, write

LOG, PLAN, CACHES = "pipefix.log.jsonl", "pipefix.plan.toml", "pipefix-caches"


def undo(scene: Scene, *more: str) -> Any:
    return scene.run("fix", "--undo", *more)


def plant(scene: Scene, makes: str, *events: str) -> None:
    lines: list[dict[str, Any]] = [{"event": "begun", "step": 1, "id": "cache-source", "makes": makes}]
    lines += [{"event": event, "step": 1, "id": "cache-source"} for event in events]
    write(scene.project / LOG, "".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.parametrize(
    ("makes", "events"),
    [
        ("{place}/victim", ("dropped",)),
        ("../victim", ()),
        ("files", ("keeping", "kept")),
        ("pipefix-caches/../../moved", ("keeping", "kept", "undoing")),
        ("pipefix-caches/linked", ("keeping", "kept")),
    ],
)
def test_a_log_from_elsewhere_deletes_nothing(cached: Scene, makes: str, events: tuple[str, ...]) -> None:
    write(cached.place / "victim" / "parts" / "00000.mdb")
    shutil.copytree(cached.project / "lmdb", cached.place / "moved")
    write(cached.project / CACHES / "mine.txt")
    (cached.project / CACHES / "linked").symlink_to(cached.place / "moved")
    plant(cached, makes.format(place=cached.place), *events)
    cached.remember()
    undo(cached).of_the_table()
    undo(cached).of_the_table()
    cached.unchanged(cached.project / LOG)


def test_a_planted_log_and_a_whole_fix(cached: Scene) -> None:
    write(cached.place / "victim" / "parts" / "00000.mdb")
    plant(cached, "../victim", "dropped")
    cached.remember()
    cached.run("fix", "train.py", "--yes", "-q", "--budget", "0.2", "--only", "cache-source").ended_with(0)
    cached.unchanged(cached.project / LOG)


@pytest.mark.parametrize("path", ["../victim", "/", "a\\u0000b"])
def test_undo_after_the_plans_cache_was_edited(fixed: Scene, path: str) -> None:
    """Ended with 70, and every later fix too."""
    write(fixed.place / "victim" / "thesis.txt")
    write(fixed.project / "elsewhere" / "thesis.txt")
    plan = fixed.project / PLAN
    lines = [f'path = "{path}"' if line.startswith("path =") else line for line in plan.read_text().splitlines()]
    write(plan, "\n".join(lines) + "\n")
    fixed.remember(fixed.place / "victim", fixed.project / "elsewhere", fixed.project / "files", fixed.project / "train.py")
    undo(fixed).of_the_table()
    undo(fixed).of_the_table()
    fixed.unchanged()
    if path == "a\\u0000b":
        fixed.run("fix", "train.py", "--yes", "-q", "--budget", "0.2", "--only", "workers").of_the_table()
        fixed.unchanged()


@pytest.mark.parametrize("content", [b"", b"[loader", b"x = 1\n"])
def test_undo_over_a_plan_that_somebody_rewrote(fixed: Scene, content: bytes) -> None:
    """What was edited is kept somewhere: undo parses nothing that people edit, and loses nothing of it."""
    write(fixed.project / PLAN, content)
    fixed.remember(fixed.project / "files", fixed.project / "train.py")
    undo(fixed).of_the_table()
    fixed.unchanged()
    if content.strip() and content != b'format = "pipefix.plan/1"\n':
        held = [path.read_bytes() for path in fixed.project.iterdir() if path.is_file()]
        assert content in held, "what the user had written is lost"


def test_a_log_of_nothing_stays(fixed: Scene) -> None:
    """A user's own empty file of that name, where there is nothing to take back."""
    shutil.rmtree(fixed.project / CACHES)
    for path in fixed.project.glob("pipefix.*"):
        path.unlink()
    write(fixed.project / LOG, b"")
    fixed.remember()
    undo(fixed).ended_with(2)
    fixed.run("fix", "train.py", "--dry-run", "--budget", "0.2", "-q").ended_with(0)
    fixed.unchanged()


def test_what_a_user_put_in_the_place_of_a_part_stays(fixed: Scene) -> None:
    mine = [write(fixed.project / CACHES / "sample" / name) for name in ("parts/00000.mdb", "index/00000.idx")]
    fixed.remember(*mine)
    told = undo(fixed).ended_with(0)
    fixed.unchanged()
    assert "left alone" in told.text


def test_fix_under_a_long_name_of_the_folder_for_temporary_files(scene: Scene) -> None:
    """Workers could not send a batch through a socket there, and fix waited for ever."""
    folder = scene.place / ("x" * 90)
    folder.mkdir()

    def name() -> None:
        os.environ["TMPDIR"] = str(folder)

    scene.run("fix", "train.py", "--yes", "-q", "--budget", "0.2", "--only", "workers", before=name).ended_with(0)
    scene.run("tune", "train.py", "-q", "--budget", "0.2", "--trials", "1", "--workers", "1", before=name).ended_with(0)


def test_a_cache_that_was_moved_and_linked_stays(fixed: Scene) -> None:
    shutil.move(fixed.project / CACHES / "sample", fixed.place / "large-disk")
    (fixed.project / CACHES / "sample").symlink_to(fixed.place / "large-disk")
    fixed.remember(fixed.place / "large-disk")
    undo(fixed).of_the_table()
    fixed.unchanged()


def test_what_a_user_put_beside_and_into_the_caches_stays(fixed: Scene) -> None:
    into = [write(fixed.project / CACHES / name) for name in ("notes.txt", "sample/notes.txt", "sample/parts/99999.mdb", "my/x")]
    fixed.remember(*into)
    undo(fixed).ended_with(0)
    fixed.unchanged()


def test_undo_brings_back_what_was_before_to_the_letter(fixed: Scene) -> None:
    theirs = look(fixed.project / "files", fixed.project / "train.py")
    undo(fixed).ended_with(0)
    assert look(fixed.project / "files", fixed.project / "train.py") == theirs
    assert not (fixed.project / PLAN).exists()
    assert not any(path.is_file() for path in fixed.project.rglob(f"{CACHES}/**/*"))
    undo(fixed).ended_with(0, 2)


@pytest.mark.parametrize(
    ("name", "kind"), [(LOG, "pipe"), (LOG, "link"), (PLAN, "device"), (PLAN, "folder"), (CACHES, "link"), (CACHES, "loop")]
)
def test_what_is_no_file_where_ours_would_lie(fixed: Scene, name: str, kind: str) -> None:
    victim = write(fixed.place / "victim" / "thesis.txt")
    path = fixed.project / name
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        write(path / "thesis.txt")
    else:
        path.symlink_to({"link": victim, "loop": path.name, "device": Path("/dev/zero")}[kind])
    fixed.remember(victim, path, fixed.project / "files")
    undo(fixed).of_the_table()
    fixed.unchanged()
    if kind not in ("link", "loop"):
        fixed.run("fix", "train.py", "--yes", "-q", "--budget", "0.2", "--dry-run").of_the_table()
        fixed.unchanged()


def test_reports_of_the_users_are_not_replaced(scene: Scene) -> None:
    """A page and run files that only happen to be called as ours."""
    names = ("pipefix.fix.html", "pipefix.before.json", "pipefix.after.json", "pipefix.plan.toml.bak")
    for name in names:
        write(scene.project / name, b"<p>mine</p>")
    scene.remember()
    scene.run("fix", "train.py", "--yes", "-q", "--budget", "0.2", "--only", "cache-source").of_the_table()
    scene.unchanged()


@pytest.mark.parametrize("name", ["pipefix.fix.html", "pipefix.before.json"])
def test_reports_are_written_through_no_link_and_into_no_pipe(scene: Scene, name: str) -> None:
    write(scene.project / "notes.html", b"<html>pipefix: mine</html>")
    (scene.project / name).symlink_to("notes.html")
    scene.remember()
    assert scene.run("fix", "train.py", "--yes", "-q", "--budget", "0.2", "--only", "cache-source").code == 2
    scene.unchanged()
    (scene.project / name).unlink()
    os.mkfifo(scene.project / name)
    assert scene.run("fix", "train.py", "--yes", "-q", "--budget", "0.2", "--only", "cache-source").code == 2
