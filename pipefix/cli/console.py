"""Prints results to stdout, and nothing else there; notes go to stderr."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, TextIO

from pipefix.vocabulary.errors import UnreadableFile
from pipefix.vocabulary.printable import printable, printable_json, printable_lines

if TYPE_CHECKING:
    from pipefix.report.document import Document

WIDTH_WITHOUT_TERMINAL = 100
COLORS = ("auto", "always", "never")
_asked = "auto"
"""Which of them the command line said."""


def results(lines: Iterable[str]) -> bool:
    """Print lines to stdout, whoever wrote what is in them; False where the reader went away."""
    return print_lines(map(printable, lines))


def show(document: Document) -> None:
    """Print a document to stdout, in colour where that takes it."""
    print_lines(_lines(document, sys.stdout))


def aside(document: Document) -> None:
    """Print a document to stderr, if anybody listens."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.writelines(f"{line}\n" for line in _lines(document, sys.stderr))
            sys.stderr.flush()


def _lines(document: Document, stream: TextIO | None) -> list[str]:
    from pipefix.report import terminal

    unicode = (getattr(stream, "encoding", None) or "ascii").lower().startswith("utf")
    return terminal.lines(document, width=width(stream), color=color(stream), unicode=unicode)


def as_json(value: object, *, indent: bool = True) -> bool:
    """Print a value as JSON to stdout; False where the reader went away."""
    from pipefix.vocabulary import versioned

    return print_lines([printable_json(versioned.text(value, indent=indent).rstrip("\n"))])


def print_lines(lines: Iterable[str]) -> bool:
    """To stdout, as they are; False where the reader went away (``| head``), which is no error: the rest is dropped."""
    stream: TextIO | None = sys.stdout
    if stream is None:
        return True
    try:
        stream.writelines(f"{line}\n" for line in lines)
        stream.flush()
    except OSError as error:
        # stdout points nowhere, or the interpreter complains when it flushes at exit
        with contextlib.suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())
            os.close(nowhere)
        if isinstance(error, BrokenPipeError):
            return False
        problem = f"The results could not be written to standard output: {error.strerror or error}."
        raise UnreadableFile(problem, advice="Send them to a place with room: > DIR/results.txt") from error
    return True


def note(text: str, *, end: str = "\n") -> None:
    """Lines to stderr, if anybody listens."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            print(printable_lines(text), file=sys.stderr, flush=True, end=end)


def tolerate_any_encoding() -> None:
    """A terminal that cannot show µ shows ? instead of ending the program."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")


def width(stream: TextIO | None = None) -> int:
    """Columns of the terminal, also where only ``stream`` goes to it (``pipefix run train.py | tee log``)."""
    otherwise = WIDTH_WITHOUT_TERMINAL
    with contextlib.suppress(AttributeError, OSError, ValueError):  # there is none
        otherwise = os.get_terminal_size(stream.fileno()).columns or otherwise  # type: ignore[union-attr]
    return max(40, shutil.get_terminal_size((otherwise, 24)).columns)


def is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"
    except ValueError:
        return False


def ask_color(when: str) -> None:
    """What ``--color`` says, for all that is printed from now on."""
    global _asked
    _asked = when


def color(stream: TextIO | None = None) -> bool:
    """``--color`` counts first, then ``NO_COLOR``, then ``FORCE_COLOR``; these two where they are set to anything."""
    if _asked != "auto":
        return _asked == "always"
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or is_terminal(stream or sys.stdout)


@contextlib.contextmanager
def stdout_reserved() -> Iterator[None]:
    """While the user's code runs, here and in worker processes, whatever it prints goes to stderr."""
    try:
        number = sys.stdout.fileno()
        notes = sys.stderr.fileno()
        sys.stdout.flush()
        duplicate = os.dup(number)
    except (AttributeError, OSError, ValueError):
        with contextlib.redirect_stdout(sys.stderr):
            yield
        return
    try:
        os.dup2(notes, number)
        yield
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        os.dup2(duplicate, number)
        os.close(duplicate)
