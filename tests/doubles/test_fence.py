"""The fence is tried before it is trusted: on folders that it shuts out."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.doubles.fence import fenced


def _through_a_folder(victim: Path) -> None:
    folder = os.open(victim, os.O_RDONLY)
    try:
        os.unlink("thesis.txt", dir_fd=folder)
    finally:
        os.close(folder)


WAYS: dict[str, Callable[[Path], object]] = {
    "a tree": shutil.rmtree,
    "a tree, errors ignored": lambda victim: shutil.rmtree(victim, ignore_errors=True),
    "a file": lambda victim: os.unlink(victim / "thesis.txt"),
    "a folder": lambda victim: os.rmdir(victim / "empty"),
    "a file of an open folder": _through_a_folder,
    "a file through ..": lambda victim: os.unlink(victim.parent / "inside" / ".." / "victim" / "thesis.txt"),
    "a file through a link": lambda victim: os.unlink(victim.parent / "inside" / "link" / "thesis.txt"),
    "a file that is moved": lambda victim: os.rename(victim / "thesis.txt", victim.parent / "inside" / "mine"),
    "a file that is replaced": lambda victim: os.replace(victim.parent / "inside" / "other", victim / "thesis.txt"),
    "a file that is emptied": lambda victim: os.truncate(victim / "thesis.txt", 0),
}


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    folder = tmp_path / "victim"
    (folder / "empty").mkdir(parents=True)
    (folder / "thesis.txt").write_text("mine")
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "other").write_text("other")
    (tmp_path / "inside" / "link").symlink_to(folder)
    return folder


@pytest.mark.parametrize("way", WAYS)
def test_what_is_outside_stays_and_the_test_fails(way: str, victim: Path) -> None:
    with pytest.raises(AssertionError, match="not its own"), fenced(victim.parent / "inside"), contextlib.suppress(OSError):
        WAYS[way](victim)
    assert (victim / "thesis.txt").read_text() == "mine"
    assert (victim / "empty").is_dir()


def test_what_is_inside_goes(victim: Path) -> None:
    with fenced(victim.parent / "inside"):
        os.unlink(victim.parent / "inside" / "link")  # the link, not what it leads to
        os.rename(victim.parent / "inside" / "other", victim.parent / "inside" / "mine")
        os.unlink(victim.parent / "inside" / "mine")
    assert victim.is_dir()
    shutil.rmtree(victim)  # the fence is down
