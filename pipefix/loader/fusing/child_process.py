"""Runs something in a forked child: what the user's code remembers of it, or breaks by it, goes with the child."""

from __future__ import annotations

import multiprocessing
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import torch

from pipefix.loader.fusing.errors import NotFused
from pipefix.vocabulary.garbage import existing_objects_skipped

PATIENCE = 30.0
"""Seconds after which a trial is left."""


def in_child_process(make: Callable[[], Any], patience: float = PATIENCE) -> Any:
    """What ``make`` gives; it travels by pickle. Raises `NotFused`, as ``make`` does or where it gives nothing.

    A process that was made to try things has none of its own: there it is called as it is.
    """
    if multiprocessing.current_process().daemon:
        return make()
    context = multiprocessing.get_context("fork")
    ours, child_end = context.Pipe(duplex=False)
    process = context.Process(target=_made, args=(child_end, make), name="pipefix-trial", daemon=True)
    with existing_objects_skipped(), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads beside a fork: the child computes in one thread
        process.start()
    child_end.close()
    try:
        if not ours.poll(patience):
            raise NotFused(f"trying it took longer than {patience:g} s")
        outcome = ours.recv()
    except EOFError:
        process.join()
        raise NotFused(f"the process that tried it ended with code {process.exitcode}") from None
    finally:
        ours.close()
        process.kill()
        process.join()
    if isinstance(outcome, NotFused):
        raise outcome
    return outcome


def _made(connection: Connection, make: Callable[[], Any]) -> None:
    torch.set_num_threads(1)
    try:
        outcome = make()
    except NotFused as error:
        outcome = error
    except Exception as error:  # noqa: BLE001 - the user's code runs in it
        outcome = NotFused(f"trying it raised {type(error).__name__}: {error}")
    connection.send(outcome)
    connection.close()
