"""A small process beside the command that reports if that is killed, crashes or leaves by ``os._exit``.

It is forked before anything heavy is loaded, and waits at a pipe that the kernel closes with the process it watches. That one keeps
its process id, its signals and its exit code.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from mmap import mmap
from typing import NoReturn

from pipefix.vocabulary import last_act
from pipefix.vocabulary.printable import printable

RUN_TARGETS = frozenset({"probe", "fix", "tune", "swap", "convert", "doctor"})
"""Commands that run the user's code in their own process."""


@contextmanager
def watched(command: str) -> Iterator[None]:
    """Whatever ends this process inside is told on standard error."""
    if command not in RUN_TARGETS:
        yield
        return
    _hold_closed_streams()
    memory = last_act.keep()
    read, write = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(write)
        _watch(command, read, memory)
    os.close(read)
    if sys.stderr is not None and not faulthandler.is_enabled():
        faulthandler.enable(all_threads=False)  # where a native library crashes, Python's frames are shown
    try:
        yield
    finally:
        with suppress(OSError):  # it was killed, or code of the target has the kernel bury what ends (SIGCHLD ignored)
            os.write(write, b".")
            os.close(write)
            os.waitpid(process, 0)


def _hold_closed_streams() -> None:
    """What is opened next would get the number of a standard stream that is closed, and be taken for it."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free; a program that is started does not inherit it


def _watch(command: str, read: int, memory: mmap) -> NoReturn:
    """In the watching process: wait for the end."""
    os.setsid()  # the terminal's signals are for the other
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1):
        os.dup2(nowhere, descriptor)
    if not os.read(read, 1):
        act = last_act.read(memory)
        while_ = f" while it was {printable(act)}" if act else ""
        told = (
            f"pipefix {command}: the process ended without a report{while_}. The kernel killed it (memory is short), a native "
            f"library crashed (its last words are above), or the target's code called os._exit().\n"
            f"  Run the code above alone, or use --workers 2: a worker that dies is named, with the way it died.\n"
        )
        os.write(2, told.encode("utf-8", "replace"))
    os._exit(0)
