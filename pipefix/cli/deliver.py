"""Runs a verb with progress on stderr; then writes the files that were asked for, and prints its result as text or JSON."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from pipefix.cli import console
from pipefix.cli.console import color, is_terminal, note
from pipefix.vocabulary.errors import PipefixError
from pipefix.vocabulary.printable import printable

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

    from pipefix.report.shown import Shown


class Progress:
    """Call it with a sentence and the part done (0 to 1), however often: of the same phase, four times a second are shown.

    Nothing is drawn between calls: a thread that redraws the bar would take time and the interpreter lock from what is measured.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self.quiet = quiet
        self._bar: Bar | None = None
        self._task: TaskID | None = None
        self._shown, self._kind = "", ""
        self._step = 0.25 if is_terminal(sys.stderr) else 10.0
        self._next, self._begun = 0.0, monotonic()

    def __enter__(self) -> Progress:
        if not self.quiet and is_terminal(sys.stderr):
            self._bar = _bar()
            self._bar.start()
            self._task = self._bar.add_task("starting", total=1.0)
            self._bar.refresh()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def pause(self) -> None:
        """Clear the bar off the terminal; the next call draws it again."""
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, phase: str, fraction: float) -> None:
        kind, now = phase.partition(":")[0], monotonic()
        if kind == self._kind and now < self._next:
            return
        self._kind, self._next = kind, now + self._step
        phase, done = printable(phase), min(max(fraction, 0.0), 1.0)
        if self._bar is not None and self._task is not None:
            self._bar.start()  # where it was paused
            self._bar.update(self._task, description=phase, completed=done, refresh=True)
        elif not self.quiet and phase != self._shown:
            note(f"{done:4.0%}  {phase}{self._left(done)}")
        self._shown = phase

    def _left(self, done: float) -> str:
        """What the pace so far says, once there is a pace."""
        spent = monotonic() - self._begun
        if done < 0.05 or done >= 1 or spent < 1:
            return ""
        return f" (about {spent * (1 - done) / done:.0f} s left)"


def _bar() -> Bar:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.percentage:>3.0f} %"),
        BarColumn(bar_width=24), TimeRemainingColumn(), TextColumn("{task.description}", markup=False),
        console=Console(stderr=True, no_color=not color(sys.stderr)), auto_refresh=False, transient=True,
        # Worker processes inherit the streams: they must stay the real ones.
        redirect_stdout=False, redirect_stderr=False,
    )  # fmt: skip


def delivered(verb: Callable[[Progress], Any], typed: Namespace, *, out: Path | None = None) -> Any:
    """What a verb returns, after it was delivered; so is what was known already when it failed.

    Meanwhile what the user's code prints goes to stderr too. Loading PyTorch, which takes seconds, is told.
    """
    here = os.getcwd()
    how: dict[str, Any] = {name: value for name, value in vars(typed).items() if name in ("json", "full", "html")}
    try:
        with console.stdout_reserved(), Progress(quiet=typed.quiet) as progress:
            progress("loading PyTorch", 0.0)
            try:
                result = verb(progress)
            finally:
                os.chdir(here)  # the target's code may have gone elsewhere, and files are named from here
    except PipefixError as error:
        if error.known is not None:
            deliver(error.known, out=out, **how)  # type: ignore[arg-type]
        raise
    deliver(result, out=out, **how)
    return result


def deliver(result: Shown, *, json: bool, full: bool = False, out: Path | None = None, html: Path | None = None) -> None:
    """Write a result to the files that are named, and print it."""
    try:
        write(result, out=out, html=html)
    finally:
        # A disk that filled up meanwhile costs the file, not the figures.
        if json:
            console.as_json(result.figures())
        else:
            for document in result.printed(full=full):
                console.show(document)


def write(result: Shown, *, out: Path | None = None, html: Path | None = None) -> None:
    """To ``out`` as JSON, to ``html`` as a page."""
    if out is not None:
        result.save(out)
        note(f"{result.KIND}: {out}")
    if html is not None:
        result.html(html)
        note(f"report: {html}")
