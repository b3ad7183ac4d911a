"""Files in directories that others may write to: nothing waits, nothing is half written, nothing of theirs is touched."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pipefix.vocabulary.errors import BadUsage
from pipefix.vocabulary.files import DRAFT, draft_beside, open_regular, read_regular, write_whole
from pipefix.vocabulary.folder_lock import FolderLock, is_lock


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"0123456789")
    os.mkfifo(tmp_path / "pipe")
    assert read_regular(tmp_path / "file") == b"0123456789" and read_regular(tmp_path / "file", 4) == b"0123"
    for name in ("pipe", "/dev/zero", "."):
        with pytest.raises(OSError, match="not a regular file"):
            open_regular(tmp_path / name)


def test_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "other").write_bytes(b"theirs")
    (tmp_path / "file").symlink_to(tmp_path / "other")
    write_whole(tmp_path / "file", b"new")
    assert (tmp_path / "other").read_bytes() == b"theirs" and (tmp_path / "file").read_bytes() == b"new"

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_whole(tmp_path / "file", b"newer")
    assert (tmp_path / "file").read_bytes() == b"new" and sorted(os.listdir(tmp_path)) == ["file", "other"]
    assert DRAFT.match(draft_beside(tmp_path / "file").name)


@pytest.mark.parametrize("content", ["mine", "123", "pipefix 12 on a host\nand more"])
def test_a_lock_file_of_somebody_else_is_left_alone(tmp_path: Path, content: str) -> None:
    (tmp_path / ".lock").write_text(content)
    with pytest.raises(BadUsage, match="is not a lock of pipefix"), FolderLock(tmp_path, "test"):
        pass
    assert (tmp_path / ".lock").read_text() == content and not is_lock(tmp_path / ".lock")


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_a_lock_that_is_no_file_is_refused(tmp_path: Path, kind: str) -> None:
    theirs = tmp_path / "theirs"
    theirs.write_text("")
    path = tmp_path / ".lock"
    {"link": lambda: path.symlink_to(theirs), "pipe": lambda: os.mkfifo(path), "folder": path.mkdir}[kind]()
    with pytest.raises(BadUsage, match="is not a lock of pipefix"), FolderLock(tmp_path, "test"):
        pass
    assert theirs.read_text() == "" and os.path.lexists(path)


def test_a_lock_that_was_left_is_taken_and_an_empty_one_stays(tmp_path: Path) -> None:
    (tmp_path / ".lock").write_text("99999 on some-host")
    with FolderLock(tmp_path, "test"):
        assert (tmp_path / ".lock").read_text().startswith(f"pipefix {os.getpid()} on ")
    assert not (tmp_path / ".lock").exists()
    (tmp_path / ".lock").touch()
    with FolderLock(tmp_path, "test"):
        pass
    assert (tmp_path / ".lock").read_text() == ""
