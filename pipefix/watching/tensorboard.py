"""Windows as TensorBoard scalars, beside the curves of the training itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipefix.vocabulary.extras import need
from pipefix.watching.exporter import scalars
from pipefix.watching.window import Window


class Scalars:
    """Writes to a directory, or with a ``SummaryWriter`` that the user has open (and which then stays open)."""

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
