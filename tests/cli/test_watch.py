"""`pipefix watch`: what a person sees of a running job, and the exit codes a script sees."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from pipefix.cli.main import main
from pipefix.watching.drift import Drift
from pipefix.watching.window import Notice, Window, encode
from tests.watching.streams import Job, Plant


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """One that drifted."""
    drift = Drift()
    path = tmp_path / "watch.jsonl"
    windows: list[Window] = []
    for window in Job(1, windows=60, plant=Plant(30, {"decode": 1.5}), quiet=True):
        told = drift.feed(window)
        windows.append(msgspec.structs.replace(window, notices=told, drifting=drift.drifting, ended=window.number == 60))
    path.write_bytes(b"".join(map(encode, windows)))
    return path


@pytest.fixture
def calm(tmp_path: Path) -> Path:
    path = tmp_path / "calm.jsonl"
    windows = list(Job(1, windows=40, quiet=True))
    path.write_bytes(b"".join(map(encode, [*windows[:-1], msgspec.structs.replace(windows[-1], ended=True)])))
    return path


def test_the_state_and_what_drifts(job: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["watch", str(job)]) == 0
    told = capsys.readouterr()
    lines = told.out.splitlines()
    assert lines[0].startswith("DRIFT  Decoding takes 5")
    assert "ms a sample instead of 3." in lines[0]
    assert "  delivered  1,280 samples/s, 600 batches, epoch 1" in lines
    assert any(line.startswith("  decode ") and line.endswith("<- drifting") for line in lines)
    assert told.err.startswith("1 alarm; the first: Decoding takes ")


def test_the_gate_closes_on_drift(job: Path, calm: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["watch", str(job), "--fail-on-drift"]) == 1
    assert "pipefix watch --fail-on-drift: Decoding takes" in capsys.readouterr().err
    assert main(["watch", str(calm), "--fail-on-drift"]) == 0
    assert capsys.readouterr().err == "nothing has drifted.\n"


def test_what_drifts_since_an_earlier_window_closes_the_gate(job: Path, capsys: pytest.CaptureFixture[str]):
    """An endpoint has the latest window alone, and the alarm came with another: "nothing has drifted", said the gate."""
    job.write_bytes(job.read_bytes().splitlines(keepends=True)[-1])
    assert main(["watch", str(job), "--once", "--fail-on-drift"]) == 1
    told = capsys.readouterr()
    assert "1 alarm; the first: Drifting since before the first window here: decode." in told.err


def test_a_baseline_is_what_a_job_is_held_against(job: Path, calm: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["watch", str(job), "--baseline", str(calm), "--fail-on-drift"]) == 1
    assert "(calm.jsonl)" in capsys.readouterr().out


def test_json_is_a_line_a_window(job: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["watch", str(job), "--json"]) == 0
    windows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [window["number"] for window in windows] == list(range(1, 61))
    assert sum(len(window["notices"]) for window in windows) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["http://127.0.0.1:{closed}/metrics", "--once"], 4, "does not answer"),
        (["run.json"], 4, "is not what pipefix.watch writes"),
        (["calm.jsonl", "--baseline", "none.json"], 4, "The baseline none.json could not be read"),
    ],
)
def test_what_is_wrong_is_said(
    arguments: list[str], code: int, says: str, calm: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(calm.parent)
    (calm.parent / "run.json").write_text('{\n "format": "pipefix.run/1"\n}\n')
    with socket.create_server(("127.0.0.1", 0)) as server:
        closed = server.getsockname()[1]
    assert main(["watch", *(word.format(closed=closed) for word in arguments)]) == code
    told = capsys.readouterr()
    assert says in told.err
    assert told.out == ""


def test_it_follows_until_it_is_interrupted(calm: Path):
    running = calm.parent / "running.jsonl"
    running.write_bytes(calm.read_bytes().splitlines(keepends=True)[0])
    process = subprocess.Popen(
        [sys.executable, "-m", "pipefix", "watch", str(running), "--every", "50ms"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    assert process.stdout is not None
    assert "window 1" in process.stdout.readline()
    with running.open("ab") as file:
        file.write(calm.read_bytes().splitlines(keepends=True)[1])
    while "decode" not in (line := process.stdout.readline()) or "samples/s" not in line:
        assert line, "it ended by itself"
    process.send_signal(signal.SIGINT)
    _, notes = process.communicate()
    assert process.returncode == 130
    assert "Interrupted: nothing has drifted." in notes
    assert "Traceback" not in notes


HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\r\u202ename"
"""Sets the terminal's title, clears it, colours it (a C1 control, too), goes back to the line's beginning, turns its direction."""


def hostile() -> Window:
    (first,) = Job(1, windows=1)
    notice = Notice(kind="costlier", stage="decode", ratio=1.3, sentence=f"Decoding {HOSTILE} takes longer.", cause=HOSTILE)
    return msgspec.structs.replace(
        first, labels={"rank": HOSTILE}, stages={HOSTILE: next(iter(first.stages.values()))}, declined=HOSTILE, died=[HOSTILE],
        drifting=[HOSTILE], notices=[notice], ended=True,
    )  # fmt: skip


@pytest.mark.parametrize("as_json", [False, True])
def test_strangers_text_does_not_command_the_terminal(as_json: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "watch.jsonl"
    path.write_bytes(encode(hostile()))
    assert main(["watch", str(path), *(["--json"] if as_json else [])]) == 0
    told = capsys.readouterr()
    assert (told.out + told.err).replace("\n", "").isprintable()
    if as_json:
        assert json.loads(told.out)["labels"] == {"rank": HOSTILE}


def written(path: Path, *jobs: list[Window]) -> Path:
    path.write_bytes(b"".join(encode(window) for job in jobs for window in job))
    return path


def test_what_drifted_in_an_earlier_job_is_not_this_ones(job: Path, calm: Path, capsys: pytest.CaptureFixture[str]):
    """A job that is started again appends to the same file."""
    job.write_bytes(job.read_bytes() + calm.read_bytes())
    assert main(["watch", str(job), "--fail-on-drift"]) == 0
    told = capsys.readouterr()
    assert told.out.startswith("note   Windows of earlier jobs before this one's: 60; what drifted in them is not told.\n")
    assert "DRIFT" not in told.out
    assert told.err.endswith("nothing has drifted.\n")


def test_the_state_of_a_job_that_has_ended_or_is_silent_is_told_as_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    (window,) = Job(1, windows=1)
    path = tmp_path / "watch.jsonl"
    for ended, passed, says in (
        (False, 10, "nothing has drifted."),
        (False, 7200, "This window is 2.0 h old: the job was killed, hangs, or writes elsewhere now."),
        (True, 7200, "nothing has drifted."),
    ):
        written(path, [msgspec.structs.replace(window, ended=ended)])
        monkeypatch.setattr("time.time", lambda passed=passed: window.time + passed)
        assert main(["watch", str(path), "--once"]) == 0
        told = capsys.readouterr()
        assert told.err.startswith(says)
        assert ("window 1, 30.0 s, the last: the job closed its watch" in told.out) is ended


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_it_ends_when_its_reader_has_gone(flags: list[str], tmp_path: Path):
    """``pipefix watch w.jsonl | head -1`` ends with the first window after head has."""
    windows = list(Job(1, windows=2))
    path = written(tmp_path / "watch.jsonl", windows[:1])
    process = subprocess.Popen(
        [sys.executable, "-m", "pipefix", "watch", str(path), "--every", "50ms", *flags],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    with path.open("ab") as file:
        file.write(encode(windows[1]))
    assert process.wait() == 0


def test_an_interrupt_before_the_first_window_says_so(tmp_path: Path):
    process = subprocess.Popen(
        [sys.executable, "-m", "pipefix", "watch", str(tmp_path / "watch.jsonl")], stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    assert "waiting up to 300 s for a job to write it" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    _, notes = process.communicate()
    assert process.returncode == 130
    assert "Interrupted: no window had come." in notes
