from __future__ import annotations

import io
import sys
import threading

import pytest

from pipefix.cli import console
from pipefix.cli.deliver import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def a_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Stderr from here on. Not a fixture: pytest puts its own stream in place between fixtures and test."""
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    return stream


def test_a_bar_that_was_paused_is_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    a_terminal(monkeypatch)
    with Progress() as progress:
        assert progress._bar is not None and progress._bar.live.is_started
        progress.pause()
        assert not progress._bar.live.is_started
        progress("probing", 0.5)
        assert progress._bar.live.is_started


@pytest.mark.parametrize(("when", "coloured"), [("auto", True), ("never", False)])
def test_a_bar_has_the_colours_that_text_has(when: str, coloured: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    terminal = a_terminal(monkeypatch)
    monkeypatch.setattr(console, "_asked", when)
    with Progress() as progress:
        progress("probing", 0.5)
    assert ("\x1b[38;" in terminal.getvalue() or "\x1b[3" in terminal.getvalue()) is coloured


def test_a_line_for_each_phase_where_it_is_no_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipefix.cli.deliver.monotonic", lambda: 100.0)  # after a second it would tell of the time left
    with Progress() as progress:
        progress("loading the target", -1.0)
        progress("recording samples", 0.1)
        progress("recording samples", 0.2)
        progress("done", 1.7)
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err == "  0%  loading the target\n 10%  recording samples\n100%  done\n"


def test_the_time_left_follows_from_the_pace(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("pipefix.cli.deliver.monotonic", lambda: now[0])
    progress = Progress()
    now[0] += 15
    progress("arms", 0.25)
    assert capsys.readouterr().err == " 25%  arms (about 45 s left)\n"


def test_a_bar_where_it_is_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """No thread draws it, beside what is measured; worker processes inherit the real streams."""
    terminal, out = a_terminal(monkeypatch), sys.stdout
    before = set(threading.enumerate())  # one of an earlier test may end meanwhile
    with Progress() as progress:
        progress("recording [bold] samples", 0.25)
        assert set(threading.enumerate()) <= before
        assert sys.stderr is terminal and sys.stdout is out
    assert "recording [bold] samples" in terminal.getvalue()
    assert "25 %" in terminal.getvalue()
