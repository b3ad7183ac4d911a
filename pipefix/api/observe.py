"""Notes what the loops of this process wait for, as `pipefix run` does of a program that it starts (``import pipefix.auto``)."""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from pipefix.api.run import clear, from_folder, held
from pipefix.programs.observing.inside import without_hooks
from pipefix.report.shown import ShownRun as Run
from pipefix.report.shown import shown
from pipefix.vocabulary import launched
from pipefix.vocabulary.errors import BadUsage, PipefixError

_started: list[Path] = []
"""The folder of the notes, once there is one."""


def begin() -> None:
    """Note every loop over a ``DataLoader`` from now on, unless something else does or it is not wanted (``PIPEFIX=0``)."""
    if _started or os.environ.get("PIPEFIX") == "0" or "_pipefix_observing" in sys.modules:
        return
    path = os.environ.get("PYTHONPATH", "")
    if path != without_hooks(path):  # a program of `pipefix run`
        return
    if getattr(multiprocessing.current_process(), "_inheriting", False) or multiprocessing.parent_process() is not None:
        return  # a worker that was spawned imports the program's file again
    import torch.utils.data

    from pipefix.programs.observing import patches

    folder = _own_folder()
    if folder is None:
        return
    asked = {"folder": str(folder)}
    observer = patches.install_loaders(torch.utils.data.dataloader, asked)
    observer.notes.write("begun")  # before any loop, so that others see that this folder is in use
    patches.install_training(sys.modules["torch.optim.optimizer"], asked)
    if "torchdata.nodes.loader" in sys.modules:
        patches.install_nodes(sys.modules["torchdata.nodes.loader"], asked)
    _started.append(folder)


def report() -> Run:
    """What was seen of this program's loops so far: its card when printed, its page at the end of a notebook's cell.

    Raises:
        BadUsage: nothing is noted in this process, or no loop has begun.
    """
    if not _started:
        raise BadUsage(
            "Nothing is noted in this process.",
            advice="Import pipefix.auto in the program itself, without PIPEFIX=0 and where a folder can be written; what pipefix "
            "run starts is told at its end.",
        )
    from pipefix.programs.observing import patches

    if not patches.flush():
        raise BadUsage("No loop over a DataLoader has begun since.", advice="Go through a loader first: for batch in loader: ...")
    return shown(from_folder(_started[0]))


def _own_folder() -> Path | None:
    """The usual one; where another program notes there, or it cannot be used, one of this process's own, here or beside other
    temporary files."""
    usual = launched.run_folder()
    own = f"{usual}-{os.getpid()}"
    for folder in (Path(usual), Path(own), Path(tempfile.gettempdir(), own)):
        with suppress(PipefixError, OSError):
            folder.mkdir(exist_ok=True)
            with held(folder):
                clear(folder)
            if os.access(folder, os.W_OK):
                return folder.resolve()
    return None
