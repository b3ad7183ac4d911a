from __future__ import annotations

import errno
import fcntl
import json
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipefix.fixes import fix_log as logs
from pipefix.fixes.fix_log import Log, read_entries
from pipefix.vocabulary.errors import UnreadableFile


def told(folder):
    """What its lines tell of, those that can be read."""
    return [entry.event for entry in read_entries((folder / logs.LOG).read_bytes(), origin="log")]


def test_lines_are_appended_and_read_again(tmp_path):
    with Log(tmp_path) as log:
        log.write("started", target="data.py:loader")
        log.write("begun", step=1, id="cache-source", makes="pipefix-caches/source")
    with Log(tmp_path) as log:
        log.write("kept", step=1, id="cache-source")
    assert told(tmp_path) == ["started", "begun", "kept"]
    with Log(tmp_path) as log:
        assert (log.name_of(1), log.name_of(2)) == ("cache-source", "")
    lines = (tmp_path / logs.LOG).read_text().splitlines()
    assert json.loads(lines[0])["target"] == "data.py:loader"
    assert all(json.loads(line)["at"].startswith("20") for line in lines)


@given(st.binary(max_size=60).filter(lambda data: b"\n" not in data))
def test_a_line_that_was_cut_short_loses_only_itself(tmp_path_factory, junk):
    folder = tmp_path_factory.mktemp("log")
    with Log(folder) as log:
        log.write("begun", step=1, id="one")
    with open(log.path, "ab") as file:
        file.write(b'{"event": "kept", "step": 1, "id' + junk)
    with Log(folder) as log:
        log.write("dropped", step=1, id="one", why="no gain")
    assert told(folder) == ["begun", "dropped"]


def test_a_file_of_something_else_is_refused(tmp_path):
    (tmp_path / logs.LOG).write_text("this is\nno log\n")
    with pytest.raises(UnreadableFile, match="none of its lines can be read"):
        Log(tmp_path).__enter__()


def test_names_that_are_no_utf8_are_kept_as_escapes(tmp_path):
    with Log(tmp_path) as log:
        log.write("started", target="data\udcff.py:loader")
    assert "\\udcff" in log.path.read_text()
    assert told(tmp_path) == ["started"]


def test_one_process_at_a_time(tmp_path):
    code = f"from pathlib import Path; from pipefix.fixes.fix_log import Log; Log(Path({str(tmp_path)!r})).__enter__()"
    with Log(tmp_path) as log:
        log.write("started", target="x")
        other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert "Another pipefix fix is at work" in other.stderr
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_one_to_fix_on(tmp_path, monkeypatch, number):
    """Lustre without flock, some NFS: "No locks available", and the advice was a directory that one may write to."""

    def lockf(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "lockf", lockf)
    with Log(tmp_path) as log:
        log.write("started", target="data.py:loader")
    assert told(tmp_path) == ["started"]


def test_a_folder_that_cannot_be_written_to_is_told(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UnreadableFile, match="cannot be made"):
        Log(tmp_path / "file" / "absent").__enter__()


def test_a_full_disk_is_told_and_ends_nothing(tmp_path, monkeypatch):
    with Log(tmp_path) as log:
        log.write("begun", step=1, id="one")

        def full(_):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(os, "fsync", full)
        log.write("kept", step=1, id="one")
        log.write("ended")
        assert len(log.unwritten) == 1 and "No space left on device" in log.unwritten[0]


def test_nothing_written_leaves_no_file(tmp_path):
    with Log(tmp_path):
        pass
    assert not list(tmp_path.iterdir())
