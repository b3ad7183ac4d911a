"""What is told: paths in commands are quoted, control characters never reach a terminal (attack.md M7, M10)."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipefix.watching.window import Window, encode
from tests.attacks.scene import Scene, numbers_project, pictures_project, write

STRANGE = "ca che; touch PWNED"
ESCAPES = "a\x1b[31mred\x1b]0;title\x07b"


def unquoted(text: str, name: str) -> list[str]:
    """Lines with a command of ours or rm, in which the name stands bare."""
    lines = (" ".join(line.split()) for line in text.splitlines())
    return [
        line
        for line in lines
        if name in line and ("pipefix " in line or "rm " in line) and f"{name}'" not in line and not line.startswith("pipefix: ")
    ]


@pytest.fixture
def strange(tmp_path: Path) -> Scene:
    scene = Scene(tmp_path)
    scene.project = tmp_path / STRANGE
    numbers_project(scene.project)
    return scene


def test_commands_that_are_told_can_be_typed(strange: Scene) -> None:
    out = str(strange.project / STRANGE)
    told = [strange.run("convert", "train.py", "--to", "lmdb", "--out", out, "--workers", "0", "-q").ended_with(0)]
    part = next((strange.project / STRANGE / "parts").iterdir())
    write(strange.project / "files" / "003.bin", b"more than before")
    told.append(strange.run("convert", "train.py", "--to", "lmdb", "--out", out, "--workers", "0", "-q").of_the_table())
    told.append(strange.run("convert", "train.py", "--to", "parquet", "--store", "rows", "--out", out, "-q").of_the_table())
    part.write_bytes(part.read_bytes()[:5000])
    told.append(strange.run("verify", out).ended_with(1))
    told.append(strange.run("verify", out, "--json").ended_with(1))
    told.append(strange.run("verify", f"{out}-not-there").ended_with(2, 4))
    told.append(strange.run("fix", "--undo", "--out", str(strange.project)).ended_with(2))
    wrong = [line for ran in told for line in unquoted(ran.err if "--json" in ran.arguments else ran.text, STRANGE)]
    assert not wrong, "\n".join(wrong)


def test_escapes_in_names_and_files_do_not_reach_a_terminal(scene: Scene) -> None:
    folder = scene.project / ESCAPES
    write(folder / "notes.txt")
    write(scene.project / "evil.py", f'dataset = [1, 2]\nraise ValueError("{ESCAPES.encode("unicode_escape").decode()}")\n')
    write(scene.project / "run.json", b'{"format": "pipefix.run/\\u001b[31m9"}')
    window = Window(time=1, number=1, seconds=30, labels={ESCAPES: ESCAPES}, died=[ESCAPES], drifting=[ESCAPES], declined=ESCAPES)
    write(scene.project / "watch.jsonl", encode(window))
    for command in (
        ("verify", ESCAPES),
        ("convert", "train.py", "--to", "lmdb", "--out", ESCAPES, "--workers", "0"),
        ("show", "run.json"),
        ("show", ESCAPES),
        ("convert", ESCAPES, "--to", "lmdb"),
        ("watch", "run.json", "--once"),
        ("watch", "watch.jsonl", "--once"),
    ):
        told = scene.run(*command).of_the_table()
        assert "\x1b" not in told.text and "\x07" not in told.text, repr(told.text[-600:])


def test_two_folders_of_one_name_are_not_taken_for_one(tmp_path: Path) -> None:
    """Pictures in two folders called `train` were compared as one target."""
    scene = Scene(tmp_path)
    for name in ("a", "b"):
        pictures_project(tmp_path / name, 4)
        (tmp_path / name / "files").rename(tmp_path / name / "of one class")
        (scene.project / name / "train").mkdir(parents=True)
        (tmp_path / name / "of one class").rename(scene.project / name / "train" / "of one class")
        scene.run("probe", f"{name}/train", "--budget", "0.2", "-q", "--out", f"{name}.json").ended_with(0)
    told = scene.run("compare", "a.json", "b.json").ended_with(2)
    assert "a/train" in told.err and "b/train" in told.err, str(told)
    scene.run("compare", "a.json", "a.json").ended_with(0)
