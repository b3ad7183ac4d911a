"""Windows as TensorBoard scalars, beside the curves of the training itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipefix.vocabulary.extras import need
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
        for name, value in _scalars(window):
            self._writer.add_scalar(f"pipefix/{name}", value, self._batches)
        for notice in window.notices:
            self._writer.add_text("pipefix/notices", notice.sentence, self._batches)

    def close(self) -> None:
        if self._own:
            self._writer.close()
        else:
            self._writer.flush()


def _scalars(window: Window) -> list[tuple[str, float]]:
    found = [("samples_per_second", window.rate), ("waiting", window.waiting), ("workers_busy", window.busy)]
    found += [("bytes_a_sample", window.bytes)]
    if window.wait is not None:
        found += [("wait_p50_s", window.wait.p50), ("wait_p99_s", window.wait.p99)]
    found += [(f"stage/{name}_s", cost.s) for name, cost in window.stages.items()]
    found += [(f"machine/{name}", value) for name, value in window.machine.items()]
    found += [("drifting", float(len(window.drifting)))]
    return [(name, value) for name, value in found if value is not None]
