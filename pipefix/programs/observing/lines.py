"""The line of the program's own code that is running; and tracebacks without our frames."""

from __future__ import annotations

import functools
import glob
import os
import re
import sys
import sysconfig
from contextlib import suppress
from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))
OURS = os.path.dirname(os.path.dirname(_HERE))
_OWN_LOOPS = ("pipefix.api.", "pipefix.caches.pool")
"""Modules of pipefix that go through loaders for themselves, or call what does."""
_TYPED = ("<string>", "<stdin>")
"""Programs that no file holds: ``python -c``, or handed to ``python -``."""
_INSTALLED = tuple(os.sep + name + os.sep for name in ("site-packages", "dist-packages"))
_FOLDERS = {OURS, *(sysconfig.get_path(name) for name in ("purelib", "platlib", "stdlib"))}
_LIBRARIES = tuple(os.path.normpath(place) + os.sep for place in _FOLDERS if place)


@functools.cache
def _is_of_a_library(file: str) -> bool:
    """Whether it lies where packages are installed: those of this Python, of the user, or of a folder that pip was told."""
    path = os.path.abspath(file)
    if path.startswith(_LIBRARIES) or any(part in path for part in _INSTALLED):
        return True
    holding = [place for place in map(os.path.abspath, sys.path) if path.startswith(place + os.sep)]
    return bool(holding) and bool(glob.glob("*.dist-info", root_dir=max(holding, key=len)))


def users_line() -> str:
    """The line of the program's own code that is being run; of a library's where no other is."""
    return (way_to_users_line() or ("",))[-1]


def way_to_users_line() -> tuple[str, ...]:
    """The lines that are being run, from the innermost up to the program's own."""
    frame: Any = sys._getframe(1)
    lines: list[str] = []
    while frame is not None:
        name = frame.f_code.co_filename
        called = _called(name)
        if called and os.path.dirname(name) != _HERE:
            lines.append(f"{called}:{frame.f_lineno}")
            if not _is_of_a_library(name):
                break
        frame = frame.f_back
    return tuple(lines)


def _called(file: str) -> str:
    """A file without its folder, and a notebook's cell as tracebacks call it, ``In[3]``; empty where a library made the code."""
    with suppress(Exception):  # there is no IPython, or it knows of no such cell
        return str(sys.modules["IPython"].get_ipython().compile.format_code_name(file)[1])
    name = os.path.basename(file)
    if cell := re.match(r"<?ipython-input-(\d+)-", name):  # of an IPython before 8
        return f"In[{cell[1]}]"
    return "" if file.startswith("<") and file not in _TYPED else name


def is_within_pipefix() -> bool:
    """Whether it is pipefix that goes through a loader: the program probes, converts or tunes by itself."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith(_OWN_LOOPS):
            return True
        frame = frame.f_back
    return False


def without_this_frame(error: BaseException) -> None:
    """What is raised again then by a bare ``raise`` shows the frames that it would show without the caller."""
    if error.__traceback__ is not None:
        error.__traceback__ = error.__traceback__.tb_next
