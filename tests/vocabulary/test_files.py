"""Files in directories that others may write to: nothing waits, nothing is half written, nothing of theirs is touched."""

from __future__ import annotations

import fcntl
import os
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from pipefix.vocabulary.errors import BadUsage
from pipefix.vocabulary.files import DRAFT, draft_beside, open_regular, read_regular, remove_drafts, write_whole
from pipefix.vocabulary.folder_lock import FolderLock, is_lock


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"0123456789")
    os.mkfifo(tmp_path / "pipe")
    assert read_regular(tmp_path / "file") == b"0123456789" and read_regular(tmp_path / "file", 4) == b"0123"
    for name in ("pipe", "/dev/zero", "."):
        with pytest.raises(OSError, match="not a regular file"):
            open_regular(tmp_path / name)


@pytest.fixture(params=["nameless", "named", "not linked"])
def files_may_be_nameless(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Not every file system knows files without a name, and not every machine lets them be given one."""
    if request.param == "named":
        monkeypatch.delattr(os, "O_TMPFILE")
    elif request.param == "not linked":
        monkeypatch.setattr(os, "link", lambda *_, **__: os.stat("/nothing"))
    return str(request.param) == "nameless"


def test_what_is_not_whole_yet_has_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files_may_be_nameless: bool) -> None:
    """A process that is killed meanwhile leaves nothing, where the file system allows that."""
    seen: list[list[str]] = []
    monkeypatch.setattr(os, "fsync", lambda _: seen.append(os.listdir(tmp_path)))
    write_whole(tmp_path / "file", b"whole")
    assert (tmp_path / "file").read_bytes() == b"whole" and os.listdir(tmp_path) == ["file"]
    assert len(seen[-2]) == (0 if files_may_be_nameless else 1)  # the last one is of the folder


@pytest.mark.usefixtures("files_may_be_nameless")
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


def test_drafts_of_killed_processes_go_and_no_others(tmp_path: Path) -> None:
    mine, killed, empty, linked, living = (tmp_path / f".pipefix-{number:012x}" for number in range(5))
    mine.write_text("theirs")
    killed.write_text("# Written by pipefix.")
    empty.touch()
    linked.symlink_to(killed)
    (tmp_path / ".pipefix-mine").write_text("pipefix")
    with open(living, "xb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        remove_drafts(tmp_path)
        assert sorted(os.listdir(tmp_path)) == sorted([mine.name, linked.name, living.name, ".pipefix-mine"])


@pytest.mark.usefixtures("files_may_be_nameless")
def test_a_draft_is_locked_while_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever removes what killed processes left meanwhile takes nothing from this one."""
    monkeypatch.setattr(os, "fsync", lambda _: remove_drafts(tmp_path))
    write_whole(tmp_path / "file", b"pipefix")
    assert (tmp_path / "file").read_bytes() == b"pipefix"


def in_another_process(work: Callable[[], object]) -> bool:
    """Whether it is refused there."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BadUsage:
            os._exit(7)
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7


@pytest.mark.usefixtures("files_may_be_nameless")
def test_what_found_no_room_leaves_nothing(tmp_path: Path) -> None:
    """A file that is closed writes once more what it holds, which fails again."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            write_whole(tmp_path / "file", b"0" * 100)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not os.listdir(tmp_path)


def test_one_thread_of_one_process_holds_a_lock(tmp_path: Path) -> None:
    def take() -> None:
        with FolderLock(tmp_path, "test"):
            pass

    with FolderLock(tmp_path, "test"):
        with pytest.raises(BadUsage, match=f"is being written by another test \\(process {os.getpid()}"):
            take()
        assert is_lock(tmp_path / ".lock")
        assert in_another_process(take), "neither attempt nor question has let go of it"
    take()
    assert not in_another_process(take) and os.listdir(tmp_path) == []


@pytest.mark.parametrize("content", ["123", "pipefix 12 on a host\nand more"])
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
