"""The user's code raised: what it was doing, what it said, and their own frames without ours."""

from __future__ import annotations

import dis
import os
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pipefix.vocabulary.errors import PipefixError, TargetError
from pipefix.vocabulary.terminal import shortened

_HERE = os.path.join(Path(__file__).resolve().parent.parent, "")
_BETWEEN = ("torch/utils/data/_utils", "torch/utils/data/dataloader.py", "<frozen importlib", "<frozen runpy")
"""Frames between ours and the user's that say nothing about either."""
ALONE = "Run the file alone (python FILE.py) to see the error in full, mend it, then probe again."
LONGEST_MESSAGE = 300

Advice = Callable[[BaseException], "str | None"]


@contextmanager
def as_target_error(doing: str, *, advice: Advice | None = None) -> Iterator[None]:
    """Whatever the user's code raises inside becomes a `TargetError` that says so. Ctrl-C stays Ctrl-C."""
    try:
        yield
    except (KeyboardInterrupt, PipefixError):
        raise
    except BaseException as error:  # a script that calls sys.exit() as well
        said = advice(error) if advice is not None else None
        raise TargetError(f"{doing} raised {summary(error)}", advice=said or ALONE, user_traceback=frames(error)) from error


@contextmanager
def exits_as_target_error(doing: str) -> Iterator[None]:
    """A ``sys.exit()`` of the user's code, wherever it is met, does not end the program without a word."""
    try:
        yield
    except SystemExit as error:
        raise TargetError(f"{doing} raised {summary(error)}", advice=ALONE, user_traceback=frames(error)) from error


def is_raised_by_code(interrupt: KeyboardInterrupt) -> bool:
    """Whether the user's code has a ``raise`` where it came from: Ctrl-C falls between other instructions."""
    trace = interrupt.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None or is_ours(trace.tb_frame.f_code.co_filename):
        return False  # the handler of a signal, which raises it as well, is ours
    return trace.tb_frame.f_code.co_code[trace.tb_lasti] == dis.opmap["RAISE_VARARGS"]


def summary(error: BaseException) -> str:
    """``ValueError: the first line of its message``."""
    try:
        text = str(error)
    except Exception as failed:  # noqa: BLE001 - the user's own __str__
        text = f"(its message could not be read: {type(failed).__name__})"
    lines = text.strip().splitlines()
    line = lines[0][:LONGEST_MESSAGE] if lines else ""
    return f"{type(error).__name__}: {line}" if line else type(error).__name__


def frames(error: BaseException) -> str:
    """The traceback as Python prints it, with the user's frames only."""
    try:
        told = traceback.TracebackException.from_exception(error)
        _trim(told)
        return shortened("".join(told.format()))
    except Exception:  # noqa: BLE001 - the user's own __str__ or __repr__
        return summary(error)


def _trim(told: traceback.TracebackException) -> None:
    told.stack = traceback.StackSummary.from_list([frame for frame in told.stack if not is_ours(frame.filename)])
    for inner in (told.__cause__, told.__context__):
        if inner is not None:
            _trim(inner)


def is_ours(filename: str) -> bool:
    """Whether a frame belongs to us, or to what lies between us and the user's code."""
    return filename.startswith(_HERE) or any(part in filename.replace("\\", "/") for part in _BETWEEN)
