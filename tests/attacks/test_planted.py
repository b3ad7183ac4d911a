"""What lies in a folder that was cloned or shared: run files, settings and Python files that name code, are pipes or never end."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from tests.attacks.scene import Scene, cut_short, numbers_project, write

EVIL = "from pathlib import Path\nPath(__file__).with_name('RAN').touch()\nfrom torch.utils.data import TensorDataset\n"


@pytest.fixture(scope="module")
def probed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a run file of a probe holds."""
    scene = Scene(tmp_path_factory.mktemp("probed"))
    numbers_project(scene.project)
    scene.run("probe", "train.py", "--budget", "0.2", "-q", "--out", "run.json").ended_with(0)
    return dict(json.loads((scene.project / "run.json").read_text()))


@pytest.mark.parametrize(
    "target",
    [
        "shutil:rmtree('files')", "os:system(command='touch RAN')", "train.py:os.system('touch RAN')", "train.py:os.getcwd",
        "../evil.py:dataset", "{place}/evil.py", "linked.py:dataset", "train.py:Files(folder='/')",
    ],
)  # fmt: skip
def test_a_run_file_names_no_code_to_run(scene: Scene, probed: dict[str, Any], target: str) -> None:
    """`convert` without TARGET takes what was probed here: `shutil:rmtree('files')` was called."""
    write(scene.place / "evil.py", EVIL)
    (scene.project / "linked.py").symlink_to(scene.place / "evil.py")
    write(scene.project / "train.py", "import os\n" + (scene.project / "train.py").read_text())
    write(scene.project / "run.json", json.dumps({**probed, "target": target.format(place=scene.place)}))
    scene.remember(scene.project / "files", scene.project / "train.py")
    told = scene.run("convert", "--to", "lmdb", "--out", "out", "-q", "--workers", "0").of_the_table()
    scene.unchanged()
    assert not (scene.place / "RAN").exists() and not (scene.project / "RAN").exists(), str(told)
    assert "rmtree" not in told.text


@pytest.mark.parametrize("kind", ["pipe", "endless"])
def test_what_is_no_file_beside_run_files_is_passed_over(scene: Scene, kind: str) -> None:
    for name in ("other.json", "other.py", "sub/run.json", "pipefix.log.jsonl", "pipefix.plan.toml"):
        path = scene.project / name
        path.parent.mkdir(exist_ok=True)
        os.mkfifo(path) if kind == "pipe" else path.symlink_to("/dev/zero")
    with cut_short():
        scene.run("log").ended_with(0)
        scene.run("convert", "--to", "lmdb", "--out", "out", "-q", "--workers", "0").ended_with(0)


@pytest.mark.parametrize("command", ["probe", "convert --to lmdb --out out", "doctor", "swap --to kornia", "tune", "fix --yes"])
def test_a_target_that_is_a_pipe_is_told_and_not_waited_for(scene: Scene, command: str) -> None:
    os.mkfifo(scene.project / "pipe.py")
    verb, *more = command.split()
    with cut_short():
        assert "not a regular file" in scene.run(verb, "pipe.py", *more).ended_with(3).err


def test_a_neighbour_that_is_a_pipe_is_not_read(scene: Scene) -> None:
    """Files that the target imports from are looked at before it is run."""
    os.mkfifo(scene.project / "neighbour.py")
    text = (scene.project / "train.py").read_text()
    write(scene.project / "train.py", f"try:\n    pass\nexcept ImportError:\n    from neighbour import x\n{text}")
    with cut_short():
        scene.run("doctor", "train.py").ended_with(0, 1)


@pytest.mark.parametrize(
    "command",
    [
        ("probe", "{}"), ("show", "{}"), ("log", "{}"), ("verify", "{}"), ("watch", "{}", "--once"), ("compare", "{}", "{}"),
        ("convert", "train.py", "--to", "lmdb", "--out", "{}"), ("probe", "train.py", "--budget", "0.2", "--out", "{}"),
        ("tune", "train.py", "--budget", "0.2", "--write", "{}"), ("fix", "--undo", "--out", "{}"),
        ("run", "--out", "{}", "train.py"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["x" * 300, "a/" * 2500])
def test_names_that_are_too_long_are_told(scene: Scene, command: tuple[str, ...], name: str) -> None:
    """Exit code 70."""
    scene.remember()
    scene.run(*(word.format(name) for word in command)).ended_with(2, 3, 4)
    scene.unchanged()
    assert scene.made() == []


@pytest.mark.parametrize("plant", ["foreign part", "other file", "linked folder", "foreign index"])
def test_a_store_that_holds_other_things_is_refused(scene: Scene, plant: str) -> None:
    """`--out file://DIR` wrote over the user's own files, and through links."""
    store, victim = scene.place / "store", write(scene.place / "victim" / "00000.mdb").parent
    if plant == "linked folder":
        store.mkdir()
        (store / "parts").symlink_to(victim)
    else:
        write(store / {"foreign part": "parts/00000.mdb", "other file": "notes.txt"}.get(plant, "index/00000.idx"))
    scene.remember()
    told = scene.run("convert", "train.py", "--to", "lmdb", "--out", f"file://{store}", "-q", "--workers", "0").ended_with(2)
    scene.unchanged()
    assert "holds other things" in told.err


def test_the_whole_disk_is_no_store(scene: Scene) -> None:
    told = scene.run("convert", "train.py", "--to", "lmdb", "--out", "file:///", "-q", "--workers", "0").ended_with(2, 4)
    assert "file:///" in told.err


@pytest.mark.parametrize("how", [("--update",), (), ("--store", "sample")])
def test_a_cache_is_not_made_of_itself(cached: Scene, how: tuple[str, ...]) -> None:
    """Its parts were made anew from themselves, and what it had been made from was forgotten."""
    cached.remember()
    to = "lmdb" if "--store" in how else "parquet"
    told = cached.run("convert", "parquet", "--to", to, "--out", "parquet", "-q", "--workers", "0", *how).ended_with(2)
    cached.unchanged()
    assert "parquet" in told.err and cached.made() == []
