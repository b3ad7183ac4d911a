"""Turns what the user's code raises into a `TargetError` that says what it was doing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pipefix.vocabulary.errors import PipefixError, TargetError
from pipefix.vocabulary.tracebacks import frames as frames
from pipefix.vocabulary.tracebacks import is_raised_by_code as is_raised_by_code
from pipefix.vocabulary.tracebacks import summary as summary

ALONE = "Run the file alone (python FILE.py) to see the error in full, mend it, then run the same command again."

Advice = Callable[[BaseException], "str | None"]


@contextmanager
def as_target_error(doing: str, *, advice: Advice | None = None, exits: type[TargetError] = TargetError) -> Iterator[None]:
    """What the user's code raises inside becomes a `TargetError` that says so, its sys.exit() ``exits``. Ctrl-C stays Ctrl-C."""
    try:
        yield
    except (KeyboardInterrupt, PipefixError):
        raise
    except BaseException as error:
        kind = exits if isinstance(error, SystemExit) else TargetError
        own_advice = advice(error) if advice is not None else None
        raise kind(f"{doing} raised {summary(error)}", advice=own_advice or ALONE, user_traceback=frames(error)) from error


@contextmanager
def exits_as_target_error(doing: str) -> Iterator[None]:
    """A ``sys.exit()`` of the user's code, wherever it is met, does not end the program without a word."""
    try:
        yield
    except SystemExit as error:
        raise TargetError(f"{doing} raised {summary(error)}", advice=ALONE, user_traceback=frames(error)) from error
