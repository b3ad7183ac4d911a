from __future__ import annotations

import os
from pathlib import Path

import pytest

from pipefix.cli.destination import check
from pipefix.report import runfile
from pipefix.vocabulary.errors import BadUsage, UnreadableFile


def test_a_new_file_in_a_directory_of_ours_is_fine_and_nothing_is_left_behind(tmp_path: Path) -> None:
    check(out=tmp_path / "run.json", html=None, trace=tmp_path / "trace.json")
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_does_not_exist(tmp_path: Path) -> None:
    folder = tmp_path / "absent"
    with pytest.raises(BadUsage) as caught:
        check(out=folder / "run.json")
    assert str(caught.value) == f"--out {folder}/run.json: the directory {folder} does not exist."
    assert caught.value.advice == f"Make it first: mkdir -p {folder}"


def test_a_directory_in_place_of_a_file(tmp_path: Path) -> None:
    with pytest.raises(BadUsage, match="is a directory, not a file") as caught:
        check(html=tmp_path)
    assert caught.value.advice == f"Name a file in it: --html {tmp_path}/report.html"


def test_a_file_in_place_of_a_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadUsage, match="is a file, not a directory"):
        check(out=tmp_path / "file" / "run.json")


def test_a_directory_that_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a read-only file system does; permissions alone do not stop root."""

    def refuse(**_: object) -> None:
        raise OSError(30, os.strerror(30))

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    with pytest.raises(UnreadableFile) as caught:
        check(out=tmp_path / "run.json")
    assert str(caught.value) == f"--out {tmp_path}/run.json: nothing can be written in {tmp_path}: Read-only file system."


def test_two_flags_with_one_file(tmp_path: Path) -> None:
    with pytest.raises(BadUsage, match="--out and --html name the same file"):
        check(out=tmp_path / "x", html=tmp_path / "." / "x")


class TestFilesThatExist:
    def test_an_older_run_file_is_replaced(self, tmp_path: Path) -> None:
        runfile.write(runfile.Run(target="x"), tmp_path / "run.json")
        check(out=tmp_path / "run.json")

    def test_an_older_report_is_replaced(self, tmp_path: Path) -> None:
        (tmp_path / "run.html").write_text('<!doctype html><html><meta name="generator" content="pipefix">')
        check(html=tmp_path / "run.html")

    def test_an_older_trace_is_replaced(self, tmp_path: Path) -> None:
        (tmp_path / "trace.json").write_text('{"otherData":{"writer":"pipefix","target":"x"},"traceEvents":[]}')
        check(trace=tmp_path / "trace.json")

    def test_an_empty_file_is_replaced(self, tmp_path: Path) -> None:
        (tmp_path / "run.json").touch()
        check(out=tmp_path / "run.json")

    @pytest.mark.parametrize("text", ["import pipefix\n", '{"name": "somebody"}', "\0\1\2"])
    def test_anything_else_is_kept(self, tmp_path: Path, text: str) -> None:
        path = tmp_path / "train.py"
        path.write_text(text)
        with pytest.raises(BadUsage) as caught:
            check(out=path)
        assert str(caught.value) == f"--out {path}: the file exists and is not one that --out writes; it will not be replaced."
        assert caught.value.advice == f"Choose another name, or remove it first: rm {path}"
        assert path.read_text() == text

    def test_devices_and_pipes_are_written_straight(self) -> None:
        check(out=Path("/dev/null"), html=Path("/dev/stdout"))
