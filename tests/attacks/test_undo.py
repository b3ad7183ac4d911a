"""`fix` and `--undo` where files of ours would lie (attack.md H2, H4).

`tests/fixes/test_hostile_log.py` has planted logs, `tests/fixes/test_edited_plans.py` edited plans.
"""

from __future__ import annotations

import os
import shutil
from typing import Any

import pytest

from tests.attacks.scene import Scene, write

LOG, PLAN, CACHES = "pipefix.log.jsonl", "pipefix.plan.toml", "pipefix-caches"


def undo(scene: Scene, *more: str) -> Any:
    return scene.run("fix", "--undo", *more)


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
