from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipefix.cli.destination import check
from pipefix.report import runfile
from pipefix.report.document import Document
from pipefix.report.page import page
from pipefix.report.trace import chrome_trace
from pipefix.vocabulary.errors import BadUsage


def test_a_new_file_in_a_directory_of_ours_is_fine_and_nothing_is_left_behind(tmp_path: Path) -> None:
    check(out=tmp_path / "run.json", html=None, trace=tmp_path / "trace.json")
    assert list(tmp_path.iterdir()) == []
    check(out=Path("/dev/null"), html=Path("/dev/stdout"))  # devices and pipes are written straight


def test_a_file_in_place_of_a_directory_and_a_directory_in_place_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadUsage, match="is a file, not a directory"):
        check(out=tmp_path / "file" / "run.json")
    with pytest.raises(BadUsage, match="is a directory, not a file") as caught:
        check(plan=tmp_path)
    assert caught.value.advice.endswith(f"--write {tmp_path}/pipefix.plan.toml")


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("out", runfile.encode(runfile.Run(target="x"))),
        ("out", ""),
        ("html", page(Document())),
        ("trace", json.dumps(chrome_trace([], 1, "x"))),
        ("plan", '# Written by pipefix.\nformat = "pipefix.plan/1"\n'),
    ],
)
def test_an_older_file_of_ours_is_replaced(kind: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "older").write_text(text)
    check(**{kind: tmp_path / "older"})


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("out", b"import pipefix\n"),
        ("out", b"\0\1\2"),
        ("out", b'{"note": "of \\"pipefix.run/1\\"", "cited": "pipefix.run/1"}'),
        ("html", b"<!doctype html><html><body>My notes on pipefix</body></html>"),
        ("trace", b'{"schemaVersion": 1, "deviceProperties": [], "traceEvents": [{"ph": "X", "name": "aten::mm"}]}'),
        ("plan", b"[tool.other]\nx = 1\n"),
        ("plan", b"\xff\xfe"),
    ],
)
def test_anything_else_is_kept(tmp_path: Path, kind: str, text: bytes) -> None:
    """Any page with the word pipefix, and any trace of torch's profiler, was replaced."""
    path = tmp_path / "train.py"
    path.write_bytes(text)
    flag = "--write" if kind == "plan" else f"--{kind}"
    with pytest.raises(BadUsage) as caught:
        check(**{kind: path})
    assert str(caught.value) == f"{flag} {path}: the file exists and is not one that {flag} writes; it will not be replaced."
    assert caught.value.advice == f"Choose another name, or remove it first: rm {path}"
