"""``import pipefix.auto``: what a process notes of itself, where `pipefix run` does not start it."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pipefix.api import observe
from pipefix.programs.merge_notes import still_noting
from pipefix.vocabulary.errors import BadUsage
from tests.programs.conftest import Place

PROGRAM = """\
import json
import pipefix.auto
import torch
from torch.utils.data import DataLoader

parameter = torch.zeros(1, requires_grad=True)
optimizer = torch.optim.SGD([parameter])
loader = DataLoader(range(12), batch_size=4)
for epoch in range(2):
    for batch in loader:
        (parameter * batch).sum().backward()
        optimizer.step()
try:
    run = pipefix.auto.report()
    print(json.dumps([[loop.loader, loop.role, loop.steps, loop.samples] for loop in run.program.loops]))
    print(run.program.command, "<iframe" in run._repr_html_())
except ValueError as error:
    print(error)
"""


def test_a_process_tells_what_its_loops_did(place: Place) -> None:
    place.write(PROGRAM)
    (place.folder / "pipefix-run").mkdir()
    (place.folder / "pipefix-run" / "events-earlier-1.jsonl").write_text('{"event": "process", "at": 1.0, "pid": 1}\n')
    done = place.started([*place.python, "train.py"])
    told, command = done.stdout.splitlines()
    assert json.loads(told) == [["train.py:8", "training", 6, 24]]
    assert command == "['train.py'] True"
    assert done.stderr == ""
    assert len(list((place.folder / "pipefix-run").iterdir())) == 1


def test_it_can_be_switched_off(place: Place) -> None:
    place.write(PROGRAM)
    place.environment["PIPEFIX"] = "0"
    done = place.started([*place.python, "train.py"])
    assert "without PIPEFIX=0" in done.stdout + done.stderr
    assert not (place.folder / "pipefix-run").exists()
    place.write("import os, sys\nprint(sorted(name for name in os.environ if name.startswith('PIPEFIX')))\nsys.exit(7)", "bare.py")
    done = place.started(place.command(["bare.py"]))
    assert (done.returncode, done.stdout, done.stderr) == (7, "['PIPEFIX']\n", "")
    place.write("exit $#", "job.sh").chmod(0o755)
    assert place.started(place.command(["./job.sh", "a"])).returncode == 1, "a script without #!, which was not started"
    assert not (place.folder / "pipefix-run").exists()


def test_programs_side_by_side_do_not_share_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    notes = tmp_path / "pipefix-run" / f"events-{os.uname().nodename}-{os.getpid()}.jsonl"
    notes.parent.mkdir()
    begun = {"event": "process", "at": 1.0, "pid": os.getpid(), "host": os.uname().nodename}
    notes.write_text(json.dumps(begun) + "\n")
    assert still_noting(notes) is None
    with notes.open("a"):
        assert still_noting(notes) == os.getpid()
        assert observe._own_folder() == tmp_path / f"pipefix-run-{os.getpid()}"
    assert observe._own_folder() == tmp_path / "pipefix-run"
    assert not notes.exists()
    for taken, folder in ((tmp_path / "pipefix-run", tmp_path), (tmp_path / f"pipefix-run-{os.getpid()}", tmp_path / "temporary")):
        if taken.exists():
            taken.rmdir()
        taken.write_text("a file of the user's")
        folder.mkdir(exist_ok=True)
        monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path / "temporary"))
        assert observe._own_folder() == folder / f"pipefix-run-{os.getpid()}"


def test_of_two_that_have_no_loop_yet_each_has_a_folder(light: Place) -> None:
    """Two notebooks side by side noted in one folder, and `report` told the loops of both."""
    light.write("import sys\nimport pipefix.auto\nprint('ready', flush=True)\nsys.stdin.read()\n")
    command = [sys.executable, "train.py"]
    with subprocess.Popen(
        command, cwd=light.folder, env=light.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        assert light.started(command, stdin=subprocess.DEVNULL).returncode == 0
        process.communicate()
    assert [len(list(folder.iterdir())) for folder in light.folder.glob("pipefix-run*")] == [1, 1]


@pytest.mark.parametrize("what", ["a spawned worker", "a program of pipefix run"])
def test_nothing_is_noted_twice(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    if what == "a spawned worker":
        process: Any = multiprocessing.current_process()
        monkeypatch.setattr(process, "_inheriting", True, raising=False)
    else:
        monkeypatch.setenv("PYTHONPATH", str(tmp_path / "pipefix-hook-host-1-a"))
    observe.begin()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(BadUsage, match="Nothing is noted"):
        observe.report()
