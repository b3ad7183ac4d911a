from __future__ import annotations

from pathlib import Path

import pytest

from pipefix.cli.destination import check
from pipefix.report import runfile
from pipefix.vocabulary.errors import BadUsage


def test_a_new_file_in_a_directory_of_ours_is_fine_and_nothing_is_left_behind(tmp_path: Path) -> None:
    check(out=tmp_path / "run.json", html=None, trace=tmp_path / "trace.json")
    assert list(tmp_path.iterdir()) == []
    check(out=Path("/dev/null"), html=Path("/dev/stdout"))  # devices and pipes are written straight


def test_a_file_in_place_of_a_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadUsage, match="is a file, not a directory"):
        check(out=tmp_path / "file" / "run.json")


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("out", runfile.encode(runfile.Run(target="x"))),
        ("out", ""),
        ("html", '<!doctype html><html><meta name="generator" content="pipefix">'),
        ("trace", '{"otherData":{"writer":"pipefix","target":"x"},"traceEvents":[]}'),
    ],
)
def test_an_older_file_of_ours_is_replaced(kind: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "older").write_text(text)
    check(**{kind: tmp_path / "older"})


@pytest.mark.parametrize("text", ["import pipefix\n", '{"name": "somebody"}', "\0\1\2"])
def test_anything_else_is_kept(tmp_path: Path, text: str) -> None:
    path = tmp_path / "train.py"
    path.write_text(text)
    with pytest.raises(BadUsage) as caught:
        check(out=path)
    assert str(caught.value) == f"--out {path}: the file exists and is not one that --out writes; it will not be replaced."
    assert caught.value.advice == f"Choose another name, or remove it first: rm {path}"
    assert path.read_text() == text
