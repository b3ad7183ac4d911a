"""Formats errors of the user's code: the first line of the message, and their own frames without ours."""

from __future__ import annotations

import dis
import os
import traceback
from contextlib import suppress
from pathlib import Path

from pipefix.vocabulary.printable import shortened

_HERE = os.path.join(Path(__file__).resolve().parent.parent, "")
_BETWEEN = ("torch/utils/data/_utils", "torch/utils/data/dataloader.py", "<frozen importlib", "<frozen runpy")
"""Frames between ours and the user's that say nothing about either."""
LONGEST_MESSAGE = 300


def summary(error: BaseException) -> str:
    """``ValueError: the first line of its message``."""
    try:
        text = str(error)
    except Exception as failed:  # noqa: BLE001 - the user's own __str__
        text = f"(its message could not be read: {type(failed).__name__})"
    lines = text.strip().splitlines()
    line = lines[0][:LONGEST_MESSAGE].encode("utf-8", "backslashreplace").decode() if lines else ""
    return f"{type(error).__name__}: {line}" if line else type(error).__name__


def frames(error: BaseException) -> str:
    """The traceback as Python prints it, with the user's frames only."""
    with suppress(Exception):  # the user's own __str__ or __repr__
        trace = traceback.TracebackException.from_exception(error)
        _trim(trace)
        return shortened("".join(trace.format()))
    return summary(error)


def _trim(trace: traceback.TracebackException) -> None:
    trace.stack = traceback.StackSummary.from_list([frame for frame in trace.stack if not is_ours(frame.filename)])
    for inner in (trace.__cause__, trace.__context__):
        if inner is not None:
            _trim(inner)


def is_ours(filename: str) -> bool:
    """Whether a frame belongs to us, or to what lies between us and the user's code."""
    return filename.startswith(_HERE) or any(part in filename.replace("\\", "/") for part in _BETWEEN)


def is_raised_here(error: BaseException) -> bool:
    """Whether our own code raised it, and no code that ours called."""
    return traceback.extract_tb(error.__traceback__)[-1].filename.startswith(_HERE)


def is_raised_by_code(interrupt: KeyboardInterrupt) -> bool:
    """Whether the user's code has a ``raise`` where it came from: Ctrl-C falls between other instructions."""
    trace = interrupt.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None or is_ours(trace.tb_frame.f_code.co_filename):
        return False  # the handler of a signal, which raises it as well, is ours
    return trace.tb_frame.f_code.co_code[trace.tb_lasti] == dis.opmap["RAISE_VARARGS"]
