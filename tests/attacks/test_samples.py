"""Samples that leave, die or cannot be told: commands end as documented (attack.md M1, M4 to M6, L7)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.attacks.scene import NUMBERS, PICTURES, Scene, pictures_project, write

COMMANDS = (
    ("probe", "train.py", "--budget", "0.2", "-q"),
    ("convert", "train.py", "--to", "lmdb", "--out", "out", "--workers", "0", "-q"),
    ("tune", "train.py", "--budget", "0.2", "--trials", "1", "-q"),
    ("fix", "train.py", "--yes", "--budget", "0.2", "-q"),
)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_sample_that_exits_with_0_is_no_success(scene: Scene, command: tuple[str, ...]) -> None:
    write(
        scene.project / "train.py",
        NUMBERS.replace("            return len", "            import sys; sys.exit(0)\n            return len"),
    )
    scene.remember()
    told = scene.run(*command).of_the_table()
    assert told.code == 3, str(told)
    scene.unchanged()


@pytest.mark.parametrize("raised", ["Own()", "GeneratorExit()", "KeyboardInterrupt()"])
def test_what_is_no_exception_is_told_as_the_samples(scene: Scene, raised: str) -> None:
    """`convert` called it a bug of its own, or an interrupt."""
    text = NUMBERS.replace("            return len", f"            if index == 5: raise {raised}\n            return len")
    write(scene.project / "train.py", f"class Own(BaseException):\n    pass\n{text}")
    for workers in ("0", "2"):
        told = scene.run("convert", "train.py", "--to", "lmdb", "--out", f"out{workers}", "-q", "--workers", workers)
        told.ended_with(3)
        assert "ended the program" in told.err, str(told)
    if raised == "Own()":  # the others end as it does
        for command in COMMANDS[2:]:
            scene.run(*command).of_the_table()
    write(scene.project / "train.py", (scene.project / "train.py").read_text().replace("index == 5", "True"))
    scene.run(*COMMANDS[0], "--workers", "1" if raised == "Own()" else "0").ended_with(3)


@pytest.mark.parametrize("message", ["'x' * 20_000_000", "'caf\\udce9'", "'\\x1b[31m\\0'"])
def test_messages_of_any_kind_are_told_in_short(scene: Scene, message: str) -> None:
    """All of 50 million characters came to the terminal; a surrogate ended `--on-bad quarantine` with 70."""
    text = NUMBERS.replace(
        "            return len", f"            if index == 5: raise ValueError({message})\n            return len"
    )
    write(scene.project / "train.py", text)
    convert = ("convert", "train.py", "--to", "lmdb", "-q", "--out")
    told = [scene.run(*convert, "bad", "--workers", "0").ended_with(3)]
    told.append(scene.run(*convert, "good", "--workers", "0", "--on-bad", "quarantine").ended_with(0))
    if "x" in message:  # through a worker's pipe
        write(scene.project / "train.py", text.replace("index == 5", "True"))
        told.append(scene.run(*COMMANDS[0], "--workers", "1").ended_with(3))
    for ran in told:
        assert len(ran.text) < 100_000 and "\x1b" not in ran.text, str(ran)


def test_a_target_that_changes_the_working_directory(scene: Scene) -> None:
    """The cache lay where the target had gone."""
    write(scene.project / "train.py", NUMBERS + "\nimport os; os.chdir(Path(__file__).parent / 'files')\n")
    scene.run("convert", "train.py", "--to", "lmdb", "--out", "out", "-q", "--workers", "0").ended_with(0)
    assert (scene.project / "out" / "manifest.json").exists() and not (scene.project / "files" / "out").exists()


def test_names_that_are_not_utf_8_in_a_conversion(scene: Scene) -> None:
    write(Path(os.fsdecode(os.fsencode(scene.project / "files") + b"/caf\xe9.bin")))
    told = scene.run("convert", "train.py", "--to", "lmdb", "--out", "out", "--workers", "0", "-q", "--on-bad", "quarantine")
    told.ended_with(0)
    scene.run("verify", "out").ended_with(0)


OPENED = """        opened = vars(self).setdefault("opened", os.getpid())
        if opened != os.getpid():
            Path(__file__).with_name("shared.txt").touch()
"""


def test_no_two_processes_read_through_what_one_sample_opened(scene: Scene) -> None:
    """A connection or an open file that workers inherit gives them each other's bytes, and a cache of garbage (design 4)."""
    pictures_project(scene.project, 6)
    text = PICTURES.replace("        with Image.open", f"{OPENED}        with Image.open")
    write(scene.project / "train.py", f"import os\n{text}")
    for budget in ("0.3", "1", "3"):
        scene.run("fix", "train.py", "--yes", "-q", "--budget", budget, "--only", "cache-sample").of_the_table()
        assert not (scene.project / "shared.txt").exists()
        if (scene.project / "pipefix.plan.toml").exists():
            break
    scene.run("convert", "train.py", "--to", "lmdb", "--out", "out", "--workers", "2", "-q", "--on-bad", "quarantine").ended_with(0)
    assert not (scene.project / "shared.txt").exists()


def test_a_step_that_changes_its_batch_is_measured(scene: Scene) -> None:
    """``batch.pop("labels")`` broke the probe where a kept batch was used again (design 7)."""
    step = "def train_step(batch):\n    return batch.pop('labels').sum() + batch.pop('size').sum()\n"
    text = NUMBERS.replace("return len(file.read())", "return {'size': len(file.read()), 'labels': index}")
    write(scene.project / "train.py", text + step)
    for workers in ("0", "1"):
        scene.run("probe", "train.py", "--budget", "0.3", "-q", "--workers", workers).ended_with(0)


def test_nothing_is_left_in_the_folder_for_temporary_files(scene: Scene) -> None:
    """Sockets' folders, drafts, recordings (design 8)."""
    for command in (("probe", "train.py", "--budget", "0.3", "-q", "--workers", "1"), COMMANDS[1], COMMANDS[2]):
        told = scene.run(*command).ended_with(0)
        assert not os.listdir(scene.place / "tmp"), str(told)
        assert "Exception ignored" not in told.err and "leaked" not in told.err, str(told)
