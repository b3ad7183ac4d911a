from __future__ import annotations

import io
import os
import subprocess
import sys

import pytest

from pipefix.cli import console


def test_color_needs_a_terminal_that_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert console.color()
    monkeypatch.setenv("TERM", "dumb")
    assert not console.color()


def test_width_is_asked_of_the_terminal_and_is_never_absurd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "132")
    assert console.width() == 132
    monkeypatch.setenv("COLUMNS", "3")
    assert console.width() == 40


def test_width_is_that_of_the_terminal_which_the_notes_go_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of `pipefix run train.py | tee log`, the report at the end was laid out for 100 columns."""

    def size(descriptor: int) -> os.terminal_size:
        if descriptor != 72:
            raise OSError("it is no terminal")
        return os.terminal_size((80, 24))

    class Notes(io.StringIO):
        def fileno(self) -> int:
            return 72

    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr("os.get_terminal_size", size)
    assert (console.width(Notes()), console.width()) == (80, 100)


SPEAKER = """
import os, subprocess, sys
from pipefix.cli import console

with console.stdout_reserved():
    print("from Python")
    os.write(1, b"from C\\n")
    subprocess.run(["echo", "from a child"])
console.results(["the result"])
"""


def test_what_others_print_meanwhile_goes_to_stderr() -> None:
    done = subprocess.run([sys.executable, "-c", SPEAKER], capture_output=True, text=True, check=True)
    assert done.stdout == "the result\n"
    assert sorted(done.stderr.splitlines()) == ["from C", "from Python", "from a child"]


def test_without_file_numbers_python_prints_are_moved_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    out, err = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    with console.stdout_reserved():
        print("noise")
    print("result")
    assert (out.getvalue(), err.getvalue()) == ("result\n", "noise\n")


def test_stdout_comes_back_after_an_error() -> None:
    def read_only() -> int:
        with pytest.raises(ValueError, match="inside"), console.stdout_reserved():
            raise ValueError("inside")
        return os.fstat(1).st_ino

    before = os.fstat(1).st_ino
    assert read_only() == before
