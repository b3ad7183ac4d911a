"""A process that ends without a word is spoken for; the others are not disturbed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

PIPELINE = """
import os, signal, sys, torch
from torch.utils.data import DataLoader, Dataset

class Numbers(Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, index):
        if index == 0:
            {act}
        return torch.zeros(1)

loader = DataLoader(Numbers(), batch_size=4)
"""


def run(pipefix: str, folder: Path, act: str, *before: str) -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(PIPELINE.format(act=act))
    command = [*pipefix.split(), *before, "probe", "train.py", "--budget", "2", "-q"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("act", "code"),
    [
        ("os._exit(0)", 0),
        ("os.kill(os.getpid(), signal.SIGSEGV)", 128 + signal.SIGSEGV),
        ("os.kill(os.getpid(), signal.SIGKILL)", 128 + signal.SIGKILL),
    ],
)
def test_a_sample_that_ends_the_process_is_told(tmp_path: Path, act: str, code: int, preloaded: str) -> None:
    done = run(preloaded, tmp_path, act)
    assert done.returncode == code
    assert "the process ended without a report while it was making a batch of the samples 0, 1, 2, 3" in done.stderr
    if code == 128 + signal.SIGSEGV:
        assert 'train.py", line 10 in __getitem__' in done.stderr


def test_it_is_told_where_an_option_stands_before_the_command(tmp_path: Path, preloaded: str) -> None:
    """The option's value was taken for the command."""
    assert "the process ended without a report" in run(preloaded, tmp_path, "os._exit(0)", "--color", "never").stderr


def test_code_that_has_its_children_buried_by_the_kernel(tmp_path: Path, preloaded: str) -> None:
    ignores = "import signal\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
    (tmp_path / "train.py").write_text(ignores + PIPELINE.format(act="pass"))
    done = subprocess.run([*preloaded.split(), "doctor", "train.py"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_what_the_target_prints_while_the_interpreter_ends_is_no_result(tmp_path: Path, preloaded: str) -> None:
    """It came behind the JSON, which nobody could read then."""
    (tmp_path / "train.py").write_text("import atexit\natexit.register(print, 'goodbye')\n" + PIPELINE.format(act="pass"))
    done = subprocess.run([*preloaded.split(), "doctor", "train.py", "--json"], cwd=tmp_path, capture_output=True, text=True)
    assert "audit" in json.loads(done.stdout)
    assert done.stderr == "goodbye\n"


def test_a_command_whose_standard_input_is_closed(tmp_path: Path) -> None:
    done = subprocess.run(
        ["sh", "-c", '"$@" <&-', "sh", sys.executable, "-m", "pipefix", "doctor"], capture_output=True, text=True, cwd=tmp_path
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "Python" in done.stdout


def test_a_sample_that_leaves_is_an_error_of_the_target_s(tmp_path: Path, preloaded: str) -> None:
    done = run(preloaded, tmp_path, "sys.exit(0)")
    assert done.returncode == 3
    assert done.stdout == ""
    assert "dataset[0] raised SystemExit: 0" in done.stderr
    assert "train.py" in done.stderr
    assert "ended without a report" not in done.stderr
