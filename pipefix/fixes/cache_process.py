"""The process that builds the caches of `fix`: it has run no sample, so its workers inherit nothing that samples opened."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any, NoReturn

from pipefix.caches import convert as conversion
from pipefix.caches import pool
from pipefix.caches.manifest import Recipe
from pipefix.measurement.budget import Progress
from pipefix.subject.subject import Subject
from pipefix.vocabulary.errors import Interrupted, TargetError
from pipefix.vocabulary.garbage import existing_objects_skipped
from pipefix.vocabulary.worker_exit import describe_exit

Say = Progress
LONGEST_END_S = 30


class Builder:
    """Forked when it is entered, which is to be before the probe; where nothing can be forked, this process builds."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._process: Any = None
        self._connection: Any = None

    def __enter__(self) -> Builder:
        if pool.can_fork() and not self._subject.iterable:
            context = multiprocessing.get_context("fork")
            self._connection, child_end = context.Pipe()
            self._process = context.Process(target=_serve, args=(child_end, self._connection, self._subject))
            with existing_objects_skipped():
                self._process.start()
            child_end.close()
        return self

    def __exit__(self, *_: object) -> None:
        """An interruption while it builds ends it as Ctrl-C does: what is made stays, and another run goes on from there."""
        if self._process is not None:
            self._process.terminate()
            self._connection.close()
            self._process.join(LONGEST_END_S)
            self._process.kill()

    def build(self, recipe: Recipe, folder: Path, say: Say) -> None:
        """Convert the dataset; what stands in the way is raised here."""
        if self._process is None:
            try:
                _build(self._subject, recipe, folder, say)
            except Interrupted:  # as an interruption ends whoever waits for another process to build
                raise KeyboardInterrupt from None
            return
        try:
            self._connection.send((recipe, folder))
            while (message := self._connection.recv()) is not None:
                if isinstance(message, BaseException):
                    raise message
                say(*message)
        except (EOFError, ConnectionError) as error:
            self._process.join()
            problem = f"The process that builds caches has ended: {describe_exit(self._process.exitcode)}."
            raise TargetError(problem, advice="Build it by itself, which says more: pipefix convert TARGET --to lmdb") from error


def _build(subject: Subject, recipe: Recipe, folder: Path, say: Say) -> None:
    def show(state: conversion.State) -> None:
        say(f"building {folder.name}: {state.phase}", state.done / state.samples if state.samples else 0.0)

    result = conversion.convert(subject.dataset, recipe, folder, target=subject.target, progress=show)
    if result.changed:
        conversion.convert(subject.dataset, recipe, folder, target=subject.target, update=True, progress=show)


def _serve(connection: Any, parent_end: Any, subject: Subject) -> None:
    parent_end.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent has heard it too, and says what becomes of it
    signal.signal(signal.SIGTERM, _leave)
    with contextlib.suppress(EOFError, ConnectionError, KeyboardInterrupt):  # the parent is gone, or wants no more
        while True:
            recipe, folder = connection.recv()
            try:
                _build(subject, recipe, folder, lambda *progress: connection.send(progress))
                answer: Any = None
            except ConnectionError:
                break
            except (Exception, SystemExit) as error:  # noqa: BLE001 - handed to the parent, which raises it
                answer = pool.sendable(error)
            connection.send(answer)
    os._exit(0)  # what runs at an interpreter's end is the parent's to run


def _leave(*_: object) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt
