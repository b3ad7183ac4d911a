"""Exporters, which write windows where somebody reads them: their interface, a file of JSON lines, and TensorBoard's scalars."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Protocol

from pipefix.vocabulary.errors import BadUsage
from pipefix.vocabulary.extras import need
from pipefix.watching import window as windows
from pipefix.watching.window import Window


class Exporter(Protocol):
    """Takes each window to where somebody reads it.

    It may raise OSError where that place cannot be had. Whatever it raises is logged once, and the watch goes on without it.
    """

    def write(self, window: Window) -> None: ...

    def close(self) -> None: ...


class JsonLines:
    """Appends. Each line is written at once and whole, so that a reader never meets a half one."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        _refuse_other(self.path)
        try:
            self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise OSError(
                f"the file {self.path} could not be opened for writing: {error.strerror or error}. "
                "Choose a place that you may write to, such as jsonl='watch.jsonl'"
            ) from error

    def write(self, window: Window) -> None:
        os.write(self._file, windows.encode(window))

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def scalars(window: Window) -> dict[str, float]:
    """A window's figures by the names that they have among a training's own curves."""
    figures: dict[str, float | None] = {
        "samples_per_second": window.rate, "waiting": window.waiting, "workers_busy": window.busy, "bytes_a_sample": window.bytes,
    }  # fmt: skip
    if window.wait is not None:
        figures |= {"wait_p50_s": window.wait.p50, "wait_p99_s": window.wait.p99}
    figures |= {f"stage/{name}_s": cost.s for name, cost in window.stages.items()}
    figures |= {f"machine/{name}": value for name, value in window.machine.items()}
    figures["drifting"] = float(len(window.drifting))
    return {f"pipefix/{name}": value for name, value in figures.items() if value is not None}


class Scalars:
    """Windows as TensorBoard scalars, beside the curves of the training: in a directory, or with a ``SummaryWriter`` that the user
    has open (and which then stays open)."""

    def __init__(self, target: str | Path | Any) -> None:
        self._own = isinstance(target, (str, Path))
        self._batches = 0
        if self._own:
            need("tensorboard", extra="tensorboard", why="Writing TensorBoard scalars")
            from torch.utils.tensorboard import SummaryWriter

            self._writer: Any = SummaryWriter(str(target))
        else:
            self._writer = target

    def write(self, window: Window) -> None:
        """Over the number of batches, which is what most trainings call the step."""
        self._batches += window.batches
        for name, value in scalars(window).items():
            self._writer.add_scalar(name, value, self._batches)
        for notice in window.notices:
            self._writer.add_text("pipefix/notices", notice.sentence, self._batches)

    def close(self) -> None:
        if self._own:
            self._writer.close()
        else:
            self._writer.flush()


def _refuse_other(path: Path) -> None:
    """A file of somebody else's gets no lines of ours."""
    if not path.is_file():
        return
    try:
        with path.open("rb") as file:
            head = file.read(4096)
    except OSError:
        return  # told when it is opened for writing
    if head.strip() and b'"pipefix.watch/' not in head:
        raise BadUsage(
            f"{path} exists and is not what pipefix.watch writes: nothing will be added to it.", advice="Choose another name."
        )
